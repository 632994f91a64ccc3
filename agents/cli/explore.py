"""`answerby models calibrate --explore`: start the engine under each setting, measure, predict, and say what to set; predicting is `agents.models.explore`."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from agents.cli.engine_alone import beside_engine, measure_profile, spec_alone, without_profile, worker_cpus
from agents.cli.explore_svg import draw_svg
from agents.cli.explore_view import explore_view, toml_lines
from agents.deadlines import reserve_for
from agents.models.explore import Advice, Candidate, Load, Setting, advise, even_out, predict, unsteadiness
from agents.models.profiles import save_profile
from agents.runtime.cpus import SMALL_MACHINE, Cores, available_cores
from agents.runtime.spec import EngineSpec
from schemas.cost import CostProfile
from schemas.errors import SetupError, UsageError
from schemas.settings import Model, Settings

THREADS = (1, 2)
"""More than two threads gain little for the small models that answer within a second, and are far less steady."""

CHUNKS = (16, 32, 64, 128)
BATCHES = (4, 8, 16)

START_S = 8.0
"""Load and warm-up of the default model, for the estimate that is printed first; after the first start the measured time is used."""

ROUND_S = 2.5
"""One round of measuring with batches up to 16, for the same estimate."""

UNEVEN = 1.4
"""Times that the same step may take from one start to the next: beyond it the machine was not free, and what was measured is partly others' work."""

LONGEST_START_S = 300.0
"""One start under one setting may not take longer, whatever the settings say: there are up to ten of them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the settings are sought for."""

    deadline_ms: float
    tokens: int
    prompt_tokens: int
    rates: tuple[float, ...]
    rounds: int
    max_s: float


@dataclass(frozen=True, slots=True)
class _Start:
    """One engine start: its spec, and whether it takes the core that worker and broker would have."""

    spec: EngineSpec
    shares_core: bool


@dataclass(frozen=True, slots=True)
class Explored:
    """What was measured and predicted."""

    profiles: tuple[tuple[Setting, CostProfile], ...]
    candidates: tuple[Candidate, ...]
    advice: Advice
    skipped: int


def parse_rates(text: str) -> tuple[float, ...]:
    """`2,4,8` as numbers, rising.

    Raises:
        UsageError: it is not a list of numbers above 0.
    """
    try:
        rates = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        rates = ()
    if not rates or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        msg = f"--rates {text!r} is not a list of events a second: write for instance --rates 2,4,8,16"
        raise UsageError(msg)
    return rates


def explore_settings(model: Model, settings: Settings, wish: Wish, *, svg: Path | None, json: bool, console: Console) -> int:
    """Measure, predict, print; 0 when there is an answer.

    Raises:
        SetupError: the engine cannot start, or the SVG cannot be written.
        UsageError: the deadline leaves no time after its reserve.
    """
    reserve_s = reserve_for(settings.deadline).seconds()
    if wish.deadline_ms / 1000 <= reserve_s:
        msg = f"--deadline-ms {wish.deadline_ms:g} leaves nothing: {reserve_s * 1000:.0f} ms of it are kept for publishing"
        raise UsageError(msg)
    starts = _plan(model, settings, wish)
    console.print(_plan_line(starts, wish), markup=False)
    profiles, skipped = _measure(starts, settings, wish, console)
    need = min(model.min_tokens, wish.tokens)
    loads = [Load(rate, wish.deadline_ms / 1000 - reserve_s, wish.prompt_tokens, need, wish.tokens) for rate in wish.rates]
    explored = _predict(model, profiles, loads, skipped, console)
    if svg is not None:
        _write(svg, draw_svg(explored.candidates, explored.advice, [profile for _, profile in explored.profiles], wish.deadline_ms))
    if json:
        sys.stdout.write(f"{msgspec.json.encode(_tree(explored, model, starts, wish)).decode()}\n")
        return 0
    console.print(explore_view(explored.candidates, explored.advice))
    uneven = unsteadiness([profile for _, profile in profiles])
    if uneven > UNEVEN:
        told = f"warning: the same step took {uneven:.1f} times as long in one start as in another; repeat this on a free machine before you trust it"
        console.print(told, style="yellow", markup=False)
    if skipped:
        console.print(f"{skipped} of {len(starts)} engine starts were left out, the time was over: see --max-s", style="yellow", markup=False)
    for line in toml_lines(model, explored.advice, _cpus_of(starts, explored.advice.best.setting)):
        console.print(line, markup=False)
    if svg is not None:
        console.print(f"plot in {svg}", markup=False)
    return 0


def _plan(model: Model, settings: Settings, wish: Wish) -> list[_Start]:
    """One start for each thread count and chunk, the present ones first, so that a plan that is cut short still has them."""
    cores = available_cores()
    present = spec_alone(model, settings).threads
    threads = sorted({present, *(count for count in THREADS if count <= cores.count)}, key=lambda count: (count != present, count))
    chunks = sorted({model.prefill_chunk, *CHUNKS}, key=lambda chunk: (chunk != model.prefill_chunk, chunk))
    if model.engine == "scripted":
        threads, chunks = [present], [model.prefill_chunk]  # its pace is a setting: nothing else could come out
    widest = max(*BATCHES, model.max_batch)
    starts = []
    for count in threads:
        placed = _placed(model, settings, cores, count, present)
        for chunk in chunks:
            spec = spec_alone(placed, settings, rounds=wish.rounds)
            starts.append(_Start(without_profile(spec, prefill_chunk=chunk, max_batch=widest), _takes_all(placed, settings, cores)))
    return starts


