"""One engine by itself, placed as the worker would place it, for the commands that measure; many engines serving events are `agents.worker`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec

from agents.engines import find_files
from agents.models.profiles import this_cpu
from agents.runtime.cpus import available_cores, place
from agents.runtime.memory import Need, memory_limit, require_memory, weight_bytes
from agents.runtime.spec import EngineSpec
from agents.runtime.supervisor import Engine, EngineStatus, NoHooks
from schemas.cost import CostProfile
from schemas.errors import SetupError, UsageError
from schemas.settings import Model, Settings

if TYPE_CHECKING:
    from rich.console import Console

BUSY_LOAD = 0.7
"""Processes that already want a core on average: from here on they take the engine's time, and every figure is too slow."""

PLAIN_WIDTH = 140
"""Columns where there is no terminal."""

_MB = 1024 * 1024


def find_model(settings: Settings, name: str | None) -> Model:
    """The `[[models]]` entry of that name; the first one without a name.

    Raises:
        UsageError: there is none of that name, or none at all.
    """
    known = ", ".join(model.name for model in settings.models)
    found = next((model for model in settings.models if name in (None, model.name)), None)
    if found is None:
        msg = f"no [[models]] entry is called {name!r}: use one of: {known}" if known else "the settings have no [[models]] entry: add one"
        raise UsageError(msg)
    return found


def spec_alone(model: Model, settings: Settings, *, rounds: int = 0) -> EngineSpec:
    """The spec of one replica at the place the worker would give it; with `rounds` it measures itself before it serves.

    `settings` name the other models that share the machine; `model` may be one of them, changed.

    Raises:
        SetupError: the model is not here, or does not fit into memory.
        ConfigError: a core is named that may not be used.
    """
    others = [model if other.name == model.name else other for other in settings.models]
    models = others if model in others else [model]
    where = place(models, available_cores(), settings.worker.cpus).engines[models.index(model)][0]
    files = find_files(model)
    require_memory([Need("models[0]", weight_bytes(files.path), model.kv_cache_mb * _MB if files.path else 0)], memory_limit(), worker=0)
    return EngineSpec(model, files, 0, where.threads, where.cpus, calibrate=rounds > 0, calibrate_rounds=rounds, cpu_name=this_cpu())


def worker_cpus(models: Sequence[Model], settings: Settings) -> tuple[int, ...] | None:
    """The cores that the worker would have beside these models; None: it is not pinned."""
    return place(models, available_cores(), settings.worker.cpus).worker


@contextmanager
def beside_engine(cpus: tuple[int, ...] | None) -> Iterator[None]:
    """Stay off the engine's core while it is measured, as the worker does; drawing a progress bar would take its time otherwise."""
    before = os.sched_getaffinity(0)
    try:
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def engine_alone(spec: EngineSpec, hooks: NoHooks | None = None) -> AsyncIterator[Engine]:
    """A started engine, stopped whatever happens.

    Raises:
        SetupError: it cannot serve; the text says why.
    """
    engine = Engine([spec], hooks)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.stop()


async def measure_profile(spec: EngineSpec) -> CostProfile:
    """Start the engine, let it measure itself, stop it; bounded by the model's start_ms.

    Raises:
        SetupError: it cannot serve, or took longer.
    """
    kept = _Kept()
    async with engine_alone(spec, kept):
        if kept.profile is None:
            msg = f"model {spec.model.name!r} has started without measuring itself: update answerby, both parts must be of one release"
            raise SetupError(msg)
        return kept.profile


def measuring_console(*, stderr: bool) -> Console:
    """A console whose tables are not cut where there is no terminal."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, soft_wrap=True, width=PLAIN_WIDTH)


def warn_when_busy() -> None:
    """Say so when others use the machine: figures taken now would be believed until the next calibration."""
    load = os.getloadavg()[0]
    if load > BUSY_LOAD:
        measuring_console(stderr=True).print(
            f"warning: {load:.1f} processes are running here already (a worker?); figures taken now will be too slow", style="yellow", markup=False
        )


def without_profile(spec: EngineSpec, **model: object) -> EngineSpec:
    """The spec with other settings of its model."""
    return msgspec.structs.replace(spec, model=msgspec.structs.replace(spec.model, **model), profile=None)


class _Kept(NoHooks):
    """Keeps the profile that the engine brings."""

    def __init__(self) -> None:
        self.profile: CostProfile | None = None

    def on_profile(self, status: EngineStatus, profile: CostProfile) -> None:
        """Keep it."""
        self.profile = profile
