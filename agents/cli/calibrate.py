"""`answerby models calibrate`: measure what an engine's steps cost on this machine, and with --explore which settings it should have."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from schemas.settings import Model, Settings

ROUNDS = 8
"""About 80 steps of each batch size: enough for a p99 that means something, two seconds a round for a small model."""

ROUND_MS = 30_000
"""Beyond start_ms, for each round: a model so slow that one takes longer answers nothing in time, and the wait must end."""

EXPLORE_ROUNDS = 2
"""For each of many settings: medians decide between them, and the machine should be free again soon."""


def calibrate(
    model: Annotated[str | None, Parameter(help="name of a [[models]] entry [default: the first]")] = None,
    /,
    *,
    rounds: Annotated[int | None, Parameter(help=f"how often each batch size is measured [default: {ROUNDS}, with --explore {EXPLORE_ROUNDS}]")] = None,
    explore: Annotated[bool, Parameter(negative="", help="try threads, prefill chunks and batch sizes, and print what to set")] = False,
    deadline_ms: Annotated[float | None, Parameter(help="for --explore: budget of an event [default: deadline.default_ms]")] = None,
    tokens: Annotated[int | None, Parameter(help="for --explore: tokens asked for [default: max_tokens]")] = None,
    prompt_tokens: Annotated[int, Parameter(help="for --explore: tokens of a prompt that are not in the prefix cache")] = 32,
    rates: Annotated[str, Parameter(help="for --explore: events a second to predict")] = "2,4,8,16,32",
    svg: Annotated[Path | None, Parameter(help="for --explore: write the plot to this file")] = None,
    max_s: Annotated[float, Parameter(help="for --explore: stop measuring after so many seconds")] = 600.0,
    json: Annotated[bool, Parameter(negative="", help="print JSON; all else goes to standard error")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Measure what this model's steps cost on this machine, and keep it for the workers here.

    The engine is started alone, on the cores that the worker would give it. A worker, a broker or anything else on the same cores spoils the
    figures: stop them first. Workers read the kept profile when they start; without one they measure a short one themselves.

    Example: answerby models calibrate --explore --deadline-ms 300 --tokens 16
    """
    settings = load_settings(config)
    for name, value in (("--rounds", rounds), ("--tokens", tokens), ("--prompt-tokens", prompt_tokens), ("--deadline-ms", deadline_ms), ("--max-s", max_s)):
        if value is not None and not 0 < value < 1e6:  # noqa: PLR2004  # also refuses NaN
            msg = f"{name} {value:g} is wrong: use a number above 0"
            raise UsageError(msg)
    from agents.cli.engine_alone import find_model, measuring_console, warn_when_busy

    chosen = find_model(settings, model)
    if chosen.engine == "scripted" and chosen.token_ms <= 0:
        msg = f"model {chosen.name!r} is scripted and takes no time: set its token_ms, or name another model"
        raise UsageError(msg)
    console = measuring_console(stderr=json)
    warn_when_busy()
    if not explore:
        return _calibrate(chosen, settings, rounds or ROUNDS, json=json, console=console)
    from agents.cli.explore import Wish, explore_settings, parse_rates

    wish = Wish(
        deadline_ms=settings.deadline.default_ms if deadline_ms is None else deadline_ms,
        tokens=tokens or chosen.max_tokens,
        prompt_tokens=prompt_tokens,
        rates=parse_rates(rates),
        rounds=rounds or EXPLORE_ROUNDS,
        max_s=max_s,
    )
    return explore_settings(chosen, settings, wish, svg=svg, json=json, console=console)


def _calibrate(model: Model, settings: Settings, rounds: int, *, json: bool, console: Console) -> int:
    from agents.cli.engine_alone import beside_engine, measure_profile, spec_alone, worker_cpus
    from agents.cli.profile_view import profile_tree, profile_view
    from agents.models.profiles import save_profile

    patient = msgspec.structs.replace(model, start_ms=model.start_ms + rounds * ROUND_MS)
    spec = spec_alone(patient, settings, rounds=rounds)
    began = time.monotonic()
    where = f"{spec.threads} thread{'s' * (spec.threads > 1)}" + (f" on core {', '.join(map(str, spec.cpus))}" if spec.cpus else "")
    with beside_engine(worker_cpus([model], settings)), console.status(f"measuring {spec.files.name} {spec.files.version}, {where}, {rounds} rounds"):
        profile = asyncio.run(measure_profile(spec))
    kept = None if model.engine == "scripted" else save_profile(profile)
    if json:
        tree = {**profile_tree(profile), "cpus": spec.cpus, "rounds": rounds, "file": None if kept is None else str(kept)}
        sys.stdout.write(f"{msgspec.json.encode(tree).decode()}\n")
        return 0
    console.print(profile_view(profile))
    console.print(f"measured in {time.monotonic() - began:.0f} s, {where}", markup=False)
    console.print(
        "not kept: a scripted engine's times are its settings" if kept is None else f"kept in {kept}; workers use it from their next start", markup=False
    )
    return 0