def _placed(model: Model, settings: Settings, cores: Cores, count: int, present: int) -> Model:
    """The model with `count` threads; where the usual placement has no room for them, on the first cores by name."""
    if count == present:
        return model
    wider = msgspec.structs.replace(model, threads=count, cpus=None)
    if spec_alone(wider, settings).threads == count:
        return wider
    return msgspec.structs.replace(model, threads=count, cpus=cores.ids[-count:])


def _takes_all(model: Model, settings: Settings, cores: Cores) -> bool:
    return 1 < len(cores.ids) <= SMALL_MACHINE and worker_cpus([model], settings) is None


def _plan_line(starts: Sequence[_Start], wish: Wish) -> str:
    likely = min(wish.max_s, len(starts) * (START_S + wish.rounds * ROUND_S) + len(starts) * len(BATCHES))
    bound = wish.max_s + LONGEST_START_S
    minutes = f"about {likely / 60:.1f} min, at most {bound / 60:.0f} min"
    return f"{len(starts)} engine start{'s' * (len(starts) > 1)} (threads x prefill chunk), {minutes}; none begins after {wish.max_s:.0f} s"


def _measure(starts: Sequence[_Start], settings: Settings, wish: Wish, console: Console) -> tuple[list[tuple[Setting, CostProfile]], int]:
    """Each start's profile, kept for the workers, too; later ones are left out when the time is over."""
    measured: list[tuple[Setting, CostProfile]] = []
    began = time.monotonic()
    with ExitStack() as stack:
        bar = stack.enter_context(
            Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal)
        )
        task = bar.add_task("measuring", total=len(starts))
        for number, start in enumerate(starts):
            spent = time.monotonic() - began
            if measured and spent >= wish.max_s:
                return measured, len(starts) - number
            setting = Setting(start.spec.threads, start.spec.model.prefill_chunk, start.spec.model.max_batch, start.shares_core)
            left_s = spent / number * (len(starts) - number) if number else 0.0
            eta = f", {left_s:.0f} s left" if number else ""
            bar.update(task, description=f"{number + 1}/{len(starts)}: {setting.threads} thread(s), chunk {setting.prefill_chunk}{eta}", completed=number)
            if not console.is_terminal:
                console.print(f"{number + 1}/{len(starts)}: {setting.threads} thread(s), chunk {setting.prefill_chunk}{eta}", markup=False)
            measured.append((setting, _measure_one(start, settings)))
    return measured, 0


def _measure_one(start: _Start, settings: Settings) -> CostProfile:
    spec = without_profile(start.spec, start_ms=int(LONGEST_START_S * 1000))
    with beside_engine(worker_cpus([spec.model], settings)):
        profile = asyncio.run(measure_profile(spec))
    if spec.model.engine != "scripted":
        save_profile(profile)
    return profile


def _predict(model: Model, profiles: Sequence[tuple[Setting, CostProfile]], loads: Sequence[Load], skipped: int, console: Console) -> Explored:
    batches = sorted({*BATCHES, model.max_batch})
    evened = even_out([profile for _, profile in profiles])
    tries = [
        (Setting(setting.threads, setting.prefill_chunk, batch, setting.shares_core), profile)
        for (setting, _), profile in zip(profiles, evened, strict=True)
        for batch in batches
        if batch <= setting.prefill_chunk or batch == model.max_batch
    ]
    candidates = []
    with Progress(TextColumn("predicting"), BarColumn(), TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal) as bar:
        for setting, profile in bar.track(tries):
            candidates.append(predict(profile, setting, loads, waiting=model.waiting))
    first = profiles[0][0]  # the plan begins with what is set
    present = Setting(first.threads, first.prefill_chunk, model.max_batch, first.shares_core)
    return Explored(tuple(profiles), tuple(candidates), advise(candidates, present), skipped)


def _cpus_of(starts: Sequence[_Start], setting: Setting) -> tuple[int, ...] | None:
    return next((start.spec.model.cpus for start in starts if start.spec.threads == setting.threads), None)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"{file} cannot be written ({error.strerror}): name another file by --svg"
        raise SetupError(msg) from None


def _tree(explored: Explored, model: Model, starts: Sequence[_Start], wish: Wish) -> dict[str, Any]:
    return {
        "model": model.name,
        "deadline_ms": wish.deadline_ms,
        "tokens": wish.tokens,
        "prompt_tokens": wish.prompt_tokens,
        "candidates": [_candidate_tree(one) for one in explored.candidates],
        "present": _candidate_tree(explored.advice.present),
        "best": _candidate_tree(explored.advice.best),
        "toml": toml_lines(model, explored.advice, _cpus_of(starts, explored.advice.best.setting)),
        "why": explored.advice.why,
        "skipped_starts": explored.skipped,
        "unsteadiness": round(unsteadiness([profile for _, profile in explored.profiles]), 2),
    }


def _candidate_tree(one: Candidate) -> dict[str, Any]:
    points = [
        {"rate": point.rate, "in_time": round(point.in_time, 3), "answers_s": round(point.answers_s, 2), "tokens_s": round(point.tokens_s, 1)}
        for point in one.points
    ]
    setting = one.setting
    return {
        "threads": setting.threads,
        "prefill_chunk": setting.prefill_chunk,
        "max_batch": setting.max_batch,
        "shares_core": setting.shares_core,
        "worst_step_ms": round(one.worst_step_s * 1000, 1),
        "points": points,
    }
