"""Facts of persons across their sessions, as every worker holds them; reading them from Kafka is `streams.global_table`, finding them `agents.facts`.

Each session writes under its own key what it adds, so that no two workers ever write the same record; a person's facts are those of
all their sessions, laid over each other by their stamps in whatever order they come.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from agents.facts.merge import merge
from schemas.facts import Facts, dump_facts, load_facts
from schemas.settings_facts import Facts as FactsSettings
from schemas.settings_memory import Memory
from streams.tables import ChangelogRecord

log = structlog.get_logger(__name__)

SESSIONS_EACH = 8
"""Records kept of one person. Each new one holds all that was known when it was written, so older ones hold nothing of their own; at worst a fact
that two sessions wrote in the same milliseconds is lost with the ninth session after."""

MERGED_KEPT = 1000
"""Persons whose facts stand ready: reading them anew at every event takes 0.1 ms a record."""

TOLD_KEPT = 10_000
"""Sessions whose facts were looked into already, 300 bytes each: fifty facts read and compared at every event would take a millisecond."""

ENTRY_BYTES = 400
"""Of a record beside its own bytes: key, tuple and places in two tables."""

Person = tuple[str, str]
"""Tenant and subject."""


def person_key(tenant: str, subject: str, session_id: str) -> bytes:
    """Key of what one session knows of a person."""
    return msgspec.msgpack.encode((tenant, subject, session_id))


def forgotten_key(tenant: str, subject: str) -> bytes:
    """Key, of two parts, of the null record that tells every worker that a person is forgotten."""
    return msgspec.msgpack.encode((tenant, subject))


def read_key(key: bytes) -> tuple[str, ...]:
    """The parts of a key; nothing for one that is not ours."""
    try:
        return msgspec.msgpack.decode(key, type=tuple[str, ...])
    except msgspec.MsgspecError:
        return ()


class Persons:
    """Bounded by `memory.person_bytes`: beyond it the person heard of longest ago is not remembered in this worker any more."""

    def __init__(self, topic: str, settings: Memory, facts: FactsSettings, on_forget: Callable[[], None] = lambda: None) -> None:
        """`on_forget` is called when anybody is forgotten, and must make caches forget what they were told."""
        self._topic = topic
        self._settings = settings
        self._facts = facts
        self._on_forget = on_forget
        self._known: OrderedDict[Person, dict[str, tuple[bytes, int]]] = OrderedDict()
        self._told: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._merged: OrderedDict[Person, Facts] = OrderedDict()
        self.bytes = 0
        self.dropped = 0
        """Persons let go for want of room."""

    def __len__(self) -> int:
        return len(self._known)

    def take(self, key: bytes, value: bytes | None, at_ms: int) -> None:
        """A record of the topic, in its order."""
        parts = read_key(key)
        match parts:
            case (tenant, subject):
                self._drop((tenant, subject))
                self._told.clear()
                self._on_forget()
            case (tenant, subject, session_id):
                self._set((tenant, subject), session_id, value, at_ms)
            case _:
                log.warning("a record of persons has a key that is not ours and is passed over")

    def of(self, tenant: str, subject: str | None) -> Facts:
        """All that is known of a person; nothing for nobody. Ask only for events with consent `store_history`."""
        if subject is None or (tenant, subject) not in self._known:
            return Facts()
        person = (tenant, subject)
        found = self._merged.get(person)
        if found is None:
            found = self._merged[person] = self._merge(person)
            if len(self._merged) > MERGED_KEPT:
                self._merged.popitem(last=False)
        return found

    def _merge(self, person: Person) -> Facts:
        merged = Facts()
        for value, _ in self._known[person].values():
            facts = load(value)
            foreign = tuple(raw for raw in facts.foreign if raw not in merged.foreign)
            merged = merge(msgspec.structs.replace(merged, foreign=(*merged.foreign, *foreign)), facts.facts, self._facts)
        return merged

    def stage(self, tenant: str, subject: str, session_id: str, facts: Facts, now_ms: int) -> list[ChangelogRecord]:
        """Keep what a session knows of a person; nothing to write when it adds nothing. Call it with consent `store_history` alone."""
        known = self.of(tenant, subject)
        merged = merge(known, facts.facts, self._facts)
        if merged == known:
            return []
        person = (tenant, subject)
        value = msgspec.msgpack.encode(dump_facts(merged))
        self._set(person, session_id, value, now_ms)
        staged = [ChangelogRecord("persons", self._topic, 0, person_key(*person, session_id), value)]
        held = self._known.get(person, {})
        for older in sorted(held, key=lambda name: held[name][1])[: max(0, len(held) - SESSIONS_EACH)]:
            staged += self.stage_forget(tenant, subject, older)
        return staged

    def stage_stored(self, whose: tuple[str, str, str], facts: Mapping[str, Any], now_ms: int) -> list[ChangelogRecord]:
        """The same from facts as a session stores them; what was the same at its last event costs a digest and nothing else."""
        digest = hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=16).digest()
        if self._told.get(whose) == digest:
            return []
        self._told[whose] = digest
        if len(self._told) > TOLD_KEPT:
            self._told.popitem(last=False)
        return self.stage(*whose, load_facts(facts), now_ms)

    def stage_forget(self, tenant: str, subject: str, session_id: str) -> list[ChangelogRecord]:
        """Forget what a session knew of a person, whether or not this worker still holds it."""
        self._set((tenant, subject), session_id, None, 0)
        return [ChangelogRecord("persons", self._topic, 0, person_key(tenant, subject, session_id), None)]

    def expired(self, now_ms: int, count: int) -> list[tuple[str, str, str]]:
        """Records that got nothing new for `memory.person_ttl_s`, oldest person first, as tenant, subject, session."""
        line = now_ms - round(self._settings.person_ttl_s * 1000)
        found: list[tuple[str, str, str]] = []
        for person, sessions in self._known.items():
            newest_ms = max(at for _, at in sessions.values())
            if newest_ms > now_ms:  # some worker's clock was wrong: else it would outlive everybody, and nobody behind it would ever go
                sessions.update({session_id: (value, min(at, now_ms)) for session_id, (value, at) in sessions.items()})
                continue
            if len(found) >= count or newest_ms > line:
                break
            found += [(*person, session_id) for session_id in sessions]
        return found

    def _set(self, person: Person, session_id: str, value: bytes | None, at_ms: int) -> None:
        self._merged.pop(person, None)
        sessions = self._known.get(person, {})
        before = sessions.pop(session_id, None)
        if before is not None:
            self.bytes -= len(before[0]) + ENTRY_BYTES
        if value is not None:
            sessions[session_id] = (value, at_ms)
            self.bytes += len(value) + ENTRY_BYTES
            self._known[person] = sessions
            self._known.move_to_end(person)
        if not sessions:
            self._known.pop(person, None)
        while self.bytes > self._settings.person_bytes and self._known:
            self._drop(next(iter(self._known)))
            self.dropped += 1

    def _drop(self, person: Person) -> None:
        self._merged.pop(person, None)
        for value, _ in self._known.pop(person, {}).values():
            self.bytes -= len(value) + ENTRY_BYTES


def load(value: bytes) -> Facts:
    """Facts from a record's bytes; none from bytes that are not ours."""
    try:
        return load_facts(msgspec.msgpack.decode(value, type=dict))
    except msgspec.MsgspecError:
        log.warning("a person's facts cannot be read and count as none")
        return Facts()
