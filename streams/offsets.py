"""Which offsets were taken, which are released, and what may be committed: pure bookkeeping, one tracker a partition.

Faust 0.15.3 may drop records around a seek and then count the hole as acknowledged (faust-streaming#216, #221). So
nothing here trusts the order of delivery: a jump forward is not processed but read again, and a hole is believed only
after the re-read has returned the same later record.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

NOT_COMMITTED = -1
"""The group has no offset for the partition yet: its start is committed too."""

Take: TypeAlias = "Taken | Known | SeekBack"


class Taken(msgspec.Struct, frozen=True):
    """The record is the next one: answer it, then release its offset."""


class Known(msgspec.Struct, frozen=True):
    """The record was taken before, is below the start, or waits behind a hole: drop it."""

    why: Literal["before", "hole"]


class SeekBack(msgspec.Struct, frozen=True):
    """Records between `offset` and this one were not seen: read again from `offset`."""

    offset: int


class OffsetTracker:
    """Takes offsets in order, releases them in any order, commits without ever passing one that still runs."""

    def __init__(self, start: int, committed: int | None = None) -> None:
        self._expected = start
        self._running: set[int] = set()
        self._committed = start if committed is None else committed
        self._hole_end: int | None = None

    @property
    def expected(self) -> int:
        """The next offset that was not taken yet."""
        return self._expected

    @property
    def running(self) -> int:
        """How many offsets were taken and not released."""
        return len(self._running)

    @property
    def committed(self) -> int:
        """What the broker was last told: records below it are never delivered again."""
        return self._committed

    def take(self, offset: int) -> Take:
        """Decide what to do with a delivered record.

        Records fetched before a seek took effect still arrive after it, with ever higher offsets; the re-read is
        known by its first record, which is the one that showed the hole or an earlier one.
        """
        if offset < self._expected:
            return Known("before")
        if offset > self._expected and offset != self._hole_end:
            if self._hole_end is not None and offset > self._hole_end:
                return Known("hole")
            self._hole_end = offset
            return SeekBack(self._expected)
        self._running.add(offset)
        self._expected = offset + 1
        self._hole_end = None
        return Taken()

    def skip_to(self, offset: int) -> None:
        """A look from outside found no record from `expected` up to `offset`: transactions' marks, or records that were deleted."""
        if offset > self._expected:
            self._expected = offset
            self._hole_end = None

    def release(self, offset: int) -> None:
        """The record at `offset` has its one final response or dead letter, acknowledged by the broker."""
        self._running.discard(offset)

    def committable(self) -> int | None:
        """The offset to commit now; None when the broker already knows it."""
        lowest = min(self._running, default=self._expected)
        return lowest if lowest > self._committed else None

    def note_committed(self, offset: int) -> None:
        """The broker has stored `offset`."""
        self._committed = max(self._committed, offset)
