"""Law 6 without Kafka: changelog, then response, then offset; and nothing of it once the partition belongs to another worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from agents.deadlines import PER_EVENT_S, FixedReserve
from tests.agents.intake import RESERVE_MS, Intake, turns
from tests.support import run


def scenario(body: Callable[[Intake], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario over one held partition."""

    async def wrapped() -> None:
        async with Intake() as intake:
            await body(intake)
            assert intake.crashes == []

    run(wrapped())


@pytest.mark.parametrize("late", [False, True], ids=["fresh", "expired"])
def test_a_response_waits_for_the_changelog_and_the_offset_for_both(late: bool) -> None:
    """Until the broker has the session and the answer, nothing leaves and nothing may be committed."""

    async def body(intake: Intake) -> None:
        intake.publisher.open.clear()
        intake.feed("a", late=late)
        await turns()
        assert intake.said == []
        assert intake.partition.tracker.committable() is None
        intake.publisher.open.set()
        await intake.until_released()
        assert intake.said == ["a"]
        assert intake.partition.tracker.committable() == 1

    scenario(body)


@pytest.mark.parametrize("late", [False, True], ids=["fresh", "expired"])
def test_nothing_is_said_for_a_partition_that_was_lost_meanwhile(late: bool) -> None:
    """What waited for the changelog when the partition went is left, unreleased, to its next owner."""

    async def body(intake: Intake) -> None:
        intake.publisher.open.clear()
        intake.feed("a", late=late)
        await turns()
        intake.board.end([0])
        intake.publisher.open.set()
        await turns()
        assert intake.said == []
        assert intake.partition.tracker.committable() is None

    scenario(body)


def test_no_dead_letter_for_a_partition_that_was_lost() -> None:
    """A record that is no event is its next owner's too."""

    async def body(intake: Intake) -> None:
        source = intake.source(value=b"\xc1")
        intake.responder.accept(source)
        intake.board.end([0])
        await turns()
        assert intake.publisher.dead == []
        assert intake.partition.tracker.committable() is None

    scenario(body)


def test_the_next_event_reads_what_is_staged_and_leaves_after_it() -> None:
    """A session does not stand still while the changelog is written, and its order holds."""

    async def body(intake: Intake) -> None:
        intake.publisher.open.clear()
        intake.feed("a")
        intake.feed("b")
        intake.feed("c", session="other")
        await turns()
        assert intake.said == []
        intake.publisher.open.set()
        await intake.until_released()
        said = intake.said
        assert sorted(said) == ["a", "b", "c"]
        assert said.index("a") < said.index("b")
        assert intake.partition.tracker.committable() == 3

    scenario(body)


def test_a_repeat_has_the_same_bytes_and_a_conflict_none() -> None:
    """The same event is said twice alike; another one under its id is put aside."""

    async def body(intake: Intake) -> None:
        intake.feed("a")
        await intake.until_released()
        intake.feed("a")
        conflict = intake.feed("a", text="other")
        await intake.until_released()
        assert intake.said == ["a", "a"]
        assert msgspec.msgpack.encode(intake.publisher.said[0]) == msgspec.msgpack.encode(intake.publisher.said[1])
        assert [(offset, verdict.reason) for offset, verdict in intake.publisher.dead] == [(conflict, "conflict")]
        assert intake.partition.tracker.committable() == 3

    scenario(body)


def test_what_is_audited_names_no_text() -> None:
    """A refusal is recorded with who and why, and not with what was said."""

    async def body(intake: Intake) -> None:
        intake.feed("a", text="secret words", consent={"ai_reply": False})
        await intake.until_released()
        (audit,) = intake.publisher.audits
        assert (audit.action, audit.event_id, audit.reason) == ("refused", "a", "no_consent")
        assert b"secret" not in msgspec.msgpack.encode(audit)

    scenario(body)


def test_a_burst_does_not_lengthen_the_reserve_by_its_own_length() -> None:
    """Of a publish that shared the worker with others the reserve hears what it would have taken alone."""

    class Noted(FixedReserve):
        def note(self, seconds: float) -> None:
            noted.append(seconds)

    noted: list[float] = []

    async def body(intake: Intake) -> None:
        intake.settler._reserve = Noted(RESERVE_MS)
        intake.publisher.open.clear()
        for number in range(21):
            intake.feed(str(number), session=str(number))
        await turns()
        await asyncio.sleep(20 * PER_EVENT_S)  # so that a publish takes longer than the share that is left out
        intake.publisher.open.set()
        await intake.until_released()
        measured = intake.metrics.registry.get_sample_value("answerby_stage_seconds_sum", {"stage": "publish"})
        assert measured is not None
        assert len(noted) == 21
        assert measured - sum(noted) >= 21 * 10 * PER_EVENT_S - 1e-6

    scenario(body)
