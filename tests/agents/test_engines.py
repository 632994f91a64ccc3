"""Engines together: in which order they start."""

from __future__ import annotations

import msgspec

from agents.engines import start_engines
from agents.runtime.cpus import available_cores
from agents.runtime.supervisor import Engine, EngineStatus, NoHooks
from tests.agents.runtime.engines import scripted_spec
from tests.support import run


class Order(NoHooks):
    """Who was in which state, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def on_state(self, status: EngineStatus) -> None:
        """Keep it."""
        self.seen.append((status.name, status.state))


def started(cpus: dict[str, tuple[int, ...] | None]) -> list[tuple[str, str]]:
    """What happened while engines on these cores started."""
    order = Order()
    engines = [Engine([msgspec.structs.replace(scripted_spec(name=name), cpus=cores)], order) for name, cores in cpus.items()]

    async def starting() -> list[tuple[str, str]]:
        try:
            await start_engines(engines)
            return list(order.seen)
        finally:
            for engine in engines:
                await engine.stop()

    return run(starting())


def test_engines_that_share_a_core_start_one_after_the_other() -> None:
    """The second one begins when the first is warm: neither measures the other's load."""
    core = available_cores().ids[:1]
    assert started({"a": core, "b": core}) == [("a", "starting"), ("a", "ready"), ("b", "starting"), ("b", "ready")]


def test_engines_that_share_no_core_start_together() -> None:
    """Nobody waits for one that is not in its way."""
    seen = started({"a": None, "b": None})
    assert seen[:2] == [("a", "starting"), ("b", "starting")]
