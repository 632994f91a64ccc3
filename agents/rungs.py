"""The rungs that the settings ask for, each built once and shared by the ladders of all scenarios; which ladder has which is `agents.scenarios`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agents.cache.rung import CacheRung
from agents.cache.shared import RedisStore
from agents.engines import ModelRungs
from schemas.responses import ModelRef

if TYPE_CHECKING:
    from agents.feedback import Evictor
    from agents.ladder import Degraded, RungProtocol
    from agents.runtime.supervisor import Engine
    from schemas.deadline import Clock
    from schemas.settings import Settings
    from streams.metrics import Metrics


class Rungs:
    """Owns every rung of a worker."""

    def __init__(self, settings: Settings, engines: tuple[Engine, ...], metrics: Metrics, clock: Clock) -> None:
        """Nothing runs yet.

        Raises:
            ConfigError: a rule or a setting of a rung is wrong; says where.
        """
        self._metrics = metrics
        self._engines = {engine.model.name: engine for engine in engines}
        self._models = ModelRungs(settings, engines, metrics.set_breaker)
        self._built_in: dict[str, RungProtocol] = {}
        self._cache = self._build_cache(settings, clock)
        self.insurance: Degraded | None = None
        evictors: list[Evictor] = []
        if self._cache is not None:
            self._built_in["cache"] = self._cache
            evictors.append(self._cache)
        self.evictors = tuple(evictors)

    def of(self, names: tuple[str, ...]) -> Mapping[str, RungProtocol]:
        """The rungs of one ladder; a built-in one that is not configured is not among them."""
        return {**{name: self._built_in[name] for name in names if name in self._built_in}, **self._models.of(names)}

    async def start(self) -> None:
        """Start what the rungs run beside the loop."""
        if self._cache is not None:
            await self._cache.start()

    async def stop(self) -> None:
        """Stop it, in reverse."""
        if self._cache is not None:
            await self._cache.stop()

    def tick(self) -> None:
        """Set the gauges."""
        if self._cache is not None:
            self._metrics.cache_entries.set(self._cache.entries)
            self._metrics.cache_bytes.set(self._cache.size_bytes)

    def _build_cache(self, settings: Settings, clock: Clock) -> CacheRung | None:
        """Nothing, unless some scenario keeps answers for a while."""
        kept_s = [settings.cache.ttl_s, *(scenario.cache.ttl_s or 0.0 for scenario in settings.scenarios.values())]
        if max(kept_s) <= 0:
            return None
        store = RedisStore(settings.cache.shared) if settings.cache.shared else None
        return CacheRung(settings, self._model_in_place, clock, store=store, count=self._metrics.observe_cache)

    def _model_in_place(self, name: str) -> ModelRef | None:
        """What a `[[models]]` entry runs now."""
        engine = self._engines.get(name)
        if engine is None:
            return None
        status = engine.status()[0]
        return ModelRef(status.model, status.version)
