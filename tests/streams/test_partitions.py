"""Who may publish: ownership, and how old its proof may be."""

from __future__ import annotations

import asyncio

from streams.partitions import PartitionBoard


class _Hand:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_published_for_a_revoked_partition() -> None:
    """Work that outlives a revocation learns that it may not publish, even when the number has come back."""

    async def scenario() -> tuple[bool, bool]:
        board = PartitionBoard(session_timeout_s=6.0, clock=_Hand())
        old = board.begin(3, 0)
        board.end([3])
        new = board.begin(3, 0)
        return await board.may_publish(old), await board.may_publish(new)

    assert asyncio.run(scenario()) == (False, True)


def test_old_confirmation_holds_publishing_until_a_fresh_one() -> None:
    """After a suspension longer than the session, a response waits for the next accepted heartbeat."""

    async def scenario() -> bool:
        hand = _Hand()
        board = PartitionBoard(session_timeout_s=6.0, clock=hand)
        partition = board.begin(0, 0)
        hand.now += 5.5
        waiting = asyncio.ensure_future(board.may_publish(partition))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        board.confirm()
        return await asyncio.wait_for(waiting, 2)

    assert asyncio.run(scenario())


def test_waiting_ends_when_the_partition_is_revoked() -> None:
    """A response that waits for proof of ownership is dropped once the partition has gone."""

    async def scenario() -> bool:
        hand = _Hand()
        board = PartitionBoard(session_timeout_s=6.0, clock=hand)
        partition = board.begin(0, 0)
        hand.now += 60
        waiting = asyncio.ensure_future(board.may_publish(partition))
        await asyncio.sleep(0)
        board.end([0])
        return await asyncio.wait_for(waiting, 2)

    assert not asyncio.run(scenario())
