"""What a worker's figures tell of the store that workers share."""

from __future__ import annotations

import asyncio

from agents.rungs import Rungs
from schemas.deadline import SystemClock
from schemas.settings import parse_settings
from streams.metrics import LadderMetrics, Metrics, parse_exposition
from tests.agents.cache.conftest import Server
from tests.support import run

BOUND_S = 20.0
"""Generous: says only that something does not hang."""


def rungs_of(metrics: LadderMetrics, cache: dict[str, object]) -> Rungs:
    """Rungs without a model."""
    return Rungs(parse_settings({"ladder": {"rungs": ["cache", "default"]}, "cache": cache}), (), metrics, SystemClock())


def shared_up(metrics: Metrics) -> float | None:
    """What a scraper sees; None when nothing is exported."""
    return next((sample.value for sample in parse_exposition(metrics.render().decode()) if sample.name == "answerby_cache_shared_up"), None)


async def until(rungs: Rungs, metrics: Metrics, value: float) -> None:
    """Tick as the worker does until the figure is this one."""
    async with asyncio.timeout(BOUND_S):
        while shared_up(metrics) != value:
            await asyncio.sleep(0.01)
            rungs.tick()


def test_the_figures_tell_whether_the_shared_store_is_asked(own_valkey: Server) -> None:
    """0 before it has answered, 1 while it does."""

    async def going() -> None:
        metrics = Metrics()
        rungs = rungs_of(metrics.ladder, {"ttl_s": 60, "shared": own_valkey.url})
        rungs.tick()
        assert shared_up(metrics) == 0
        await rungs.start()
        await until(rungs, metrics, 1)
        await rungs.stop()
        await until(rungs, metrics, 0)

    run(going())


def test_a_worker_of_its_own_exports_nothing_of_a_shared_store() -> None:
    """A cache in memory alone has no store that could be down."""
    metrics = Metrics()
    rungs_of(metrics.ladder, {"ttl_s": 60}).tick()
    assert shared_up(metrics) is None
