"""Reads and stages a session's values for one event: session state, kept answers, their index; the tables themselves are `streams.tables`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from agents.answers import Fixed
from agents.context import sessions
from agents.lines import Inflight
from schemas.events import InteractionEvent
from schemas.facts import Facts
from schemas.session import KeptAnswer, KeptEntry, KeptIndex, SessionState, Stored, TableName, answer_key, dump_stored, load_stored, session_key
from schemas.settings import Limits, Session
from streams.publish import KeptRecord
from streams.tables import ChangelogRecord, TableSet, Whence

if TYPE_CHECKING:
    from agents.memory.persons import Persons
    from streams.offsets import OffsetTracker

log = structlog.get_logger(__name__)

MAX_SUBJECTS = 64
"""Persons remembered of one session; of more, the one who came first is not found in it any more when they are to be forgotten. 8 KiB at most."""


class SessionStore:
    """The typed side of the tables; every call is local and synchronous."""

    def __init__(
        self,
        tables: TableSet,
        session: Session,
        limits: Limits,
        persons: Persons | None = None,
        *,
        on_trim: Callable[[], None] = lambda: None,
        on_forget: Callable[[int], None] = lambda _partition: None,
    ) -> None:
        """`on_trim` hears of each session that was too large to be written whole."""
        self._persons = persons
        self._on_trim = on_trim
        self._tables = tables
        self._session = session
        self._limits = limits

    def session(self, inflight: Inflight) -> SessionState:
        """The session's state, empty for a new one. A value that cannot be read is logged and replaced: the person is answered without history."""
        return self._read(inflight, "sessions", session_key(*inflight.session), SessionState) or SessionState()

    def kept(self, inflight: Inflight, event: InteractionEvent) -> KeptAnswer | None:
        """What this event was answered with before, if that is still kept."""
        return self.kept_under(inflight, event.event_id)

    def kept_under(self, inflight: Inflight, event_id: str) -> KeptAnswer | None:
        """What another event of the same session was answered with, if that is still kept."""
        return self._read(inflight, "answers", answer_key(*inflight.session, event_id), KeptAnswer)

    def stage(self, inflight: Inflight, event: InteractionEvent, state: SessionState | None, fixed: Fixed) -> list[ChangelogRecord]:
        """Set everything that `fixed` changes, in memory now; the returned records make it last."""
        tables, source = self._tables, inflight.source
        tenant, session_id = inflight.session
        answer = KeptAnswer(event.digest(), fixed.record.value, fixed.record.headers, fixed.response.outcome, fixed.response.reason)
        index_key = session_key(tenant, session_id)
        index = self._read(inflight, "answers", index_key, KeptIndex) or KeptIndex()
        entry = KeptEntry(event.event_id, answer.digest, inflight.offset)
        committed, fits = inflight.partition.tracker.committed, self._limits.session_bytes
        index = self._noted(index, event)
        index, forgotten = sessions.keep(index, entry, keep_last=self._session.answers_kept, committed=committed, max_bytes=fits)
        staged = [
            tables.stage("answers", answer_key(tenant, session_id, event.event_id), dump_stored(answer), source),
            tables.stage("answers", index_key, dump_stored(index), source),
        ]
        staged += [tables.stage("answers", answer_key(tenant, session_id, event_id), None, source) for event_id in forgotten if event_id != event.event_id]
        if state is not None:
            stored = dump_stored(state)
            if len(stored) > self._limits.session_bytes:
                stored = sessions.fit(state, self._limits)
                self._on_trim()
            staged.append(tables.stage("sessions", index_key, stored, source))
            staged += self._learned(event, state, index)
        return staged

    def stage_end(self, inflight: Inflight) -> list[ChangelogRecord]:
        """A tombstone: the session is gone, its kept answers stay."""
        return [self._tables.stage("sessions", session_key(*inflight.session), None, inflight.source)]

    def stage_forget(self, inflight: Inflight) -> list[ChangelogRecord]:
        """The session, its kept answers, and what it told of persons are gone."""
        return self.stage_erase(session_key(*inflight.session), inflight.source, persons=True)

    def stage_erase(self, key: bytes, place: Whence, *, persons: bool = False) -> list[ChangelogRecord]:
        """Erase the session under `key` with its kept answers; with `persons` also what it told of them."""
        tables = self._tables
        index = self._load("answers", key, KeptIndex, place) or KeptIndex()
        tenant, session_id = msgspec.msgpack.decode(key, type=tuple[str, str])
        staged = [tables.stage("answers", answer_key(tenant, session_id, entry.event_id), None, place) for entry in index.entries]
        staged += [tables.stage("answers", key, None, place), tables.stage("sessions", key, None, place)]
        if persons and self._persons is not None:
            for subject in index.subjects:
                staged += self._persons.stage_forget(tenant, subject, session_id)
        return staged

    def may_erase(self, key: bytes, place: Whence, tracker: OffsetTracker) -> bool:
        """Whether none of the session's kept answers may still be asked for by a redelivery."""
        index = self._load("answers", key, KeptIndex, place) or KeptIndex()
        return not any(tracker.committed <= entry.offset < tracker.expected for entry in index.entries)

    def person(self, event: InteractionEvent) -> Facts:
        """What is known of the event's person from all their sessions; nothing without consent `store_history`."""
        if self._persons is None or event.subject is None or not event.consent.store_history:
            return Facts()
        return self._persons.of(event.tenant, event.subject)

    def _noted(self, index: KeptIndex, event: InteractionEvent) -> KeptIndex:
        """The index, told when the session was used, and by whom."""
        subjects = index.subjects
        if event.subject and event.subject not in subjects:
            subjects = (*subjects, event.subject)[-MAX_SUBJECTS:]
        return msgspec.structs.replace(index, subjects=subjects, touched_ms=round(time.time() * 1000))

    def _learned(self, event: InteractionEvent, state: SessionState, index: KeptIndex) -> list[ChangelogRecord]:
        """What the session knows of its person, for their other sessions; of several persons nobody could say whose it is, and whom to forget with it."""
        if self._persons is None or not event.consent.store_history or not state.facts or index.subjects != (event.subject,):
            return []
        return self._persons.stage_stored((event.tenant, index.subjects[0], event.session_id), state.facts, round(time.time() * 1000))

    def _read(self, inflight: Inflight, table: TableName, key: bytes, kind: type[Stored]) -> Stored | None:
        return self._load(table, key, kind, inflight.source)

    def _load(self, table: TableName, key: bytes, kind: type[Stored], place: Whence) -> Stored | None:
        raw = self._tables.get(table, key, place)
        if raw is None:
            return None
        try:
            return load_stored(raw, kind)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            log.error("a stored value cannot be read and is replaced", table=table, error=str(error))
            return None


def kept_record(event: InteractionEvent, answer: KeptAnswer) -> KeptRecord:
    """The bytes to send again."""
    return KeptRecord(event.session_id.encode(), answer.value, answer.headers)
