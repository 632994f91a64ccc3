"""Questions already answered, as rows of a matrix for each tenant, scenario and language, bounded and searched at once; who asks it is `rung`."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agents.semantic.encoder import ROUNDING, Vectors
from agents.semantic.guards import Signature, difference
from schemas.responses import AnswerFinish, ModelRef

Vector = NDArray[np.float32]

Place = tuple[str, str, str]
"""Tenant, scenario, language: questions of two places never meet."""

EventKey = tuple[str, str, str]
"""Tenant, event id, session id."""

FIRST_ROWS = 32
"""Rows of a new index; doubled when full, so that a thousand scenarios with a question each cost little."""

CANDIDATES = 32
"""Nearest rows that the guards look at: each takes 2 µs, and a question with more false neighbours than that is answered by the model."""

MAX_GIVEN = 64
"""Events remembered of an answer, for when one of them complains; a later complaint then only marks its own turn."""


EXPIRED_AT_ONCE = 500
"""Old entries that one search lets go of, 3 µs each: after a quiet hour all 10,000 may be old, and the event loop would wait 30 ms for them."""

ENTRY_BYTES = 4000
"""What an entry takes beside its vector and its answer, most of it the signature; measured 3,600 on the questions of the examples."""


class Answer(msgspec.Struct, frozen=True):
    """What a model said, to be said again."""

    text: str
    data: Any
    finish_reason: AnswerFinish | None
    model: ModelRef


class Asked(msgspec.Struct, frozen=True):
    """A question as the index compares it."""

    place: Place
    ground: bytes
    """Digest of all that can change an answer besides the words: model, options, context."""
    signature: Signature
    vector: Vector


class Entry(msgspec.Struct):
    """One row: a question, its answer, and the events that had it."""

    ground: bytes
    signature: Signature
    answer: Answer | None
    """None: a person called it wrong. The question is remembered as long as its answer would have been, so that the model's next one is not kept either."""
    at: float
    """When it was stored, in monotonic seconds."""
    given: deque[EventKey]
    size_bytes: int
    """About what it takes, as long as its row is in use."""


class Hit(msgspec.Struct, frozen=True):
    """An answer to a question that means the same."""

    entry: Entry
    answer: Answer
    similarity: float


class Closed(msgspec.Struct, frozen=True):
    """A question that means the same has an answer that a person called wrong."""


class Miss(msgspec.Struct, frozen=True):
    """Why there is none: how near the nearest was, and which guard held it back."""

    similarity: float
    guard: str | None


class Index:
    """The questions of one place."""

    def __init__(self, size: int, entries: int, *, same_words: bool) -> None:
        self._most = entries
        self._same_words = same_words
        self._rows: Vectors = np.zeros((min(FIRST_ROWS, entries), size), np.float32)
        self._entries: list[Entry | None] = []
        self._beside = 0
        self._free: list[int] = []
        self._order: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    @property
    def size_bytes(self) -> int:
        """Of vectors, signatures and answers."""
        return self._rows.nbytes + self._beside

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry in self._entries if entry is not None)

    def search(self, asked: Asked, threshold: float, since: float) -> Hit | Closed | Miss:
        """The nearest entry that was stored after `since` and agrees with `asked` on everything."""
        count = len(self._entries)
        if count == 0:
            return Miss(0.0, None)
        near = np.einsum("ij,j->i", self._rows[:count], asked.vector)  # not `@`: BLAS shares it among threads, which on one core cost the loop 14 ms
        rows = np.flatnonzero(near >= threshold - ROUNDING)
        if rows.size > CANDIDATES:
            rows = rows[np.argpartition(near[rows], -CANDIDATES)[-CANDIDATES:]]
        guard: str | None = None
        for row in rows[np.argsort(-near[rows], kind="stable")].tolist():
            entry = self._entries[row]
            if entry is None or entry.at < since:
                continue
            why = "context" if entry.ground != asked.ground else difference(entry.signature, asked.signature, same_words=self._same_words)
            if why is None:
                return Closed() if entry.answer is None else Hit(entry, entry.answer, float(near[row]))
            guard = guard or why
        return Miss(float(near.max()), guard)

    def expire(self, since: float) -> list[Entry]:
        """Let go of what was stored before `since`, and return it: questions asked once an hour must not hide the newest answer behind old ones.

        At most `EXPIRED_AT_ONCE`; the next search goes on.
        """
        gone: list[Entry] = []
        while len(gone) < EXPIRED_AT_ONCE and self._order and (oldest := self._entries[next(iter(self._order))]) is not None and oldest.at < since:
            gone.append(self.take_oldest())
        return gone

    def put(self, asked: Asked, answer: Answer, event: EventKey, at: float) -> tuple[Entry, list[Entry]]:
        """Keep an answer; returns its entry, and those that made room for it."""
        gone = []
        while len(self._order) >= self._most:
            gone.append(self.take_oldest())
        row = self._free.pop() if self._free else self._append()
        self._rows[row] = asked.vector
        size = ENTRY_BYTES + 4 * len(answer.text)  # two bytes a Chinese character, and data is about as large as the text that it was read from
        entry = self._entries[row] = Entry(asked.ground, asked.signature, answer, at, deque([event], MAX_GIVEN), size)
        self._order[row] = None
        self._beside += entry.size_bytes
        return entry, gone

    def take_oldest(self) -> Entry:
        """Let go of the entry stored longest ago."""
        row, _ = self._order.popitem(last=False)
        entry = self._entries[row]
        if entry is None:
            msg = "a row in use holds an entry"
            raise AssertionError(msg)
        self._entries[row] = None
        self._rows[row] = 0
        self._beside -= entry.size_bytes
        self._free.append(row)
        return entry

    def _append(self) -> int:
        row = len(self._entries)
        if row == len(self._rows):
            grown = np.zeros((min(2 * len(self._rows), self._most), self._rows.shape[1]), np.float32)
            grown[:row] = self._rows
            self._rows = grown
        self._entries.append(None)
        return row


