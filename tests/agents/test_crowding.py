"""Events that wait for the worker itself: when it counts, what is left out then, and where the worker runs meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest

from agents.crowding import LASTING_S, RECORDS_BEHIND, Cores, Crowding
from agents.settle import LANE_WAIT_S
from tests.agents.intake import Intake, turns
from tests.support import run


class Clock:
    """Time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


def test_a_stall_is_no_crowd() -> None:
    """A few records that waited do not count, however long it was; so many in a row do, until the wait is over."""
    crowding = Crowding(0.05, Clock())
    for _ in range(RECORDS_BEHIND - 1):
        crowding.note(3.0)
    assert crowding.behind_s == 0.0
    crowding.note(0.02)
    crowding.note(3.0)
    assert crowding.behind_s == 0.0
    for _ in range(RECORDS_BEHIND):
        crowding.note(0.2)
    assert crowding.behind_s == pytest.approx(0.2)
    crowding.note(0.03)
    assert crowding.behind_s == pytest.approx(0.05)  # below the limit, and not calm yet
    crowding.note(0.005)
    assert crowding.behind_s == 0.0


def test_a_crowd_ends_when_nothing_comes_any_more() -> None:
    """The last record of a flood waited long, and must not keep the models shut for the next one, a minute later."""
    clock = Clock()
    crowding = Crowding(0.05, clock)
    for _ in range(RECORDS_BEHIND):
        crowding.note(0.4)
    assert crowding.behind_s > 0
    clock.now += 60
    assert crowding.behind_s == 0.0


def test_all_threads_spread_and_draw_back() -> None:
    """While it is crowded every thread of the worker may run on all its cores; seconds after it is over on the few again."""
    before = os.sched_getaffinity(0)
    few = {min(before)}
    started, ending, places = threading.Event(), threading.Event(), []

    def other() -> None:
        started.set()
        ending.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    assert started.wait(20)
    ident = thread.native_id
    assert ident is not None
    clock = Clock()
    try:
        cores = Cores(few, clock)
        for crowded, passes in ((False, 0.0), (True, 1.0), (False, 1.0), (False, Cores.CALM_S)):
            clock.now += passes
            cores.follow(crowded=crowded)
            places.append((os.sched_getaffinity(0), os.sched_getaffinity(ident)))
    finally:
        for number in (0, ident):
            os.sched_setaffinity(number, before)
        ending.set()
        thread.join(20)
    assert places == [(few, few), (before, before), (before, before), (few, few)]


def test_what_ran_out_of_time_inside_is_answered_as_late_without_gates_or_prompt() -> None:
    """A record whose due passed between the consumer and the agent takes the short lane: the default, reason `deadline`, and pulls nobody forward."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.rung.open.clear()
            intake.feed("first", deadline_ms=30_000.0)
            source = intake.source(value=b'{"event_id":"late","session_id":"other","text":"t","deadline_ms":200}')
            source.message.timestamp = time.time() - 0.2
            source.message.time_in = time.monotonic() - 0.15
            intake.responder.accept(source)
            intake.rung.open.set()
            await intake.until_released()
            (late,) = [response for response in intake.publisher.said if response["event_id"] == "late"]
            assert (late["outcome"], late["reason"]) == ("default", "deadline")
            assert late["rungs"] == [{"rung": "default", "verdict": "answered", "ms": 0.0, "why": "its time ran out while it waited in the worker"}]
            assert [question.event.event_id for question in intake.rung.asked] == ["first"]

    run(scenario())


def test_rungs_are_told_of_a_crowd() -> None:
    """Each event's question says how long events wait, so that a model rung can leave its engine alone."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("calm")
            await intake.until_released()
            for number in range(RECORDS_BEHIND + 1):
                source: Any = intake.source(value=b'{"event_id":"e%d","session_id":"s%d","text":"t","deadline_ms":30000}' % (number, number))
                source.message.time_in = time.monotonic() - 0.2
                intake.responder.accept(source)
            await intake.until_released()
            behind = {question.event.event_id: question.behind_s for question in intake.rung.asked}
            assert behind["calm"] == 0.0
            assert behind[f"e{RECORDS_BEHIND}"] >= 0.2

    run(scenario())


def test_a_flood_is_a_crowd_that_lasts() -> None:
    """A burst is over before anybody is put off for it."""
    clock = Clock()
    crowding = Crowding(0.05, clock)
    for number in range(RECORDS_BEHIND + 40):
        assert not crowding.lasts
        clock.now += 0.01
        crowding.note(0.2 if number else 0.0)
    clock.now += LASTING_S
    crowding.note(0.2)
    assert crowding.lasts
    crowding.note(0.001)
    assert not crowding.lasts


def test_in_a_flood_expired_events_wait_and_their_sessions_with_them() -> None:
    """Each of them would make another event late; sessions without one are answered at once, and when the flood is over everything leaves in order."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("late", session="unlucky", late=True)
            intake.feed("after", session="unlucky")
            intake.feed("lucky", session="lucky")
            flood(intake)
            await turns(200)
            assert "lucky" in intake.said
            assert not {"late", "after"} & set(intake.said)
            intake.crowding.note(0.0)
            await intake.until_released()
            assert [name for name in intake.said if name in ("late", "after")] == ["late", "after"]

    run(scenario())


def test_nobody_waits_longer_than_so_much_for_the_end_of_a_flood() -> None:
    """A flood that does not end is the load: then each expired event waits its time, and no longer, however many there are."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("late", session="unlucky", late=True)
            (late,) = intake.settler._expired._queue  # type: ignore[attr-defined]
            late.decoded_at -= LANE_WAIT_S
            flood(intake)
            await turns(50)
            assert intake.said == ["late"]

    run(scenario())


def test_who_hands_a_partition_over_does_not_wait_for_the_end_of_a_flood() -> None:
    """Expired events leave with the others before the partition is given up."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("late", session="unlucky", late=True)
            flood(intake)
            await turns(50)
            assert "late" not in intake.said
            await intake.responder.drain(10.0)
            assert "late" in intake.said

    run(scenario())


def test_what_waited_for_its_turn_until_it_was_late_takes_the_short_lane() -> None:
    """Behind a predecessor that took all of its time there is nothing left to decide."""

    async def scenario() -> None:
        async with Intake() as intake:
            intake.feed("late", session="unlucky", late=True)
            intake.feed("after", session="unlucky", deadline_ms=60.0)
            flood(intake)
            await asyncio.sleep(0.1)  # its time, which passes by itself
            intake.crowding.note(0.0)
            await intake.until_released()
            after = intake.publisher.said[-1]
            assert (after["event_id"], after["outcome"], after["reason"]) == ("after", "default", "deadline")
            assert after["rungs"][-1]["why"] == "its time ran out while it waited in the worker"
            assert intake.rung.asked == []

    run(scenario())


def flood(intake: Intake) -> None:
    """The worker has been behind for longer than a burst, with the records that it has just taken; the next one that did not wait ends it."""
    for _ in range(RECORDS_BEHIND):
        intake.crowding.note(0.3)
    intake.crowding._since -= 2 * LASTING_S
    assert intake.crowding.lasts
