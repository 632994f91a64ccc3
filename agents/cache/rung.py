"""The rung that gives kept answers, lets identical questions share one model request, and keeps what the model says; the other cache is `agents.semantic`."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agents.cache.backing import Backing
from agents.cache.exact import NOTES_PER_ENTRY, CacheEvent, Count, Entry, ExactStore, Note, Notes, Slot, entry_of, event_digest, load_entry
from agents.cache.flight import Flight, Flights, follow
from agents.cache.key import MAX_ANSWER_CHARS, Identifier, Identity, ModelOf, repeats_hidden
from agents.cache.pace import Pace
from agents.cache.personal import holds_personal
from agents.cache.shared import SharedStore
from agents.ladder import Budget, Declined, Given, ModelTimes, Question
from schemas.deadline import Clock
from schemas.settings import Settings

FLOOR_S = 0.0005
"""A key and a look into memory take 0.1 ms; with less than this left the default is all that fits."""

RECHECK_S = 2.0
"""With a shared store, how long an answer in memory is given without asking whether another worker was told that it is wrong."""

MAX_LEADERS = 3
"""Leaders that one event waits for in turn: a leader that is cancelled or short of time must not send all who waited for it to the model at once,
and somebody whose leaders all fail must still have time to ask for itself."""

MAX_OPEN = 10_000
"""Walks whose end is awaited; more events than that are never in flight. Beyond it the oldest is let go, and those who wait for it with it."""


_AT_ONCE = ModelTimes()


def count_nothing(_event: CacheEvent) -> None:
    """For those who want no figures."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A question on its way to the model."""

    question: Question
    identity: Identity
    flight: Flight | None


