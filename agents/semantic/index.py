"""Questions already answered, as rows of a matrix for each tenant, scenario and language, bounded and searched at once; who asks it is `rung`."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
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
        self._free: list[int] = []
        self._order: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    @property
    def size_bytes(self) -> int:
        """Of the vectors; what stands beside them is a few hundred bytes an entry and the answers' texts."""
        return self._rows.nbytes

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

    def put(self, asked: Asked, answer: Answer, event: EventKey, at: float) -> tuple[Entry, list[Entry]]:
        """Keep an answer; returns its entry, and those that made room for it."""
        gone = []
        while len(self._order) >= self._most:
            oldest = next(iter(self._order))
            gone.append(self._take(oldest))
        row = self._free.pop() if self._free else self._append()
        self._rows[row] = asked.vector
        entry = self._entries[row] = Entry(asked.ground, asked.signature, answer, at, deque([event], MAX_GIVEN))
        self._order[row] = None
        return entry, gone

    def _take(self, row: int) -> Entry:
        entry = self._entries[row]
        if entry is None:
            msg = "a row in use holds an entry"
            raise AssertionError(msg)
        self._entries[row] = None
        self._rows[row] = 0
        del self._order[row]
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
    """All places, the one used longest ago going first when there are too many or their vectors take too much."""

    def __init__(self, size: int, *, entries: int, indexes: int, max_bytes: int, same_words: bool = True) -> None:
        """`size` numbers a vector; for the bounds see `semantic_cache`, for `same_words` see `Encoder`."""
        self._size, self._entries, self._most, self._max_bytes, self._same_words = size, entries, indexes, max_bytes, same_words
        self._places: OrderedDict[Place, Index] = OrderedDict()
        self._by_event: dict[tuple[str, str], list[_Kept]] = {}

    def __len__(self) -> int:
        return sum(len(index) for index in self._places.values())

    @property
    def size_bytes(self) -> int:
        """Of all vectors."""
        return sum(index.size_bytes for index in self._places.values())

    def search(self, asked: Asked, threshold: float, since: float) -> Hit | Closed | Miss:
        """See `Index.search`; only the place of `asked` is looked at."""
        index = self._places.get(asked.place)
        if index is None:
            return Miss(0.0, None)
        self._places.move_to_end(asked.place)
        return index.search(asked, threshold, since)

    def put(self, asked: Asked, answer: Answer, event: EventKey, at: float) -> None:
        """Keep an answer under its question."""
        index = self._places.get(asked.place)
        if index is None:
            entries = min(self._entries, max(1, self._max_bytes // (4 * self._size)))
            index = self._places[asked.place] = Index(self._size, entries, same_words=self._same_words)
        self._places.move_to_end(asked.place)
        entry, gone = index.put(asked, answer, event, at)
        for old in gone:
            self._forget(old)
        self._remember(event, entry)
        while len(self._places) > 1 and (len(self._places) > self._most or self.size_bytes > self._max_bytes):
            _, dropped = self._places.popitem(last=False)
            for entry in dropped:
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
        found = [kept for kept in self._by_event.get((tenant, event_id), []) if session_id in (None, kept.session_id)]
        for kept in found:
            self._forget(kept.entry)
            kept.entry.answer = None
        return len(found)

    def _remember(self, event: EventKey, entry: Entry) -> None:
        tenant, event_id, session_id = event
        self._by_event.setdefault((tenant, event_id), []).append(_Kept(session_id, entry))

    def _forget(self, entry: Entry) -> None:
        """Let no event lead to it any more."""
        for event in entry.given:
            self._drop(event, entry)
        entry.given.clear()

    def _drop(self, event: EventKey, entry: Entry) -> None:
        left = [kept for kept in self._by_event.get(event[:2], []) if kept.entry is not entry]
        if left:
            self._by_event[event[:2]] = left
        else:
            self._by_event.pop(event[:2], None)


class _Kept(msgspec.Struct, frozen=True):
    session_id: str
    entry: Entry
