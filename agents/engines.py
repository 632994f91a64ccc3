"""The engines that the settings ask for: files found, cores given, memory checked, figures exported; one engine is `agents.runtime.supervisor`."""

from __future__ import annotations

import msgspec
import structlog

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
    engines: list[Engine] = []
    needs: list[Need] = []
    for index, (model, places) in enumerate(zip(settings.models, placement.engines, strict=True)):
        files = find_files(model)
        needs += [Need(f"models[{index}]", weight_bytes(files.path), model.kv_cache_mb * _MB if files.path else 0)] * model.processes
        specs = [_with_profile(spec) for spec in engine_specs(model, files, places)]
        for spec in specs:
            if files.path:
                metrics.kv_cache.labels(files.name, str(spec.replica)).set(model.kv_cache_mb * _MB)
        log.info("model", name=model.name, version=files.version, threads=[one.threads for one in places], cpus=[one.cpus for one in places])
        engines.append(Engine(specs, figures))
    require_memory(needs, memory_limit())
    return tuple(engines), placement


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


def build_rungs(settings: Settings, engines: tuple[Engine, ...]) -> tuple[ModelRung, ...]:
    """The model rungs in the ladder's order; the first is the main one, later ones answer as `fallback_model`."""
    by_name = {engine.model.name: engine for engine in engines}
    used = [by_name[name] for name in settings.ladder.rungs if name in by_name]
    return tuple(ModelRung(engine, outcome="model" if index == 0 else "fallback_model") for index, engine in enumerate(used))
