"""What a publisher promises about acknowledgements, without a broker; writing itself is in `live`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError

from streams.publish import WriteError, _when_acknowledged
from tests.support import run


def _handed(count: int) -> list[asyncio.Future[Any]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


def test_it_is_done_when_the_last_of_all_records_is_acknowledged() -> None:
    """Law 6 waits for every record of an event, in whatever order their acknowledgements come, and hears each one's offset."""

    async def scene() -> None:
        handed = _handed(3)
        noted: list[tuple[int, int]] = []
        done = _when_acknowledged(handed, lambda index, offset: noted.append((index, offset)))
        for index in (2, 0, 1):
            assert not done.done()
            handed[index].set_result(SimpleNamespace(offset=10 + index))
            await asyncio.sleep(0)
        await done
        assert sorted(noted) == [(0, 10), (1, 11), (2, 12)]

    run(scene())


def test_a_record_that_kafka_does_not_take_fails_the_whole() -> None:
    """One refused record is reported as the product's own error, whatever became of the others."""

    async def scene() -> None:
        handed = _handed(2)
        done = _when_acknowledged(handed)
        handed[1].set_result(SimpleNamespace(offset=1))
        handed[0].set_exception(KafkaTimeoutError())
        with pytest.raises(WriteError, match="check the broker"):
            await done

    run(scene())


def test_who_stops_waiting_takes_no_record_back() -> None:
    """A waiter that is cancelled leaves the records with the client, which answers for them alone."""

    async def scene() -> None:
        handed = _handed(1)

        async def wait() -> None:
            await _when_acknowledged(handed)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert not handed[0].cancelled()
        handed[0].set_result(SimpleNamespace(offset=0))
        await asyncio.sleep(0)

    run(scene())
