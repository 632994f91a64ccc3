"""The tables a worker keeps: Faust's stores and recovery, written through our own acknowledged changelog writes (law 6).

Faust's own table write queues the changelog record and forgets it, and one oversize record there ends the worker; so
values are staged here (local store now, changelog record in hand) and `streams.publish` writes and awaits them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from faust.stores.memory import Store as MemoryStore
from faust.streams import _current_event
from faust.types import TP

from schemas.session import TableName

if TYPE_CHECKING:
    from faust.events import Event

    from streams.app import WorkerApp


class ChangelogRecord(msgspec.Struct, frozen=True):
    """A staged write: `value` None deletes the key."""

    table: TableName
    topic: str
    partition: int
    key: bytes
    value: bytes | None


class TableSet:
    """The tables by name; reads and stages are synchronous and local, and their stalls are reported."""

    def __init__(self, app: WorkerApp, changelogs: dict[TableName, str], *, partitions: int, on_stall: Callable[[float], None], stall_s: float) -> None:
        self._changelogs = changelogs
        self._on_stall = on_stall
        self._stall_s = stall_s
        self._tables: dict[TableName, Any] = {}
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
                options={"driver": "rocksdict"},
            )

    def get(self, table: TableName, key: bytes, event: Event) -> bytes | None:
        """The local value under `key` in the partition that `event` came from."""
        began = time.perf_counter()
        store = self._tables[table].data
        found: bytes | None
        if _in_memory(store):
            found = store.data.get(key)
        else:
            with _standing_in(event):
                found = store.get(key)
        self._watch(began)
        return found

    def stage(self, table: TableName, key: bytes, value: bytes | None, event: Event) -> ChangelogRecord:
        """Set the local value now and return the record that makes it last; the caller writes it before it answers."""
        began = time.perf_counter()
        partition: int = event.message.partition
        store = self._tables[table].data
        if _in_memory(store):
            _set(store.data, key, value)
            _set(store._key_partition, key, None if value is None else partition)
        else:
            with _standing_in(event):
                _set(store, key, value)
        self._watch(began)
        return ChangelogRecord(table, self._changelogs[table], partition, key, value)

    def note_written(self, record: ChangelogRecord, offset: int) -> None:
        """The changelog holds `record` at `offset`: a persistent store need not read it again."""
        store = self._tables[record.table].data
        if not _in_memory(store):
            store.set_persisted_offset(TP(record.topic, record.partition), offset)

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
def _standing_in(event: Event) -> Iterator[None]:
    """Faust's stores find the partition through the event that is being iterated; ours may be long past."""
    token = _current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        _current_event.reset(token)
