"""What a worker's tables hold, counted as it is written and recovered: how much, and when each session was last used; the values are `streams.tables`."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from schemas.session import TableName

TABLES: tuple[TableName, ...] = ("sessions", "answers")

_PAIR = b"\x92"
"""First byte of a MessagePack array of two: the key of a session or of its index. A kept answer's has three parts."""

SLICE = 2000
"""Counted keys of a partition that has gone, let go at once: about 0.5 ms; a million freed in one piece would hold the loop up for 50."""


class _Shelf:
    """One partition's part."""

    def __init__(self) -> None:
        self.sizes: dict[TableName, dict[bytes, int]] = {table: {} for table in TABLES}
        self.bytes: dict[TableName, int] = dict.fromkeys(TABLES, 0)
        self.used: dict[bytes, int] = {}
        """When each session was last written, Unix ms."""
        self.buckets: dict[int, dict[bytes, int]] = {}
        """The same by spans of time: recovery tells sessions in no order, and sorting a million would hold the loop up for half a second."""
        self.order: list[int] = []
        """A heap of the spans, some of which are gone by now."""


class Ledger:
    """Pure bookkeeping: 300 bytes of memory a session and 100 a kept answer, a microsecond a write."""

    def __init__(self, span_ms: int = 60_000) -> None:
        """`span_ms` is how finely sessions are told apart by age."""
        self._span_ms = span_ms
        self._shelves: dict[int, _Shelf] = {}
        self._gone: list[dict[bytes, int]] = []

    def note(self, table: TableName, partition: int, key: bytes, size: int | None, at_ms: int) -> None:
        """A value of `size` bytes was set under `key` at `at_ms`; None: it was deleted."""
        shelf = self._shelves.get(partition)
        if shelf is None:
            shelf = self._shelves[partition] = _Shelf()
        sizes = shelf.sizes[table]
        before = sizes.get(key)
        if size is None:
            if before is not None:
                del sizes[key]
                shelf.bytes[table] -= before + len(key)
            if is_session_key(key) and all(key not in shelf.sizes[other] for other in TABLES):
                self._place(shelf, key, None)
            return
        shelf.bytes[table] += size - before if before is not None else size + len(key)
        sizes[key] = size
        if is_session_key(key):
            self._place(shelf, key, max(at_ms, shelf.used.get(key, 0)))

    def _place(self, shelf: _Shelf, key: bytes, at_ms: int | None) -> None:
        """Put a session where its age belongs; None takes it away."""
        before = shelf.used.get(key)
        if before is not None and (at_ms is None or before // self._span_ms != at_ms // self._span_ms):
            span = shelf.buckets[before // self._span_ms]
            del span[key]
            if not span:
                del shelf.buckets[before // self._span_ms]
        if at_ms is None:
            shelf.used.pop(key, None)
        else:
            shelf.used[key] = at_ms
            span_number = at_ms // self._span_ms
            if span_number not in shelf.buckets:
                shelf.buckets[span_number] = {}
                heapq.heappush(shelf.order, span_number)
            shelf.buckets[span_number][key] = at_ms

    def used_at(self, partition: int, key: bytes) -> int | None:
        """When a session was last written, Unix ms; None for one that is not known."""
        shelf = self._shelves.get(partition)
        return None if shelf is None else shelf.used.get(key)

    def entries(self, table: TableName, partitions: Iterable[int]) -> int:
        """How many values of a table are kept in these partitions."""
        return sum(len(self._shelves[number].sizes[table]) for number in partitions if number in self._shelves)

    def size(self, table: TableName, partitions: Iterable[int]) -> int:
        """Of keys and values of a table in these partitions."""
        return sum(self._shelves[number].bytes[table] for number in partitions if number in self._shelves)

    def sessions(self, partitions: Iterable[int]) -> int:
        """Sessions of which anything is kept in these partitions."""
        return sum(len(self._shelves[number].used) for number in partitions if number in self._shelves)

    def oldest(self, partition: int, count: int) -> list[tuple[bytes, int]]:
        """Up to `count` of the sessions that were written longest ago, as key and Unix ms: those of the oldest span that has any, in no order."""
        shelf = self._shelves.get(partition)
        if shelf is None:
            return []
        while shelf.order and shelf.order[0] not in shelf.buckets:
            heapq.heappop(shelf.order)
        return list(itertools.islice(shelf.buckets[shelf.order[0]].items(), count)) if shelf.order else []

    def partitions(self) -> tuple[int, ...]:
        """Of which anything is counted."""
        return tuple(self._shelves)

    @property
    def letting_go(self) -> bool:
        """Whether counts of partitions that went are still to be freed."""
        return bool(self._gone)

    def keep_only(self, partitions: Iterable[int]) -> None:
        """Forget all other partitions: they are another worker's now."""
        kept = set(partitions)
        for number in [number for number in self._shelves if number not in kept]:
            shelf = self._shelves.pop(number)
            self._gone += [*shelf.sizes.values(), shelf.used, *shelf.buckets.values()]
        while self._gone and len(self._gone[-1]) == 0:
            self._gone.pop()
        if self._gone:
            last = self._gone[-1]
            for _ in range(min(SLICE, len(last))):
                last.popitem()


def is_session_key(key: bytes) -> bool:
    """Whether a table's key is that of a session or of its index."""
    return key[:1] == _PAIR
