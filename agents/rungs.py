"""The rungs that the settings ask for, each built once and shared by the ladders of all scenarios; which ladder has which is `agents.scenarios`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agents.cache.rung import CacheRung
from agents.cache.shared import RedisStore
from agents.engines import ModelRungs
from agents.rules.rung import build_rules_rung
from schemas.responses import ModelRef

if TYPE_CHECKING:
    from agents.feedback import Evictor
    from agents.ladder import Degraded, RungProtocol
    from agents.runtime.supervisor import Engine
    from agents.semantic.rung import SemanticCacheRung
    from schemas.deadline import Clock
    from schemas.settings import Settings
    from streams.metrics import LadderMetrics


class Rungs:
    """Owns every rung of a worker."""

    def __init__(self, settings: Settings, engines: tuple[Engine, ...], metrics: LadderMetrics, clock: Clock) -> None:
        """Nothing runs yet.

        Raises:
            ConfigError: a rule or a setting of a rung is wrong; says where.
        """
        self._metrics = metrics
        self._engines = {engine.model.name: engine for engine in engines}
        self._models = ModelRungs(settings, engines, metrics.set_breaker)
        self._rules = build_rules_rung(settings.rules, on_reload=metrics.observe_rules)
        self._cache = self._build_cache(settings, clock)
        self._semantic = self._build_semantic(settings, clock)
        built: tuple[RungProtocol | None, ...] = (self._rules, self._cache, self._semantic)
        self._built_in = {rung.name: rung for rung in built if rung is not None}
        self.insurance: Degraded | None = self._rules
        evictors: tuple[Evictor | None, ...] = (self._cache, None if self._semantic is None else _SemanticEvictor(self._semantic))
        self.evictors = tuple(evictor for evictor in evictors if evictor is not None)
        if self._rules is not None:
            metrics.rules.set(self._rules.count)

    def of(self, names: tuple[str, ...]) -> Mapping[str, RungProtocol]:
        """The rungs of one ladder; a built-in one that is not configured is not among them."""
        return {**{name: self._built_in[name] for name in names if name in self._built_in}, **self._models.of(names)}

    async def start(self) -> None:
        """Start what the rungs run beside the loop.

        Raises:
            SetupError: the semantic cache's encoder is not here or cannot be loaded.
        """
        for rung in (self._rules, self._cache, self._semantic):
            if rung is not None:
                await rung.start()

    async def stop(self) -> None:
        """Stop it, in reverse; also what a start that failed has left."""
        for rung in (self._semantic, self._cache, self._rules):
            if rung is not None:
                await rung.stop()

    def forget(self) -> None:
        """A person is to be forgotten: what was said to them may have told of them, so all kept answers go, and are made anew when they are asked for."""
        for cache in (self._cache, self._semantic):
            if cache is not None:
                cache.forget()

    def tick(self) -> None:
        """Set the gauges."""
        if self._cache is not None:
            self._metrics.cache_entries.set(self._cache.entries)
            self._metrics.cache_bytes.set(self._cache.size_bytes)
            if self._cache.is_shared:
                self._metrics.set_cache_shared(self._cache.shared_up)
        if self._semantic is not None:
            self._metrics.semantic_entries.set(self._semantic.entries)
            self._metrics.semantic_bytes.set(self._semantic.size_bytes)

    def _build_cache(self, settings: Settings, clock: Clock) -> CacheRung | None:
        """Nothing, unless some scenario keeps answers for a while."""
        kept_s = [settings.cache.ttl_s, *(scenario.cache.ttl_s or 0.0 for scenario in settings.scenarios.values())]
        if max(kept_s) <= 0:
            return None
        store = RedisStore(settings.cache.shared) if settings.cache.shared else None
        return CacheRung(settings, self._model_in_place, clock, store=store, count=self._metrics.observe_cache)

    def _build_semantic(self, settings: Settings, clock: Clock) -> SemanticCacheRung | None:
        """Nothing, unless some scenario has opted in."""
        if all(scenario.semantic_cache.threshold is None for scenario in settings.scenarios.values()):
            return None
        from agents.semantic.rung import SemanticCacheRung  # noqa: PLC0415  # with it comes numpy, which a worker without this cache does not wait for

        metrics = self._metrics
        return SemanticCacheRung(settings, self._model_in_place, clock, count=metrics.observe_semantic, observe=metrics.semantic_seconds.observe)

    def _model_in_place(self, name: str) -> ModelRef | None:
        """What a `[[models]]` entry runs now."""
        engine = self._engines.get(name)
        if engine is None:
            return None
        status = engine.status()[0]
        return ModelRef(status.model, status.version)


class _SemanticEvictor:
    """The semantic cache as feedback sees it."""

    name = "semantic_cache"

    def __init__(self, rung: SemanticCacheRung) -> None:
        self._rung = rung

    def evict(self, tenant: str, session_id: str, event_id: str) -> bool:
        """See `SemanticCacheRung.evict`."""
        return self._rung.evict(event_id, tenant, session_id) > 0
