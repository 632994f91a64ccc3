"""The bytes of a response: what it says of its own time, without Kafka."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agents.answers import Stamps, fix_response
from agents.deadlines import compute_deadline
from agents.ladder import Given
from agents.lines import Inflight
from schemas.deadline import ManualClock
from schemas.events import InteractionEvent
from schemas.settings import DeadlineSection, Limits
from streams.partitions import Partition
from tests.support import run


def fixed_after(elapsed_s: float, *, reserve_s: float = 0.05, jump_ms: float = 0.0, occurred_at_ms: int | None = None) -> dict[str, Any]:
    """The response to an event with 300 ms, its bytes fixed `elapsed_s` after its arrival."""

    async def scenario() -> dict[str, Any]:
        clock = ManualClock()
        event = InteractionEvent(event_id="e", session_id="s", text="t", deadline_ms=300.0, occurred_at_ms=occurred_at_ms)
        arrived, wall_ms = clock.monotonic(), clock.wall_ms()
        deadline = compute_deadline(event, record_ms=-1, arrived=arrived, arrived_wall_ms=wall_ms, section=DeadlineSection())
        source = SimpleNamespace(message=SimpleNamespace(offset=0))
        inflight = Inflight(source, event, deadline, session=("default", "s"), partition=Partition(0, 0))
        clock.advance(elapsed_s)
        clock.jump_wall(jump_ms)
        fixed = fix_response(inflight, event, Given("default", "t"), (), Stamps(inflight), clock=clock, reserve_s=reserve_s, limits=Limits())
        body: dict[str, Any] = msgspec.msgpack.decode(fixed.record.value)
        return body

    return run(scenario())


@pytest.mark.parametrize("elapsed_s", [0.0, 0.249, 0.2496, 0.25, 0.2504, 0.251, 0.3, 1.0])
def test_met_is_what_its_own_figures_say(elapsed_s: float) -> None:
    """`answered_at_ms` plus the reserve against `due_at_ms`, to the millisecond: who reads the record can check it."""
    deadline = fixed_after(elapsed_s)["deadline"]
    assert deadline["met"] == (deadline["answered_at_ms"] + 50 <= deadline["due_at_ms"])


@pytest.mark.parametrize("jump_ms", [-86_400_000.0, 86_400_000.0])
def test_a_clock_that_is_set_changes_nothing_on_the_way(jump_ms: float) -> None:
    """Due and answer are told on one clock, made monotonic on arrival."""
    assert fixed_after(0.1, jump_ms=jump_ms)["deadline"] == fixed_after(0.1)["deadline"]


@pytest.mark.parametrize("occurred_at_ms", [0, -(2**63), 4_070_908_800_000])
def test_any_stamp_gives_the_moment_of_the_answer(occurred_at_ms: int) -> None:
    """Stamps from 1970, from before time and from 2099 leave `answered_at_ms` where it is."""
    assert fixed_after(0.1, occurred_at_ms=occurred_at_ms)["deadline"]["answered_at_ms"] == ManualClock().wall_ms() + 100
