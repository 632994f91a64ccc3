"""Kept answers in this worker's memory: bounded in number, bytes and age, the one used longest ago goes first; other workers' are `agents.cache.backing`."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from agents.ladder import Given
from schemas.deadline import Clock
from schemas.responses import AnswerFinish, ModelRef

CacheEvent = Literal[
    "hit", "shared_hit", "followed", "miss", "skipped", "stored", "refused", "evicted", "expired", "withdrawn", "shared_error", "shared_late", "shared_dropped"
]
"""What happens in the cache, for the figures: `refused` is an answer that may not be kept, `evicted` one that had to make room, `withdrawn` one that a
person called wrong; `shared_late` is a wait for the shared store that ran out, `shared_dropped` a write that found its queue full."""

Count = Callable[[CacheEvent], None]

SLOT_BYTES = 300
"""Of an answer beside its own bytes: key, slot and their place in the table. Measured: 250; without it many short answers would take several times
`cache.max_bytes`."""

NOTES_PER_ENTRY = 4
"""Events remembered for each answer that may be kept, 250 bytes each: feedback on one that is forgotten evicts nothing. At the default of
10,000 answers that is 10 MB beside `cache.max_bytes`, and the last 40,000 events that had a kept answer."""

MAX_CLOSED = 10_000
"""Questions whose answer was called wrong: above it the oldest may be answered from the cache again."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """An answer as it is kept and given again."""

    text: str
    is_json: bool
    """Whether `data` is what the text says in JSON; made anew each time, so that no two events share it."""
    finish_reason: AnswerFinish | None
    model: ModelRef
    made_ms: int
    """When it was written, Unix ms."""


def entry_of(given: Given, model: ModelRef, now_ms: int) -> bytes:
    """An answer as kept bytes."""
    return msgspec.msgpack.encode(Entry(given.text, given.data is not None, given.finish_reason, model, now_ms))


def load_entry(raw: bytes) -> Entry | None:
    """Kept bytes as an answer; None when they are not one."""
    try:
        return msgspec.msgpack.decode(raw, type=Entry)
    except msgspec.MsgspecError:
        return None


@dataclass(slots=True)
class Slot:
    """One kept answer."""

    value: bytes
    until: float
    """Monotonic seconds."""
    checked: float
    """When the shared store was last known to agree."""


class ExactStore:
    """Answers by key. Pure: time comes from the clock it is given."""

    def __init__(self, *, entries: int, max_bytes: int, clock: Clock, count: Count) -> None:
        self._entries = entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._count = count
        self._slots: OrderedDict[bytes, Slot] = OrderedDict()
        self._closed: OrderedDict[bytes, float] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, key: bytes) -> Slot | None:
        """The answer under `key` that is not too old, now the most recently used."""
        slot = self._slots.get(key)
        if slot is None:
            return None
        if slot.until <= self._clock.monotonic():
            self._drop(key)
            self._count("expired")
            return None
        self._slots.move_to_end(key)
        return slot

    def put(self, key: bytes, value: bytes, ttl_s: float) -> bool:
        """Keep an answer, making room for it; false when it is larger than all the room, or the question is closed."""
        size = len(value) + SLOT_BYTES
        if size > self._max_bytes or ttl_s <= 0 or self.is_closed(key):
            return False
        self._drop(key)
        while self._slots and (len(self._slots) >= self._entries or self.bytes + size > self._max_bytes):
            self._drop(next(iter(self._slots)))
            self._count("evicted")
        now = self._clock.monotonic()
        self._slots[key] = Slot(value, now + ttl_s, now)
        self.bytes += size
        return True

    def close(self, key: bytes, ttl_s: float) -> bool:
        """Forget the answer and keep none under this key for `ttl_s` seconds; whether there was one.

        The same model would most likely say the same again, and the next person would be given what this one called wrong.
        """
        self._closed[key] = self._clock.monotonic() + ttl_s
        self._closed.move_to_end(key)
        while len(self._closed) > MAX_CLOSED:
            self._closed.popitem(last=False)
        return self._drop(key)

    def clear(self) -> None:
        """Drop every answer; questions that are closed stay so."""
        self._slots.clear()
        self.bytes = 0

    def is_closed(self, key: bytes) -> bool:
        """Whether an answer under this key was called wrong lately."""
        until = self._closed.get(key)
        if until is None:
            return False
        if until <= self._clock.monotonic():
            del self._closed[key]
            return False
        return True

    def _drop(self, key: bytes) -> bool:
        slot = self._slots.pop(key, None)
        if slot is None:
            return False
        self.bytes -= len(slot.value) + SLOT_BYTES
        return True


@dataclass(frozen=True, slots=True)
class Note:
    """Which kept answer an event was given, and how long it is kept."""

    key: bytes
    ttl_s: float


class Notes:
    """Which events have which kept answer, the last ones of them: feedback names the event."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._notes: OrderedDict[bytes, Note] = OrderedDict()

    def __len__(self) -> int:
        return len(self._notes)

    def write(self, event: bytes, note: Note) -> None:
        """Remember it; the oldest gives way."""
        self._notes[event] = note
        self._notes.move_to_end(event)
        if len(self._notes) > self._limit:
            self._notes.popitem(last=False)

    def clear(self) -> None:
        """Forget them all."""
        self._notes.clear()

    def read(self, event: bytes) -> Note | None:
        """What the event was given."""
        return self._notes.get(event)


def event_digest(tenant: str, session_id: str, event_id: str) -> bytes:
    """16 bytes for an event: ids are long, and none of them shall stand in a shared store."""
    return hashlib.blake2b(msgspec.msgpack.encode((tenant, session_id, event_id)), digest_size=16).digest()
