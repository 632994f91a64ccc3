"""The rungs that the settings ask for, each built once and shared by the ladders of all scenarios; which ladder has which is `agents.scenarios`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.model_rung import ModelRung

if TYPE_CHECKING:
    from agents.feedback import Evictor
    from agents.ladder import Degraded, RungProtocol
    from agents.runtime.supervisor import Engine
    from schemas.settings import Settings
    from streams.metrics import Metrics


class Rungs:
    """Owns every rung of a worker."""

    def __init__(self, settings: Settings, engines: tuple[Engine, ...], metrics: Metrics) -> None:
        """Nothing runs yet.

        Raises:
            ConfigError: a rule or a setting of a rung is wrong; says where.
        """
        self._engines = {engine.model.name: engine for engine in engines}
        self._models: dict[tuple[str, bool], ModelRung] = {}
        self._built_in: dict[str, RungProtocol] = {}
        self.insurance: Degraded | None = None
        self.evictors: tuple[Evictor, ...] = ()

    def of(self, name: str, is_first_model: bool) -> RungProtocol | None:
        """The rung of a name; None for a built-in one that is not configured. One model may be the first of one ladder and the fallback of another."""
        engine = self._engines.get(name)
        if engine is None:
            return self._built_in.get(name)
        rung = self._models.get((name, is_first_model))
        if rung is None:
            rung = self._models[name, is_first_model] = ModelRung(engine, outcome="model" if is_first_model else "fallback_model")
        return rung

    async def start(self) -> None:
        """Start what the rungs run beside the loop."""

    async def stop(self) -> None:
        """Stop it, in reverse."""
