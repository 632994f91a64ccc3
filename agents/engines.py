"""The engines that the settings ask for: files found, cores given, memory checked, figures exported; one engine is `agents.runtime.supervisor`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
import structlog

from agents.breaker import Breaker, BreakerState
from agents.model_rung import ModelRung
from agents.models.profiles import load_profile, save_profile, this_cpu
from agents.models.registry import resolve_model
from agents.runtime.cpus import Placement, available_cores, place
from agents.runtime.dispatch import Promise
from agents.runtime.memory import Need, memory_limit, require_memory, weight_bytes
from agents.runtime.spec import EngineSpec, ResolvedModel, engine_specs
from agents.runtime.supervisor import Engine, EngineStatus
from schemas.cost import CostProfile
from schemas.errors import SetupError
from schemas.inference import Step
from schemas.settings import Model, Settings
from streams.metrics import Metrics

log = structlog.get_logger(__name__)

_MB = 1024 * 1024

MAX_PREFIXES = 64
"""Scenarios whose instructions an engine reads before it serves: at 100 ms each, more would delay a restart for long; the others are read when first needed."""


class EngineFigures:
    """Exports what engines report; attached to each as its hooks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_step(self, status: EngineStatus, step: Step) -> None:
        """A step was reported."""
        metrics, replica = self._metrics, str(status.replica)
        metrics.observe_step(status.model, step)
        metrics.engine_rss.labels(status.model, replica).set(status.rss_bytes)
        metrics.engine_faults.labels(status.model, replica).set(status.major_faults)

    def on_state(self, status: EngineStatus) -> None:
        """A replica changed its state."""
        labels = (status.model, status.version, str(status.replica))
        self._metrics.engine_up.labels(*labels).set(status.state == "ready")
        self._metrics.model_info.labels(*labels).set(1)
        self._metrics.engine_restarts.labels(*labels)
        log.info("engine", model=status.model, replica=status.replica, state=status.state, pid=status.pid)

    def on_promise(self, status: EngineStatus, promise: Promise) -> None:
        """An admitted request has what it needs."""
        if promise.first_error is not None:
            self._metrics.first_token_error.labels(status.model).observe(promise.first_error)
        self._metrics.promises.labels(status.model, "true" if promise.kept else "false").inc()

    def on_profile(self, status: EngineStatus, profile: CostProfile) -> None:
        """The engine has measured what its steps cost: kept for the next start."""
        steps = {str(step.batch): round(step.median * 1000, 1) for step in profile.steps}
        log.info("calibrated", model=status.model, step_ms=steps, prefill_token_ms=round(profile.prefill_token_s * 1000, 2))
        try:
            save_profile(profile)
        except SetupError as error:
            log.warning("the profile is not kept", problem=str(error))

    def on_step_error(self, status: EngineStatus, error: float) -> None:
        """How far a step was from what was foreseen."""
        self._metrics.step_error.labels(status.model).observe(error)

    def on_restart(self, status: EngineStatus, why: str) -> None:
        """A replica died or hung and is being replaced."""
        self._metrics.engine_restarts.labels(status.model, status.version, str(status.replica)).inc()
        log.warning("engine replaced", model=status.model, replica=status.replica, why=why)


