"""Who may publish: ownership, and how old its proof may be."""

from __future__ import annotations

import asyncio

from streams.partitions import PartitionBoard, SessionPlaces


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


def test_a_session_on_another_partition_is_noticed_each_time_it_moves() -> None:
    """A session that stays is nobody's business; one that moves is told with where it was, and only so many are remembered."""
    board = PartitionBoard(session_timeout_s=6.0)
    moves: list[tuple[tuple[str, str], int, int]] = []
    board.on_split = lambda session, before, now: moves.append((session, before, now))
    one, other = ("default", "s1"), ("other", "s1")
    for session, partition in ((one, 0), (other, 1), (one, 0), (one, 2), (one, 2), (other, 1), (one, 0)):
        board.note_session(session, partition)
    assert moves == [(one, 0, 2), (one, 2, 0)]


def test_sessions_that_are_remembered_are_bounded() -> None:
    """The most recent ones are compared, those long gone are not, and no more than twice the size is held."""
    places = SessionPlaces(size=10)
    for number in range(100):
        assert places.move(("default", f"s{number}"), 0) is None
    assert places.move(("default", "s99"), 1) == 0
    assert places.move(("default", "s0"), 1) is None
    assert len(places._young) + len(places._old) <= 21
