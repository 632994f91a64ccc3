"""Intake and hand-over of one partition without Kafka: order, bounds, and faults that stay with their event; the worker on a real broker is in `live`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents.lines import Inflight
from schemas.events import InteractionEvent
from schemas.settings import Limits, Settings
from tests.agents.intake import Intake, turns
from tests.support import run


def test_a_backlog_of_expired_events_alone_does_not_stop_the_intake() -> None:
    """When all that filled the room was expired, the lane's progress makes room again."""

    async def scenario() -> None:
        async with Intake(Settings(limits=Limits(in_flight=16))) as intake:
            left = 200

            async def records() -> AsyncIterator[Any]:
                for number in range(left):
                    yield _late(intake, number)

            async with asyncio.timeout(20):
                await intake.responder.run(records())
            await intake.until_released()
            assert len(intake.said) == left

    run(scenario())


def _late(intake: Intake, number: int) -> Any:
    value = b'{"event_id":"e%d","session_id":"s%d","text":"t","deadline_ms":-1}' % (number, number)
    return intake.source(value=value)


def test_events_that_wait_for_their_turn_count_as_in_flight() -> None:
    """A session with one slow answer cannot fill the memory with those behind it."""

    async def scenario() -> None:
        async with Intake(Settings(limits=Limits(in_flight=16))) as intake:
            intake.rung.open.clear()
            taken = 0

            async def records() -> AsyncIterator[Any]:
                nonlocal taken
                for number in range(100):
                    taken += 1
                    yield intake.source(value=b'{"event_id":"e%d","session_id":"s","text":"t","deadline_ms":30000}' % number)

            reading = asyncio.create_task(intake.responder.run(records()))
            await turns(300)
            assert taken <= 16 + 8
            intake.rung.open.set()
            async with asyncio.timeout(20):
                await reading
            await intake.until_released()
            assert len(intake.said) == 100

    run(scenario())


def test_a_fault_with_one_expired_event_stays_with_it() -> None:
    """A bug in the short lane is one dead letter, `internal`; its neighbours in the batch and later ones are answered."""

    async def scenario() -> None:
        async with Intake() as intake:
            decide = intake.decider.expired

            def faulty(inflight: Inflight, event: InteractionEvent) -> Any:
                if event.event_id == "bad":
                    raise ValueError(event.event_id)
                return decide(inflight, event)

            intake.decider.expired = faulty  # type: ignore[method-assign]
            intake.feed("before", late=True)
            bad = intake.feed("bad", late=True)
            intake.feed("after", late=True)
            await intake.until_released()
            assert intake.crashes == []
            assert [(offset, verdict.reason) for offset, verdict in intake.publisher.dead] == [(bad, "internal")]
            assert intake.said == ["before", "after"]

    run(scenario())


def test_a_fault_after_the_response_has_left_holds_no_offset() -> None:
    """The record has its one end already: no dead letter, and later commits are not held back."""

    async def scenario() -> None:
        async with Intake() as intake:

            def faulty(*_: Any) -> None:
                raise ValueError

            intake.settler._record = faulty  # type: ignore[method-assign,assignment]
            intake.feed("a")
            intake.feed("b", late=True, session="other")
            await intake.until_released()
            assert sorted(intake.said) == ["a", "b"]
            assert (intake.publisher.dead, intake.crashes) == ([], [])

    run(scenario())


@pytest.mark.parametrize("late", [False, True], ids=["fresh", "expired"])
def test_no_response_overtakes_one_across_a_record_that_gets_none(late: bool) -> None:
    """A conflict or a tombstone between two events of a session ends before the first one's response has left; the second still follows the first."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("known")
            await intake.until_released()
            intake.publisher.open.clear()
            write_ahead, calls = intake.publisher.write_ahead, 0

            async def first_is_slow(records: Any, tables: Any, partition: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == 1:
                    return await write_ahead(records, tables, partition)
                return asyncio.sleep(0)

            intake.publisher.write_ahead = first_is_slow  # type: ignore[method-assign,assignment]
            intake.feed("first", late=late)
            await turns()
            intake.feed("known", text="another meaning", late=late)
            await turns()
            intake.responder.accept(intake.source(key=b"s"))
            await turns()
            intake.feed("second")
            await turns(100)
            assert "second" not in intake.said
            intake.publisher.open.set()
            await intake.until_released()
            assert intake.said == ["known", "first", "second"]
            assert [verdict.reason for _, verdict in intake.publisher.dead] == ["conflict"]

    run(scenario())


@pytest.mark.parametrize("tenant", [b"", b"t" * 129, b"\xff"], ids=["empty", "long", "not utf-8"])
def test_a_tombstone_whose_tenant_cannot_be_one_is_a_dead_letter(tenant: bytes) -> None:
    """Whatever a header holds ends up in no key and no audit record, where it could be too large to write."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.responder.accept(intake.source(key=b"s", headers=(("answerby.tenant", tenant),)))
            await intake.until_released()
            assert [verdict.reason for _, verdict in intake.publisher.dead] == ["invalid_field"]
            assert intake.publisher.audits == []

    run(scenario())


