"""Order within a session and dues pulled forward, without Kafka."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from agents.lines import Inflight, SessionLines
from schemas.deadline import Deadline
from schemas.events import InteractionEvent
from streams.partitions import Partition
from tests.support import run


class Rig:
    """Lines, and the events that reached the head of theirs, in order."""

    def __init__(self, lead_s: float = 0.0) -> None:
        self.begun: list[Inflight] = []
        self.lines = SessionLines(self.begun.append, lambda: lead_s)
        self._partition = Partition(0, 0)
        self._offset = 0

    def event(self, *, session: str = "s", due_s: float = 60.0, event_id: str | None = None, expired: bool = False, tombstone: bool = False) -> Inflight:
        """An event that is due in `due_s` seconds, not yet in its line."""
        now = time.monotonic()
        self._offset += 1
        deadline = Deadline(budget_ms=due_s * 1000, arrived=now, due=now + due_s, due_at_ms=0, expired=expired)
        interaction = None if tombstone else InteractionEvent(event_id=event_id or f"e{self._offset}", session_id=session, text="t")
        source: Any = SimpleNamespace(message=SimpleNamespace(offset=self._offset))
        return Inflight(source, interaction, deadline, session=("default", session), partition=self._partition)

    def join(self, **fields: Any) -> Inflight:
        """An event that has joined its line."""
        inflight = self.event(**fields)
        self.lines.join(inflight)
        return inflight


def scenario(body: Any) -> None:
    """Run a scenario on a loop of its own."""

    async def wrapped() -> None:
        rig = Rig()
        await body(rig)

    run(wrapped())


def test_one_session_goes_one_by_one_and_others_at_once() -> None:
    """The head begins; the next begins when it has left; another session's head does not wait."""

    async def body(rig: Rig) -> None:
        first, second, other = rig.join(), rig.join(), rig.join(session="other")
        assert rig.begun == [first, other]
        rig.lines.leave(first)
        assert rig.begun == [first, other, second]
        rig.lines.leave(other)
        rig.lines.leave(second)
        assert len(rig.lines) == 0

    scenario(body)


def test_an_event_that_leaves_from_the_middle_begins_nobody() -> None:
    """Only the head's leaving is the next one's turn; leaving twice changes nothing."""

    async def body(rig: Rig) -> None:
        first, second, third = rig.join(), rig.join(), rig.join()
        rig.lines.leave(second)
        rig.lines.leave(second)
        assert rig.begun == [first]
        rig.lines.leave(first)
        assert rig.begun == [first, third]

    scenario(body)


def test_a_response_waits_for_the_one_before_it_even_when_that_has_left_its_line() -> None:
    """An event leaves its line when it is staged; the next one that arrives then still hands its response over after it."""

    async def body(rig: Rig) -> None:
        first = rig.join()
        rig.lines.leave(first)
        second = rig.join()
        assert second.before is first.handed
        first.handed.set_result(None)
        second.handed.set_result(None)
        await asyncio.sleep(0)
        rig.lines.leave(second)
        assert rig.join().before is None

    scenario(body)


def test_a_later_due_pulls_nothing_and_an_earlier_one_pulls_all_before_it() -> None:
    """Every event before one that is due earlier is due then too, and notes it once."""

    async def body(rig: Rig) -> None:
        first, second = rig.join(due_s=10), rig.join(due_s=20)
        assert second.due > first.due
        third = rig.join(due_s=5)
        assert first.due == second.due == third.due
        assert [rung.why for rung in first.notes] == [rung.why for rung in second.notes] == ["pulled"]
        assert third.notes == []

    scenario(body)


@pytest.mark.parametrize("late", [{"expired": True, "due_s": -5}, {"tombstone": True, "due_s": 0}], ids=["expired", "tombstone"])
def test_what_has_no_time_of_its_own_pulls_nothing(late: dict[str, Any]) -> None:
    """An expired event and a tombstone wait their turn."""

    async def body(rig: Rig) -> None:
        first = rig.join(due_s=10)
        due = first.due
        rig.join(**late)
        assert first.due == due
        assert first.notes == []

    scenario(body)


def test_an_expired_event_is_not_pulled() -> None:
    """Its due has passed; a later event's is no reason to note anything."""

    async def body(rig: Rig) -> None:
        late = rig.join(due_s=-5, expired=True)
        rig.join(due_s=10)
        assert late.notes == []
        assert not late.stop.done()

    scenario(body)


def test_time_interrupts_an_event_its_lead_before_its_due() -> None:
    """With 60 s to go and a lead of 60 s, the interrupt comes at the next turn of the loop; without a lead it does not."""

    async def body(_: Rig) -> None:
        soon = Rig(lead_s=60.0).join(due_s=60)
        later = Rig().join(due_s=60)
        assert await soon.stop == "deadline"
        assert not later.stop.done()
        later.disarm()

    scenario(body)


def test_the_first_interrupt_wins() -> None:
    """What ended the work is the first cause, and the timer is forgotten with it."""

    async def body(rig: Rig) -> None:
        inflight = rig.join()
        inflight.interrupt("cancelled")
        inflight.interrupt("abandoned")
        inflight.arm(60.0)
        assert inflight.stop.result() == "cancelled"

    scenario(body)


def test_an_event_is_found_by_its_session_and_id() -> None:
    """Waiting or at the head, but not in another session and not when it has left; a tombstone has no id."""

    async def body(rig: Rig) -> None:
        first, second = rig.join(event_id="a"), rig.join(event_id="b")
        rig.join(tombstone=True)
        session = first.session
        assert rig.lines.find(session, "a") is first
        assert rig.lines.find(session, "b") is second
        assert rig.lines.find(("default", "other"), "a") is None
        rig.lines.leave(first)
        assert rig.lines.find(session, "a") is None

    scenario(body)
