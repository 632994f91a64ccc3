"""Which partitions this worker holds, each with its tracker, and whether it may still publish for them.

A `Partition` object lives for one assignment: work that outlives a revocation holds a dead one and cannot publish.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from streams.offsets import OffsetTracker


def boot_clock() -> float:
    """Seconds since boot, suspended time included: a laptop or VM that slept has lost its session too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Partition:
    """One assignment of one partition of `interactions`."""

    def __init__(self, number: int, start: int, committed: int | None = None, on_release: Callable[[], None] | None = None) -> None:
        self.number = number
        self.tracker = OffsetTracker(start, committed)
        self.owned = True
        self.last_progress = time.monotonic()
        self._on_release = on_release

    def release(self, offset: int) -> None:
        """The one place where an offset is released (law 6)."""
        self.tracker.release(offset)
        if self._on_release is not None:
            self._on_release()


SESSIONS_WATCHED = 32_768
"""Sessions whose partition is remembered, twice over: some 6 MB at worst. A session that comes back after so many others is not compared."""


class SessionPlaces:
    """On which partition each recent session was last seen: its state is on that one, so another one has half a conversation."""

    def __init__(self, size: int = SESSIONS_WATCHED) -> None:
        self._size = size
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def move(self, session: tuple[str, str], partition: int) -> int | None:
        """Note where a session is; the partition it was on before when that is another one."""
        key = hash(session)
        before = self._young.get(key)
        if before is None:
            before = self._old.get(key)
            if len(self._young) >= self._size:
                self._old, self._young = self._young, {}
        self._young[key] = partition
        return before if before is not None and before != partition else None


class PartitionBoard:
    """All partitions held now, and when the group coordinator last confirmed that they are ours."""

    def __init__(self, *, session_timeout_s: float, clock: Callable[[], float] = boot_clock) -> None:
        self._held: dict[int, Partition] = {}
        self._clock = clock
        self._fresh_for = max(session_timeout_s - 1.0, 0.5)
        """A heartbeat older than the session time-out less 1 s proves nothing: another worker may own the partition soon."""
        self._confirmed_at = clock()
        self._fresh = asyncio.Event()
        self.on_release: Callable[[], None] = lambda: None
        """Called when a record has its end, or its partition has gone: fewer are running."""
        self._places = SessionPlaces()
        self.on_split: Callable[[tuple[str, str], int, int], None] = lambda _session, _before, _now: None
        """Called with a session, where it was, and where it is now."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._held.values())

    def get(self, number: int) -> Partition | None:
        """The partition's current assignment, if it is ours."""
        return self._held.get(number)

    def numbers(self) -> tuple[int, ...]:
        """Numbers of the partitions held, sorted."""
        return tuple(sorted(self._held))

    @property
    def running(self) -> int:
        """Records taken and not yet released, of all partitions held."""
        return sum(partition.tracker.running for partition in self._held.values())

    def begin(self, number: int, start: int, committed: int | None = None) -> Partition:
        """A partition was assigned and is read from `start`, which is also what is committed unless told otherwise."""
        partition = self._held[number] = Partition(number, start, committed, self._released)
        return partition

    def _released(self) -> None:
        self.on_release()

    def end(self, numbers: Iterable[int]) -> None:
        """Partitions were revoked: nothing is published for them any more."""
        for number in numbers:
            partition = self._held.pop(number, None)
            if partition is not None:
                partition.owned = False
        self.on_release()

    def note_session(self, session: tuple[str, str], partition: int) -> None:
        """An event of this session (tenant, id) was read from `partition`."""
        before = self._places.move(session, partition)
        if before is not None:
            self.on_split(session, before, partition)

    def confirm(self, at: float | None = None) -> None:
        """The coordinator has accepted a heartbeat that was sent at `at` (seconds since boot), or a join just now."""
        self._confirmed_at = max(self._confirmed_at, self._clock() if at is None else at)
        self._fresh.set()

    def is_fresh(self) -> bool:
        """Whether the last confirmation is young enough to publish on."""
        return self._clock() - self._confirmed_at < self._fresh_for

    async def may_publish(self, partition: Partition) -> bool:
        """Whether a response for `partition` may leave; waits while the last confirmation is too old.

        Returns False once the partition is revoked: its next owner answers the event.
        """
        while partition.owned and not self.is_fresh():
            self._fresh.clear()
            try:
                await asyncio.wait_for(self._fresh.wait(), timeout=0.1)
            except TimeoutError:
                continue
        return partition.owned