def test_a_hand_over_finishes_all_that_is_due_within_it() -> None:
    """Events that wait behind the head of their line have their turn too, as long as there is time."""

    async def scenario() -> None:
        async with Intake() as intake:
            for number in range(10):
                intake.feed(f"e{number}", deadline_ms=5000.0)
            await intake.responder.drain(10.0)
            assert intake.said == [f"e{number}" for number in range(10)]
            assert intake.partition.tracker.running == 0

    run(scenario())


def test_nothing_behind_an_abandoned_event_leaves_before_it() -> None:
    """What is left to the next owner is left with all that follows in its session: an expired event, a tombstone, an acknowledgement."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.rung.open.clear()
            intake.feed("slow")
            intake.feed("late", late=True)
            intake.responder.accept(intake.source(key=b"s"))
            intake.feed("noted", kind="context", late=True)
            intake.feed("elsewhere", session="other", late=True)
            await turns()
            await intake.responder.drain(1.0)
            assert intake.said == ["elsewhere"]
            assert intake.publisher.audits == []
            assert intake.partition.tracker.running == 4
            assert len(intake.responder.lines) == 0

    run(scenario())


def test_a_hand_over_leaves_what_is_not_due_within_it() -> None:
    """It does not wait for a slow answer that has time: the next owner gives it."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.rung.open.clear()
            intake.feed("slow")
            async with asyncio.timeout(5):
                await intake.responder.drain(10.0)
            assert intake.said == []
            assert intake.partition.tracker.committable() is None

    run(scenario())


def test_what_the_lane_takes_is_no_measure_of_a_publish() -> None:
    """Batches of expired events wait for each other; a reserve that learnt from them would take fresh events' time for minutes."""

    async def scenario() -> None:
        async with Intake() as intake:
            noted: list[float] = []
            intake.reserve.note = noted.append  # type: ignore[method-assign,assignment]
            intake.feed("late", late=True)
            intake.feed("fresh", session="other")
            await intake.until_released()
            assert len(noted) == 1

    run(scenario())


def test_what_is_written_while_records_wait_is_no_measure_of_a_publish() -> None:
    """In a burst everything takes as long as the loop needs for all of it; a reserve that learnt from that would take the time of events minutes later."""

    async def scenario() -> None:
        async with Intake() as intake:
            noted: list[float] = []
            intake.reserve.note = noted.append  # type: ignore[method-assign,assignment]
            for number in range(4):
                source = intake.source(value=b'{"event_id":"e%d","session_id":"s%d","text":"t","deadline_ms":30000}' % (number, number))
                source.message.time_in = time.monotonic() - 0.3
                intake.responder.accept(source)
            await intake.until_released()
            assert noted == []
            intake.feed("alone")
            await intake.until_released()
            assert len(noted) == 1

    run(scenario())


def test_the_first_of_a_burst_is_given_the_time_that_all_of_it_needs() -> None:
    """Its timer was set for one event and is set anew for many; what comes when it is quiet again has its whole time."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.rung.open.clear()
            intake.feed("first", session="first")
            (first,) = intake.responder._inflight
            alone = first.due - first.stop_at
            for number in range(100):
                intake.feed(f"e{number}", session=f"s{number}")
            assert first.due - first.stop_at > alone + 0.02
            intake.rung.open.set()
            await intake.until_released()
            for number in range(5):
                intake.feed(f"later{number}", session="later")
                await intake.until_released()
            intake.rung.open.clear()
            intake.feed("last", session="last")
            (last,) = intake.responder._inflight
            assert last.due - last.stop_at < alone + 0.002
            intake.rung.open.set()
            await intake.until_released()

    run(scenario())
