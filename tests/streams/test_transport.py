"""How fetched records reach the agent, without a broker; reading, seeking and committing are in `live`."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from faust.types import TP

from streams.transport import FETCHES_AHEAD, AnswerConsumer, Delivered, Handover, Record
from tests.support import run


def _fetch(first: int, count: int) -> list[Delivered]:
    return [Delivered(Record("interactions", 0, offset, None, b"", (), None, 0.0)) for offset in range(first, first + count)]


def test_records_come_out_one_by_one_in_the_order_of_their_fetches() -> None:
    """The agent sees every record of every fetch, in order."""

    async def scene() -> None:
        handover = Handover()
        await handover.put(_fetch(0, 3))
        await handover.put(_fetch(3, 2))
        seen = []
        async with aclosing(handover.records()) as records:
            async for delivered in records:
                seen.append(delivered.message.offset)
                if len(seen) == 5:
                    break
        assert seen == [0, 1, 2, 3, 4]

    run(scene())


def test_a_consumer_waits_for_an_agent_that_is_behind() -> None:
    """No more than a few fetches pile up: what is read beyond them stays with the broker's client."""

    async def scene() -> None:
        handover = Handover()
        for number in range(FETCHES_AHEAD):
            assert not handover.full
            await handover.put(_fetch(number, 1))
        assert handover.full
        putting = asyncio.create_task(handover.put(_fetch(9, 1)))
        await asyncio.sleep(0)
        assert not putting.done()
        async with aclosing(handover.records()) as records:
            assert (await anext(records)).message.offset == 0
            await putting

    run(scene())


def test_idle_partitions_are_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """Faust's own watch says nothing of a changelog that is not fetched on purpose, however long it lasts."""
    AnswerConsumer.verify_event_path(object(), 1e9, TP("answerby-sessions-changelog", 0))  # type: ignore[arg-type]  # it looks at nothing
    assert not caplog.records
