"""What an event leaves in the tables, and what erasing a session takes; tables in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from agents.memory.persons import Persons
from agents.store import MAX_SUBJECTS, SessionStore
from schemas.events import Consent, InteractionEvent
from schemas.facts import Fact, Facts, Text, dump_facts
from schemas.session import KeptIndex, SessionState, answer_key, load_stored, session_key
from schemas.settings import Limits, Session
from schemas.settings_facts import Facts as FactsSettings
from schemas.settings_memory import Memory
from streams.offsets import OffsetTracker
from streams.tables import ChangelogRecord
from tests.agents.intake import HeldTables

NAMED = SessionState(facts=dump_facts(Facts((Fact("name", Text("Ann"), "e1", 1),))))


class Rig:
    """A store over tables in memory, and the events of one session."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.tables = HeldTables()
        self.persons = Persons("persons", Memory(), FactsSettings())
        self.trims = 0
        tables: Any = self.tables
        self.store = SessionStore(tables, Session(), limits or Limits(), self.persons, on_trim=self._trim)
        self.offset = 0

    def _trim(self) -> None:
        self.trims += 1

    def settle(self, event_id: str, subject: str | None = None, *, store_history: bool = True, state: SessionState = NAMED) -> list[ChangelogRecord]:
        """An event was answered."""
        self.offset += 1
        event = InteractionEvent(event_id, "s", subject=subject, text="hello", consent=Consent(store_history=store_history))
        response = SimpleNamespace(outcome="model", reason=None)
        fixed: Any = SimpleNamespace(record=SimpleNamespace(value=b"bytes", headers=()), response=response)
        return self.store.stage(self.inflight(), event, state, fixed)

    def inflight(self) -> Any:
        """As an event in flight has it."""
        message = SimpleNamespace(partition=0)
        tracker = OffsetTracker(0)
        return SimpleNamespace(
            source=SimpleNamespace(message=message), session=("default", "s"), partition=SimpleNamespace(tracker=tracker, number=0), offset=self.offset
        )

    def index(self) -> KeptIndex:
        """The session's index of kept answers."""
        return load_stored(self.tables.values["answers", session_key("default", "s")], KeptIndex)

    def known(self, subject: str) -> int:
        """Facts known of a person."""
        return len(self.persons.of("default", subject).facts)


def test_the_index_knows_whose_the_session_is() -> None:
    """Persons once each, in their order, bounded; events without one change nothing of that."""
    rig = Rig()
    for event_id, subject in (("e1", "ann"), ("e2", None), ("e3", "bob"), ("e4", "ann")):
        rig.settle(event_id, subject)
    assert rig.index().subjects == ("ann", "bob")
    for number in range(2 * MAX_SUBJECTS):
        rig.settle(f"m{number}", f"p{number}")
    assert len(rig.index().subjects) == MAX_SUBJECTS


def test_persons_are_remembered_with_consent_alone() -> None:
    """Without it nothing is written and nothing read."""
    rig = Rig()
    assert all(record.table != "persons" for record in rig.settle("e1", "ann", store_history=False))
    assert rig.known("ann") == 0
    assert [record.table for record in rig.settle("e2", "ann")][-1] == "persons"
    asks = InteractionEvent("e3", "other", subject="ann", text="hello")
    assert rig.store.person(asks) == Facts()
    assert len(rig.store.person(msgspec.structs.replace(asks, consent=Consent(store_history=True))).facts) == 1


def test_a_session_of_several_persons_says_of_none_of_them() -> None:
    """Once a second person speaks in it, it tells nothing more of anybody."""
    rig = Rig()
    rig.settle("e1", "ann", state=SessionState())
    rig.settle("e2", "bob")
    rig.settle("e3", "ann")
    assert (rig.known("ann"), rig.known("bob")) == (0, 0)


def test_forgetting_takes_everything_of_the_session() -> None:
    """State, index, every kept answer and what it told of its person, each with a null record; other sessions stay."""
    rig = Rig()
    rig.settle("e1", "ann")
    rig.settle("e2", "ann")
    rig.tables.values["sessions", session_key("default", "other")] = b"x"
    staged = rig.store.stage_forget(rig.inflight())
    assert {record.value for record in staged} == {None}
    assert {("answers", answer_key("default", "s", "e1")), ("answers", answer_key("default", "s", "e2"))} <= {(one.table, one.key) for one in staged}
    assert set(rig.tables.values) == {("sessions", session_key("default", "other"))}
    assert rig.known("ann") == 0


def test_a_session_cut_to_fit_is_counted() -> None:
    """A value above `limits.session_bytes` is written shorter, and told of; one that fits is not."""
    rig = Rig(Limits(session_bytes=1024))
    rig.settle("e1", state=SessionState())
    assert rig.trims == 0
    rig.settle("e2", state=SessionState(state={"x": "y" * 5000}))
    assert rig.trims == 1
    assert len(rig.tables.values["sessions", session_key("default", "s")]) <= 1024
