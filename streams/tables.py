"""The tables a worker keeps: Faust's stores and recovery, written through our own acknowledged changelog writes (law 6).

Faust's own table write queues the changelog record and forgets it, and one oversize record there ends the worker; so
values are staged here (local store now, changelog record in hand) and `streams.publish` writes and awaits them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec
from faust.stores.memory import Store as MemoryStore
from faust.streams import _current_event
from faust.types import TP

from schemas.errors import StoreError
from schemas.session import TableName
from streams.ledger import Ledger, is_session_key

if TYPE_CHECKING:
    from faust.events import Event

    from streams.app import WorkerApp


COUNTED_AT_ONCE = 250
"""Stored values read in one piece when a persistent store is counted: about 1 ms from memory; a slow disk is seen in `answerby_store_stalls_total`."""


ROCKSDB_SIZES = {"write_buffer_size": 4_194_304, "max_write_buffer_number": 2, "block_cache_size": 8_388_608, "max_open_files": 256}
"""Of one partition of one table, and there are many: with Faust's own buffers of three times 64 MB memory grew with every event for hours, and a start read
as much back from their logs. At worst some 20 MB each."""


class ChangelogRecord(msgspec.Struct, frozen=True):
    """A staged write: `value` None deletes the key."""

    table: TableName | Literal["persons"]
    topic: str
    partition: int
    key: bytes
    value: bytes | None


class Place:
    """Stands in for an event where a write has none: Faust's stores ask it for the partition."""

    def __init__(self, partition: int) -> None:
        self.message = self
        self.partition = partition


Whence: TypeAlias = "Event | Place"
"""What says to which partition a key belongs."""


class TableSet:
    """The tables by name; reads and stages are synchronous and local, and their stalls are reported."""

    def __init__(self, app: WorkerApp, changelogs: dict[TableName, str], *, partitions: int, on_stall: Callable[[float], None], stall_s: float) -> None:
        self._changelogs = changelogs
        self._on_stall = on_stall
        self._stall_s = stall_s
        self._tables: dict[TableName, Any] = {}
        self.ledger = Ledger()
        for name, topic in changelogs.items():
            self._tables[name] = app.Table(
                name,
                key_type=bytes,
                value_type=bytes,
                partitions=partitions,
                changelog_topic=app.topic(
                    topic,
                    key_type=bytes,
                    value_type=bytes,
                    partitions=partitions,
                    acks=False,
                    internal=True,
                    compacting=True,
                    maxsize=131_072,
                    allow_empty=True,
                ),
                options={"driver": "rocksdict", **ROCKSDB_SIZES},
                on_changelog_event=self._counting(name),
            )

    def get(self, table: TableName, key: bytes, event: Whence) -> bytes | None:
        """The local value under `key` in the partition that `event` came from. Raises StoreError when the disk fails."""
        began = time.perf_counter()
        store = self._tables[table].data
        found: bytes | None
        if _in_memory(store):
            found = store.data.get(key)
        else:
            with _told_of_disk(), _standing_in(event):
                found = store.get(key)
        self._watch(began)
        return found

    def stage(self, table: TableName, key: bytes, value: bytes | None, event: Whence) -> ChangelogRecord:
        """Set the local value now and return the record that makes it last; the caller writes it before it answers."""
        began = time.perf_counter()
        partition: int = event.message.partition
        store = self._tables[table].data
        if _in_memory(store):
            _set(store.data, key, value)
            _set(store._key_partition, key, None if value is None else partition)
        else:
            with _told_of_disk(), _standing_in(event):
                _set(store, key, value)
        self.ledger.note(table, partition, key, None if value is None else len(value), round(time.time() * 1000))
        self._watch(began)
        return ChangelogRecord(table, self._changelogs[table], partition, key, value)

    def note_written(self, record: ChangelogRecord, offset: int) -> None:
        """The changelog holds `record` at `offset`: a persistent store need not read it again."""
        if record.table == "persons":
            return
        store = self._tables[record.table].data
        if not _in_memory(store):
            with _told_of_disk():
                store.set_persisted_offset(TP(record.topic, record.partition), offset)

    @property
    def persistent(self) -> bool:
        """Whether values outlive the process, so that a recovery does not read all of them."""
        return not _in_memory(self._tables["sessions"].data)

    def count_stored(self, partition: int, table: TableName, after: bytes | None, when: Callable[[bytes], int], now_ms: int) -> bytes | None:
        """Count a slice of what a persistent store holds, from the key behind `after` on; the last key counted, None when there are no more.

        `when` says of an index's value when its session was last used. No handle to the store is kept: one would keep it from being opened again.
        """
        store = self._tables[table].data
        items = store._db_for_partition(partition).items(from_key=after) if after is not None else store._db_for_partition(partition).items()
        last = None
        for number, (key, value) in enumerate(items):
            if number >= COUNTED_AT_ONCE:
                return last
            last = key
            if key not in (store.offset_key, after):
                told_ms = min(when(value), now_ms) if table == "answers" and is_session_key(key) else 0
                at_ms = told_ms or self.ledger.used_at(partition, key) or now_ms
                self.ledger.note(table, partition, key, len(value), at_ms)
        return None

    def scrub(self) -> None:
        """Make persistent stores drop what was deleted from their files too, also where they are another worker's copy; call it off the loop."""
        for table in self._tables.values():
            if not _in_memory(table.data):
                for stored in tuple(table.data._dbs.values()):
                    stored.flush()
                    stored.compact_range(None, None)

    def _counting(self, table: TableName) -> Callable[[Any], Awaitable[None]]:
        """Faust tells every record that it recovers."""

        async def count(event: Any) -> None:
            message = event.message
            if message.key is not None:
                size = None if message.value is None else len(message.value)
                now = time.time()  # a worker whose clock was ahead must not keep its sessions for as long as that
                self.ledger.note(table, message.partition, message.key, size, round(min(message.timestamp or now, now) * 1000))

        return count

    def _watch(self, began: float) -> None:
        took = time.perf_counter() - began
        if took > self._stall_s:
            self._on_stall(took)


def _in_memory(store: Any) -> bool:
    """Faust's memory store: one dict for all partitions, and a map by which it forgets revoked ones; persistent stores ask whose event it is."""
    return type(store) is MemoryStore


def _set(target: Any, key: bytes, value: Any) -> None:
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value


@contextmanager
def _standing_in(event: Whence) -> Iterator[None]:
    """Faust's stores find the partition through the event that is being iterated; ours may be long past."""
    token = _current_event.set(cast("Any", weakref.ref(event)))
    try:
        yield
    finally:
        _current_event.reset(token)


@contextmanager
def _told_of_disk() -> Iterator[None]:
    """A store's failure is no event's: taken for one, a full disk would make a dead letter of every record."""
    try:
        yield
    except Exception as error:  # rocksdict knows no narrower one
        msg = f"a table in worker.data_dir failed ({error}): make room or mend the disk, then start the worker again; what was not committed is answered then"
        raise StoreError(msg) from error
