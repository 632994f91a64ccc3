"""Reads and stages a session's values for one event: session state, kept answers, their index; the tables themselves are `streams.tables`."""

from __future__ import annotations

import msgspec
import structlog

from agents.answers import Fixed
from agents.context import sessions
from agents.lines import Inflight
from schemas.events import InteractionEvent
from schemas.session import KeptAnswer, KeptEntry, KeptIndex, SessionState, Stored, TableName, answer_key, dump_stored, load_stored, session_key
from schemas.settings import Limits, Session
from streams.publish import KeptRecord
from streams.tables import ChangelogRecord, TableSet

log = structlog.get_logger(__name__)


class SessionStore:
    """The typed side of the tables; every call is local and synchronous."""

    def __init__(self, tables: TableSet, session: Session, limits: Limits) -> None:
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
        index, forgotten = sessions.keep(index, entry, keep_last=self._session.answers_kept, committed=committed, max_bytes=fits)
        staged = [
            tables.stage("answers", answer_key(tenant, session_id, event.event_id), dump_stored(answer), source),
            tables.stage("answers", index_key, dump_stored(index), source),
        ]
        staged += [tables.stage("answers", answer_key(tenant, session_id, event_id), None, source) for event_id in forgotten if event_id != event.event_id]
        if state is not None:
            staged.append(tables.stage("sessions", index_key, sessions.fit(state, self._limits), source))
        return staged

    def stage_end(self, inflight: Inflight) -> list[ChangelogRecord]:
        """A tombstone: the session is gone, its kept answers stay."""
        return [self._tables.stage("sessions", session_key(*inflight.session), None, inflight.source)]

    def _read(self, inflight: Inflight, table: TableName, key: bytes, kind: type[Stored]) -> Stored | None:
        raw = self._tables.get(table, key, inflight.source)
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
