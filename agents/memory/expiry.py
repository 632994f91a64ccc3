"""Erases what has not been used for too long, or is too much, a slice at a time and in the changelogs too; how much there is counts `streams.ledger`.

The one clock is that of the worker at its last write to the session (its wall clock, which the changelog's records carry), so that neither the
replay of an old log nor an event from the future makes anybody's session older or younger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec
import structlog

from schemas.deadline import Clock
from schemas.settings_memory import Memory
from streams.ledger import TABLES
from streams.tables import ChangelogRecord, Place

if TYPE_CHECKING:
    from agents.memory.persons import Persons
    from agents.store import SessionStore
    from schemas.session import TableName
    from streams.partitions import Partition, PartitionBoard
    from streams.publish import Publisher
    from streams.tables import TableSet

log = structlog.get_logger(__name__)

PERIOD_S = 0.5
"""Between looks at what is old: it is erased so much later at most, while nothing is behind."""

SLICE_S = 0.002
"""Work on the loop in one piece: an event that waits for it loses no more than that (law 4 allows 5 ms)."""

SLICE_SESSIONS = 32
"""Sessions erased before the changelog's acknowledgement is awaited; each is up to `session.answers_kept` records."""

SIZE_STEP = 8
"""Sessions considered at once when it is bytes that are too many, since how many have to go is not known: the order between partitions is kept to within
so many, and so many go in each slice."""

PAUSE_S = 0.01
"""Between slices while there is more: answers go first, and still some thousand sessions a second are erased."""

GRACE_S = 60.0
"""How long counts outlive their partition: in a rebalance all are given up for a moment, and those that stay are not read again. A count
that is out of date erases nothing: what it names is gone, or was noted anew."""

Why = Literal["age", "size", "person"]


class _Used(msgspec.Struct):
    """Of an index, when its session was used."""

    touched_ms: int = 0


class Expiry:
    """One worker's; `run` until cancelled."""

    def __init__(  # noqa: PLR0913  # wired in one place, and it needs them all
        self,
        *,
        tables: TableSet,
        store: SessionStore,
        persons: Persons,
        publisher: Publisher,
        board: PartitionBoard,
        settings: Memory,
        clock: Clock,
        recovered: Callable[[], bool],
        on_erase: Callable[[Why], None],
    ) -> None:
        self._tables = tables
        self._store = store
        self._persons = persons
        self._publisher = publisher
        self._board = board
        self._settings = settings
        self._clock = clock
        self._recovered = recovered
        self._on_erase = on_erase
        self._counted: dict[int, Partition] = {}
        self._held_at: dict[int, float] = {}
        """When each partition was last ours, in monotonic seconds."""
        self._scrubbing: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        """Erase what is to be erased, and look again."""
        while True:
            more = self._recovered() and await self.sweep()
            await asyncio.sleep(PAUSE_S if more else PERIOD_S)

    async def sweep(self) -> bool:
        """One slice of each partition; whether there may be more."""
        numbers = self._board.numbers()
        self._tables.ledger.keep_only(self._lately_held(numbers))
        more = self._tables.ledger.letting_go
        last_ms = self._last_to_go_ms(numbers)
        for number in numbers:
            partition = self._board.get(number)
            if partition is None:
                continue
            if self._tables.persistent and self._counted.get(number) is not partition:
                await self._count(partition)
            more |= await self._sweep_partition(partition, last_ms)
        if 0 in numbers:  # every worker holds all persons; one of them writes
            more |= await self._sweep_persons()
        return more

    def _lately_held(self, numbers: tuple[int, ...]) -> list[int]:
        now = self._clock.monotonic()
        for number in self._tables.ledger.partitions():
            self._held_at.setdefault(number, now)
        self._held_at.update(dict.fromkeys(numbers, now))
        self._held_at = {number: at for number, at in self._held_at.items() if now - at <= GRACE_S}
        return list(self._held_at)

    def scrub(self) -> None:
        """In the background: a persistent store drops erased bytes from its files as well, at once."""
        if self._tables.persistent:
            work = asyncio.ensure_future(asyncio.to_thread(self._tables.scrub))
            self._scrubbing.add(work)
            work.add_done_callback(self._scrubbed)

    def _scrubbed(self, work: asyncio.Future[None]) -> None:
        self._scrubbing.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            log.warning("erased bytes may stand in the store's files until it compacts them by itself", error=repr(error))

    async def _count(self, partition: Partition) -> None:
        """A persistent store is not read by recovery, so it is counted, slice by slice; the indexes first, since they know when."""
        for table in reversed(TABLES):
            await self._count_table(partition, table)
        self._counted[partition.number] = partition

    async def _count_table(self, partition: Partition, table: TableName) -> None:
        after: bytes | None = None
        while partition.owned:
            after = self._tables.count_stored(partition.number, table, after, _used_ms, self._clock.wall_ms())
            if after is None:
                return
            await asyncio.sleep(0)

    def _last_to_go_ms(self, numbers: tuple[int, ...]) -> int:
        """Up to which time sessions go when there are too many, over all partitions: or the first one swept would pay for all."""
        ledger = self._tables.ledger
        used = sorted(used_ms for number in numbers for _, used_ms in ledger.oldest(number, SLICE_SESSIONS))
        over = ledger.sessions(numbers) - self._settings.max_sessions
        count = min(over if over > 0 else SIZE_STEP, len(used))
        return used[count - 1] if used else 0

    async def _sweep_partition(self, partition: Partition, last_ms: int) -> bool:
        staged, more = self._stage(partition, last_ms)
        if staged:
            await (await self._publisher.write_ahead(staged, self._tables, partition))
        return more

    def _stage(self, partition: Partition, last_ms: int) -> tuple[list[ChangelogRecord], bool]:
        ledger, settings, place = self._tables.ledger, self._settings, Place(partition.number)
        if not partition.owned or not self._board.is_fresh():
            return [], False
        now_ms, numbers = self._clock.wall_ms(), self._board.numbers()
        ends = time.monotonic() + SLICE_S
        staged: list[ChangelogRecord] = []
        for key, used_ms in sorted(ledger.oldest(partition.number, SLICE_SESSIONS), key=lambda one: one[1]):
            too_old = min(used_ms, now_ms) < now_ms - settings.session_ttl_s * 1000
            held = sum(ledger.size(table, numbers) for table in TABLES)
            too_many = ledger.sessions(numbers) > settings.max_sessions or held > settings.max_bytes
            if not (too_old or (too_many and used_ms <= last_ms)) or not self._store.may_erase(key, place, partition.tracker):
                return staged, False
            staged += self._store.stage_erase(key, place)
            self._on_erase("age" if too_old else "size")
            if time.monotonic() > ends:
                return staged, True
        return staged, len(staged) > 0

    async def _sweep_persons(self) -> bool:
        partition = self._board.get(0)
        found = self._persons.expired(self._clock.wall_ms(), SLICE_SESSIONS)
        if partition is None or not found or not self._board.is_fresh():
            return False
        staged = [record for one in found for record in self._persons.stage_forget(*one)]
        for _ in found:
            self._on_erase("person")
        await (await self._publisher.write_ahead(staged, self._tables, partition))
        return True


def _used_ms(value: bytes) -> int:
    """0 for values of older releases, which did not say: those count as used when they are first seen."""
    try:
        return msgspec.msgpack.decode(value, type=_Used).touched_ms
    except msgspec.MsgspecError:
        return 0