class Indexes:
    """All places, the one used longest ago going first when there are too many or they take too much."""

    def __init__(self, size: int, *, entries: int, indexes: int, max_bytes: int, same_words: bool = True) -> None:
        """`size` numbers a vector; for the bounds see `semantic_cache`, for `same_words` see `Encoder`."""
        self._size, self._entries, self._most, self._max_bytes, self._same_words = size, entries, indexes, max_bytes, same_words
        self._places: OrderedDict[Place, Index] = OrderedDict()
        self._by_event: dict[tuple[str, str], dict[str, list[Entry]]] = {}
        """By tenant and event id, then by session: where each session counts its events from 1, all share a few ids."""
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """Of all places together, about."""
        return self._bytes

    def search(self, asked: Asked, threshold: float, since: float) -> Hit | Closed | Miss:
        """See `Index.search`; only the place of `asked` is looked at. What is older than `since` is let go."""
        index = self._places.get(asked.place)
        if index is None:
            return Miss(0.0, None)
        self._places.move_to_end(asked.place)
        with self._counted(index):
            self._forget_all(index.expire(since))
        return index.search(asked, threshold, since)

    def put(self, asked: Asked, answer: Answer, event: EventKey, at: float, *, threshold: float = 1.0, since: float = 0.0) -> bool:
        """Keep an answer under its question, unless one of the same meaning has come in meanwhile, or was called wrong: one question, one answer."""
        found = self.search(asked, threshold, since)
        if isinstance(found, Hit):
            self.note_given(found.entry, event)
        if not isinstance(found, Miss):
            return False
        index = self._place_of(asked)
        with self._counted(index):
            entry, gone = index.put(asked, answer, event, at)
            self._remember(event, entry)
            self._forget_all(gone)
        self._make_room(index)
        return True

    def _place_of(self, asked: Asked) -> Index:
        index = self._places.get(asked.place)
        if index is None:
            entries = min(self._entries, max(1, self._max_bytes // (4 * self._size + ENTRY_BYTES)))
            index = self._places[asked.place] = Index(self._size, entries, same_words=self._same_words)
            self._bytes += index.size_bytes
        self._places.move_to_end(asked.place)
        return index

    def _make_room(self, newest: Index) -> None:
        while len(self._places) > 1 and (len(self._places) > self._most or self._bytes > self._max_bytes):
            _, dropped = self._places.popitem(last=False)
            self._count -= len(dropped)
            self._bytes -= dropped.size_bytes
            self._forget_all(dropped)
        with self._counted(newest):
            while newest.size_bytes > self._max_bytes and len(newest) > 1:
                self._forget(newest.take_oldest())

    @contextmanager
    def _counted(self, index: Index) -> Iterator[None]:
        """Keep the totals true while `index` changes: adding up all places at every question would take longer than the question."""
        count, size = len(index), index.size_bytes
        yield
        self._count += len(index) - count
        self._bytes += index.size_bytes - size

    def _forget_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._forget(entry)

    def note_given(self, entry: Entry, event: EventKey) -> None:
        """The answer of `entry` was given to `event` too."""
        if entry.answer is None or not entry.given:
            return
        if len(entry.given) == MAX_GIVEN:
            self._drop(entry.given[0], entry)
        entry.given.append(event)
        self._remember(event, entry)

    def evict(self, tenant: str, event_id: str, session_id: str | None) -> int:
        """Forget every answer that came from this event or was given to it; how many there were. Without a session: of every one that has such an event."""
        sessions = self._by_event.get((tenant, event_id), {})
        named = list(sessions) if session_id is None else [session_id]
        found = [entry for name in named for entry in sessions.get(name, ())]
        for entry in found:
            self._forget(entry)
            entry.answer = None
        return len(found)

    def _remember(self, event: EventKey, entry: Entry) -> None:
        tenant, event_id, session_id = event
        self._by_event.setdefault((tenant, event_id), {}).setdefault(session_id, []).append(entry)

    def _forget(self, entry: Entry) -> None:
        """Let no event lead to it any more."""
        for event in entry.given:
            self._drop(event, entry)
        entry.given.clear()

    def _drop(self, event: EventKey, entry: Entry) -> None:
        tenant, event_id, session_id = event
        sessions = self._by_event.get((tenant, event_id))
        if sessions is None:
            return
        left = [kept for kept in sessions.get(session_id, ()) if kept is not entry]
        if left:
            sessions[session_id] = left
            return
        sessions.pop(session_id, None)
        if not sessions:
            del self._by_event[tenant, event_id]