def build_engines(settings: Settings, metrics: Metrics) -> tuple[tuple[Engine, ...], Placement]:
    """One engine a `[[models]]` entry, in their order, not yet started.

    Raises:
        SetupError: a model is not here or broken, or all together do not fit into memory.
        ConfigError: a core is named that this process may not use.
    """
    placement = place(settings.models, available_cores(), settings.worker.cpus)
    figures = EngineFigures(metrics)
    prefixes = shared_prefixes(settings)
    engines: list[Engine] = []
    needs: list[Need] = []
    for index, (model, places) in enumerate(zip(settings.models, placement.engines, strict=True)):
        files = find_files(model)
        needs += [Need(f"models[{index}]", weight_bytes(files.path), model.kv_cache_mb * _MB if files.path else 0)] * model.processes
        specs = [msgspec.structs.replace(_with_profile(spec), prefixes=prefixes) for spec in engine_specs(model, files, places)]
        for spec in specs:
            if files.path:
                metrics.kv_cache.labels(files.name, str(spec.replica)).set(model.kv_cache_mb * _MB)
        log.info("model", name=model.name, version=files.version, threads=[one.threads for one in places], cpus=[one.cpus for one in places])
        engines.append(Engine(specs, figures, [one.loads_on for one in places]))
    require_memory(needs, memory_limit())
    return tuple(engines), placement


def shared_prefixes(settings: Settings) -> tuple[str, ...]:
    """The instructions that prompts begin with, each once."""
    texts = [settings.session.instructions, *(scenario.instructions for scenario in settings.scenarios.values() if scenario.instructions is not None)]
    return tuple(dict.fromkeys(text for text in texts if text))[:MAX_PREFIXES]


def _with_profile(spec: EngineSpec) -> EngineSpec:
    """The spec with this machine's profile, or with the order to measure one before serving."""
    if spec.model.engine == "scripted":
        return spec
    cpu = this_cpu()
    chunk = spec.model.prefill_chunk
    profile = load_profile(spec.files.name, spec.files.version, threads=spec.threads, prefill_chunk=chunk, cpu=cpu)
    return msgspec.structs.replace(spec, profile=profile, calibrate=profile is None, cpu_name=cpu)


def find_files(model: Model) -> ResolvedModel:
    """Which files an entry means. A scripted one has none, and always the same version."""
    if model.engine == "scripted":
        return ResolvedModel(model.name, "", "scripted")
    found = resolve_model(model.path)
    return ResolvedModel(found.name, str(found.path), found.version)


async def start_engines(engines: Sequence[Engine]) -> None:
    """Start all of them, those that share a core one after the other.

    That takes no longer, and one that measures its steps beside another one's load would keep a profile that is twice too slow.

    Raises:
        SetupError: one cannot serve; the text says why.
    """
    lines: list[list[Engine]] = []
    for engine in engines:
        shared = [line for line in lines if any(engine.cpus & other.cpus for other in line)]
        lines = [line for line in lines if line not in shared]
        lines.append([*(other for line in shared for other in line), engine])
    await asyncio.gather(*(_start_in_turn(line) for line in lines))


async def _start_in_turn(engines: Sequence[Engine]) -> None:
    for engine in engines:
        await engine.start()


class ModelRungs:
    """The model rungs of every ladder; a model's breaker is one, whichever ladders use it."""

    def __init__(self, settings: Settings, engines: Sequence[Engine], on_breaker: Callable[[str, BreakerState], None] | None = None) -> None:
        """`on_breaker` is told of a `[[models]]` entry, by its name, and its breaker's state: at once of each, then of every change."""
        self._engines = {engine.model.name: engine for engine in engines}
        self._breakers: dict[str, Breaker] = {}
        for name in self._engines:
            tell = partial(on_breaker, name) if on_breaker is not None else _ignore
            self._breakers[name] = Breaker(settings.breaker, tell)
            tell("closed")

    def of(self, names: Sequence[str]) -> dict[str, ModelRung]:
        """For one ladder, those of `names` that are models, in their order: the first is the main one, later ones answer as `fallback_model`."""
        below: tuple[ModelRung, ...] = ()
        used = [name for name in names if name in self._engines]
        for name in reversed(used):
            outcome: Literal["model", "fallback_model"] = "model" if name == used[0] else "fallback_model"
            below = (ModelRung(self._engines[name], outcome=outcome, breaker=self._breakers[name], relief=below), *below)
        return {rung.name: rung for rung in below}


def _ignore(_: BreakerState) -> None:
    """Nobody looks."""
