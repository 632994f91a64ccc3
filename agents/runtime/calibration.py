"""Measures what an engine's steps cost, in the engine's own process right after warm-up; `models calibrate` runs it at greater length."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agents.runtime.backend import Backend, StepResult
from agents.runtime.spec import EngineSpec
from schemas.cost import CostProfile, StepCost
from schemas.inference import Generate, Message

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Sizes that are measured, up to max_batch; the model draws straight lines between them."""

TOKENS = 10
"""Steps of each measurement: at 20 ms they cost a fifth of a second a size, and a median of ten is good to a few per cent. Larger batches get two
more for each request, since the first speak while the prompts of the last are still read."""

READ_CHARS = 700
"""Of the prompts that measure reading: about 200 tokens, several chunks of any size."""

CALM = 0.25
"""Which of the sorted samples stands for the step: a neighbour's burst must not make the profile slow. Serving corrects a profile that is too
fast within a second, since it has steps to learn from; one that is too slow refuses the requests that would teach it."""

FAR_S = 3600.0
"""Nothing is cut while measuring."""

FIRST_ID = 1 << 40
"""Ids that no worker gives."""

_WORDS = "order parcel night river castle ticket wallet engine garden winter letter signal market bridge candle doctor forest island".split()


@dataclass(slots=True)
class _Samples:
    decode: dict[int, list[float]] = field(default_factory=dict)
    reading: list[tuple[float, int, int]] = field(default_factory=list)
    letters: int = 0
    tokens: int = 0


def calibrate(backend: Backend, spec: EngineSpec, *, cpu: str, rounds: int = 2, clock: Callable[[], float] = time.monotonic) -> CostProfile:
    """Time decoding at each batch size and the reading of prompts; about two seconds a round for a small model."""
    samples, ids = _Samples(), iter(range(FIRST_ID, FIRST_ID << 1))
    sizes = [size for size in BATCHES if size <= spec.model.max_batch]
    for number in range(rounds):
        for size in sizes:
            _run(backend, samples, [_request(next(ids), 24, number, clock(), TOKENS + 2 * size) for _ in range(size)])
        long = _request(next(ids), READ_CHARS, number, clock())
        samples.tokens += _run(backend, samples, [long])
        samples.letters += sum(len(message.text) for message in long.messages)
    steps = tuple(_step_cost(size, samples.decode[size]) for size in sizes if samples.decode.get(size))
    slopes = sorted(_token_costs(samples, steps))
    slope = max(1e-6, slopes[int(len(slopes) * CALM)]) if slopes else 0.0015
    whole = sorted(seconds for seconds, batch, prefill in samples.reading if batch == 0 and prefill >= spec.model.prefill_chunk)
    return CostProfile(
        model=spec.files.name,
        version=spec.files.version,
        threads=spec.threads,
        cpu=cpu,
        prefill_chunk=spec.model.prefill_chunk,
        steps=steps,
        prefill_token_s=slope,
        prefill_spread=max(1.0, slopes[-1] / slope) if slopes else 1.3,
        chunk_s=whole[int(len(whole) * CALM)] if whole and spec.model.engine != "scripted" else 0.0,
        chars_per_token=samples.letters / max(1, samples.tokens),
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _token_costs(samples: _Samples, steps: tuple[StepCost, ...]) -> list[float]:
    """Seconds a prompt token: of steps that only read; where a chunk holds the whole prompt, of those that also speak, less what speaking costs."""
    pure = [seconds / prefill for seconds, batch, prefill in samples.reading if batch == 0]
    return pure or [max(0.0, seconds - steps[0].median) / prefill for seconds, batch, prefill in samples.reading if batch == 1 and steps]


def _request(request_id: int, letters: int, number: int, now: float, tokens: int = TOKENS) -> Generate:
    """A prompt that no cache knows: it begins with its own number."""
    text = f"{request_id % 9973} {number} "
    while len(text) < letters:
        text += _WORDS[(len(text) * 7 + request_id) % len(_WORDS)] + " "
    return Generate(request_id, (Message("user", text),), tokens, now + FAR_S)


def _run(backend: Backend, samples: _Samples, requests: list[Generate]) -> int:
    """Serve `requests` to their ends; returns how many prompt tokens were read."""
    read = 0
    for request in requests:
        backend.add(request)
    while backend.step_at is not None:
        result = backend.step()
        if result is not None:
            _sort(result, samples)
            read += result.prefill_tokens
    return read


def _sort(result: StepResult, samples: _Samples) -> None:
    if result.prefill_tokens:
        samples.reading.append((result.seconds, result.batch, result.prefill_tokens))
    elif result.batch:
        samples.decode.setdefault(result.batch, []).append(result.seconds)


def _step_cost(size: int, seconds: list[float]) -> StepCost:
    ordered = sorted(seconds)
    return StepCost(size, max(ordered[int(len(ordered) * CALM)], 1e-6), max(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 1e-6))