class CacheRung:
    """The exact cache as a rung. Without a shared store `start` and `stop` do nothing."""

    name = label = "cache"
    floor_s = FLOOR_S

    def __init__(
        self,
        settings: Settings,
        model_of: ModelOf,
        clock: Clock,
        *,
        store: SharedStore | None = None,
        count: Count = count_nothing,
        needs_s: Callable[[Question], float] | None = None,
    ) -> None:
        """`needs_s` says what the rungs below need to be of use to a question; without it that is learned from their answers."""
        cache = settings.cache
        self._identifier = Identifier(settings, model_of)
        self._clock = clock
        self._count = count
        self._needs_s = needs_s
        self._pace = Pace(max((model.min_tokens for model in settings.models), default=1))
        self._kept = ExactStore(entries=cache.entries, max_bytes=cache.max_bytes, clock=clock, count=count)
        self._notes = Notes(NOTES_PER_ENTRY * cache.entries)
        self._flights = Flights()
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._backing = None if store is None else Backing(store, wait_s=cache.shared_ms / 1000, clock=clock, count=count, on_noted=self._withdraw)

    @property
    def entries(self) -> int:
        """Answers kept in memory."""
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """Of them together, at most `cache.max_bytes`."""
        return self._kept.bytes

    @property
    def waiting_for(self) -> int:
        """Questions that others may be waiting for."""
        return len(self._flights)

    @property
    def is_shared(self) -> bool:
        """Whether there is a store that workers share."""
        return self._backing is not None

    @property
    def shared_up(self) -> bool:
        """Whether the shared store is asked; false without one."""
        return self._backing is not None and self._backing.is_up

    async def start(self) -> None:
        """Connect to the shared store, in the background: it need not be there."""
        if self._backing is not None:
            await self._backing.start()

    async def stop(self) -> None:
        """Let everybody go and disconnect; at most about two seconds."""
        for opened in list(self._open.values()):
            self._close(opened, None)
        if self._backing is not None:
            await self._backing.stop()

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """A kept answer, or the one that another event with the same question is just being given; else a miss."""
        identity = self._identifier.identify(question)
        if isinstance(identity, str):
            self._count("skipped")
            return Declined("skipped", identity, None)
        slot = self._kept.get(identity.key)
        if slot is not None and await self._is_agreed(identity.key, slot, budget):
            return self._give(question, identity, slot.value, "hit")
        if self._kept.is_closed(identity.key):
            self._count("skipped")
            return Declined("skipped", "a kept answer was called wrong", None)
        ahead = self._flights.joinable(identity.key)
        if ahead is not None:
            return await self._join(ahead, question, identity, budget)
        return await self._look_elsewhere(question, identity, budget)

    def ended(self, question: Question, given: Given | None) -> None:
        """Keep the answer if it may be kept, and tell those who wait for it."""
        opened = self._open.get(id(question))
        if opened is not None:
            self._close(opened, given)

    def evict(self, tenant: str, session_id: str, event_id: str) -> bool:
        """A person called the answer to this event wrong: nobody is given it again, and none is kept for its question as long as it would have been.

        True when it was kept, or given, by this worker. With a shared store the other workers hear of it in the background, also when this
        worker knows nothing of the event.
        """
        event = event_digest(tenant, session_id, event_id)
        note = self._notes.read(event)
        if note is not None:
            self._withdraw(note.key, note.ttl_s)
        elif self._backing is not None:
            self._backing.seek(event)
        return note is not None

    def forget(self) -> None:
        """Drop every answer kept in memory; the shared store's are dropped there (`agents.cache.shared`) or end with `cache.ttl_s`."""
        self._kept.clear()
        self._notes.clear()

    async def _is_agreed(self, key: bytes, slot: Slot, budget: Budget) -> bool:
        """Whether no worker is known to have been told that the answer is wrong; a store that cannot be asked objects to nothing."""
        now = self._clock.monotonic()
        if self._backing is None or not self._backing.is_up or now - slot.checked < RECHECK_S:
            return True
        slot.checked = now
        envelope = await self._backing.fetch(key, budget.stop_at)
        if envelope is None or envelope.sort != "closed":
            return True
        self._kept.close(key, self._seconds_until(envelope.until_ms))
        return False

    async def _join(self, ahead: Flight, question: Question, identity: Identity, budget: Budget) -> Given | Declined:
        """Wait for another's answer as long as there is time for an own one after that."""
        began = time.monotonic()
        needs_s = self._pace.needs_s if self._needs_s is None else self._needs_s(question)
        value = await follow(ahead, budget, needs_s)
        for _ in range(MAX_LEADERS - 1):
            successor = self._flights.joinable(identity.key)
            if value is not None or not ahead.landed.done() or successor is None or self._kept.is_closed(identity.key):
                break
            ahead = successor
            value = await follow(ahead, budget, needs_s)
        waited = ModelTimes(queue=time.monotonic() - began)
        if value is not None:
            return self._give(question, identity, value, "followed", waited)
        self._count("miss")
        self._begin(question, identity, budget)
        why = "the same question before it came to nothing" if ahead.landed.done() else "no time to wait for the same question before it"
        return Declined("skipped", why, None, waited)

    async def _look_elsewhere(self, question: Question, identity: Identity, budget: Budget) -> Given | Declined:
        """The first to ask: looks into the shared store for all who ask the same meanwhile."""
        opened = self._begin(question, identity, budget)
        value = None
        if self._backing is not None:
            try:
                value = await self._fetch(self._backing, identity, budget)
            except BaseException:
                self._close(opened, None)
                raise
        if value is None:
            self._count("miss")
            return Declined("skipped", "no kept answer", None)
        self._forget(opened)
        if opened.flight is not None:
            self._flights.land(opened.flight, value)
        return self._give(question, identity, value, "shared_hit")

    async def _fetch(self, backing: Backing, identity: Identity, budget: Budget) -> bytes | None:
        envelope = await backing.fetch(identity.key, budget.stop_at)
        if envelope is None:
            return None
        ttl_s = min(identity.ttl_s, self._seconds_until(envelope.until_ms))
        if envelope.sort == "closed":
            self._kept.close(identity.key, ttl_s)
            return None
        entry = load_entry(envelope.value)
        if envelope.sort != "answer" or entry is None or entry.model != identity.writer:
            self._count("shared_error")
            return None
        self._kept.put(identity.key, envelope.value, ttl_s)
        return envelope.value

    def _begin(self, question: Question, identity: Identity, budget: Budget) -> _Open:
        """Remember the question until its walk has ended; others may wait for it if they may have its answer."""
        flight = None
        if identity.is_pure and self._flights.joinable(identity.key) is None:
            flight = self._flights.begin(identity.key, budget)
        opened = self._open[id(question)] = _Open(question, identity, flight)
        if len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open.values())), None)
        return opened

    def _close(self, opened: _Open, given: Given | None) -> None:
        self._forget(opened)
        value = None
        try:
            if given is not None:
                self._pace.note(given)
                value = self._keep(opened, given)
        finally:
            if opened.flight is not None:
                self._flights.land(opened.flight, value)

    def _forget(self, opened: _Open) -> None:
        if self._open.get(id(opened.question)) is opened:
            del self._open[id(opened.question)]

    def _keep(self, opened: _Open, given: Given) -> bytes | None:
        """The kept form of a model's own, whole, harmless answer; None for any other, which is not kept and which nobody else gets."""
        question, identity = opened.question, opened.identity
        if given.outcome != "model" or given.reason is not None or given.shortened or given.model != identity.writer or self._kept.is_closed(identity.key):
            return None
        value = entry_of(given, identity.writer, self._clock.wall_ms())
        is_whole = given.data is None or _data_of(value) == given.data
        is_short = len(given.text) <= MAX_ANSWER_CHARS
        if not (identity.is_pure and is_whole and is_short) or holds_personal(given.text) or repeats_hidden(question, given.text):
            self._count("refused")
            return None
        if not self._kept.put(identity.key, value, identity.ttl_s):
            self._count("refused")
            return value
        self._count("stored")
        if self._backing is not None:
            self._backing.put("answer", identity.key, value, identity.ttl_s)
        self._note(question, identity)
        return value

    def _give(self, question: Question, identity: Identity, value: bytes, how: CacheEvent, waited: ModelTimes = _AT_ONCE) -> Given:
        entry = load_entry(value)
        assert entry is not None  # written here, or looked at when it came
        self._count(how)
        self._note(question, identity)
        age_s = max(0.0, (self._clock.wall_ms() - entry.made_ms) / 1000)
        why = "with the same question before it" if how == "followed" else f"{age_s:.0f} s old"
        return Given("cache", entry.text, data=_data(entry), finish_reason=entry.finish_reason, model=entry.model, times=waited, why=why)

    def _note(self, question: Question, identity: Identity) -> None:
        event = event_digest(question.tenant, question.event.session_id, question.event.event_id)
        self._notes.write(event, Note(identity.key, identity.ttl_s))
        if self._backing is not None and self._backing.is_up:
            self._backing.put("note", event, identity.key, identity.ttl_s)

    def _withdraw(self, key: bytes, ttl_s: float) -> None:
        if self._kept.close(key, ttl_s):
            self._count("withdrawn")
        if self._backing is not None:
            self._backing.close(key, ttl_s)

    def _seconds_until(self, wall_ms: int) -> float:
        return max(0.0, (wall_ms - self._clock.wall_ms()) / 1000)


def _data(entry: Entry) -> object:
    return msgspec.json.decode(entry.text) if entry.is_json else None


def _data_of(value: bytes) -> object:
    """What would be given again; None for a text that is not JSON, which then equals no data."""
    entry = load_entry(value)
    try:
        return None if entry is None else _data(entry)
    except msgspec.DecodeError:
        return None
