"""What the semantic cache takes: `python -m bench.semantic [ENCODER]` prints encoding, guards and look-up, and what they do to the event loop beside them."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from agents.semantic.encoder import open_encoder
from agents.semantic.encoder_thread import EncoderThread
from agents.semantic.guards import signature
from agents.semantic.index import Answer, Asked, Indexes
from agents.semantic.tune import read_pairs
from schemas.responses import ModelRef

PAIRS = Path(__file__).parents[1] / "examples" / "semantic_pairs.jsonl"

ROWS = 2000
"""As many as `semantic_cache.entries` keeps for a scenario."""

REPEATS = 600
TICK_S = 0.001


def spread(seconds: Sequence[float]) -> str:
    """Median, p99 and the worst, in milliseconds."""
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1000:7.3f}  p99 {ordered[int(len(ordered) * 0.99)] * 1000:7.3f}  worst {ordered[-1] * 1000:7.3f} ms"


def time_each(function: Callable[[str], object], texts: Sequence[str]) -> list[float]:
    """Seconds of one call for each text, in turn."""
    taken = []
    for at in range(REPEATS):
        began = time.perf_counter()
        function(texts[at % len(texts)])
        taken.append(time.perf_counter() - began)
    return taken


def time_lookups(size: int, texts: Sequence[str]) -> list[float]:
    """Seconds of a search among `ROWS` questions, half of which are near enough for the guards to be asked."""
    indexes = Indexes(size, entries=ROWS, indexes=1, max_bytes=1 << 30)
    random = np.random.default_rng(1)
    base = random.standard_normal(size).astype(np.float32)
    for number in range(ROWS):
        vector = base * (number % 2) + random.standard_normal(size).astype(np.float32) * 0.3
        asked = Asked(("t", "s", "en"), b"g", signature(texts[number % len(texts)]), vector / np.linalg.norm(vector))
        indexes.put(asked, Answer("x", None, "stop", ModelRef("m", "1")), ("t", f"e{number}", "s"), 1.0)
    sought = Asked(("t", "s", "en"), b"g", signature("A question that nobody has asked, about 77 herons"), base / np.linalg.norm(base))
    return time_each(lambda _: indexes.search(sought, 0.5, 0.0), texts)


async def lag_beside(thread: EncoderThread, texts: Sequence[str], *, busy: bool) -> list[float]:
    """How late the loop runs a timer of a millisecond, with the encoder working without a pause or not at all."""
    lags: list[float] = []
    done = False

    async def work() -> None:
        at = 0
        while not done:
            job = thread.encode(texts[at % len(texts)])
            at += 1
            if job is None:
                await asyncio.sleep(TICK_S)
            else:
                await job

    worker = asyncio.create_task(work()) if busy else None
    for _ in range(2 * REPEATS):
        due = time.perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        lags.append(max(0.0, time.perf_counter() - due))
    done = True
    if worker is not None:
        await worker
    return lags


async def measure_lag(name: str, texts: Sequence[str]) -> None:
    """Print the loop's lag without and with an encoder at work, for usual texts and for the longest."""
    thread = EncoderThread(lambda: open_encoder(name))
    await thread.start()
    try:
        longest = ["What happens when the station closes early? " * 6]
        print("loop lag, encoder idle   ", spread(await lag_beside(thread, texts, busy=False)))
        print("loop lag, encoder busy   ", spread(await lag_beside(thread, texts, busy=True)))
        print("loop lag, 260 characters ", spread(await lag_beside(thread, longest, busy=True)))
    finally:
        await thread.stop()


def main() -> None:
    """Measure one encoder."""
    name = sys.argv[1] if len(sys.argv) > 1 else "ngrams"
    texts = [text for pair in read_pairs(PAIRS) for text in (pair.a, pair.b)]
    encoder = open_encoder(name)
    encoder.encode(texts[:8])
    signature(texts[0])
    print(f"encoder {encoder.name}, {encoder.size} numbers, {ROWS} rows")
    print("encode one question      ", spread(time_each(lambda text: encoder.encode([text]), texts)))
    print("guards of one question   ", spread(time_each(signature, texts)))
    print("search                   ", spread(time_lookups(encoder.size, texts)))
    asyncio.run(measure_lag(name, texts))


if __name__ == "__main__":
    main()
