"""What is erased, and when: over tables and a publisher in memory; the real ones are in tests/live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from agents.memory.expiry import GRACE_S, SLICE_SESSIONS, Expiry
from agents.memory.persons import Persons, person_key
from agents.store import SessionStore
from schemas.deadline import ManualClock
from schemas.session import KeptAnswer, KeptEntry, KeptIndex, SessionState, answer_key, dump_stored, session_key
from schemas.settings import Limits, Session
from schemas.settings_facts import Facts as FactsSettings
from schemas.settings_memory import Memory
from streams.ledger import Ledger
from streams.partitions import Partition, PartitionBoard
from streams.tables import ChangelogRecord
from tests.agents.intake import HeldPublisher, HeldTables

DAY_MS = 86_400_000


class CountedTables(HeldTables):
    """With the real ledger, told by a clock that the test moves."""

    persistent = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._clock = clock

    def stage(self, table: Any, key: bytes, value: bytes | None, event: Any) -> ChangelogRecord:
        """As the real one."""
        self.ledger.note(table, event.message.partition, key, None if value is None else len(value), self._clock.wall_ms())
        return super().stage(table, key, value, event)


class Rig:
    """Partitions 0 and 1, held and committed up to offset 10, with as much erased as a test asks for."""

    def __init__(self, **memory: Any) -> None:
        self.clock = ManualClock()
        self.tables = CountedTables(self.clock)
        self.publisher = HeldPublisher()
        self.written: list[ChangelogRecord] = []
        self.board = PartitionBoard(session_timeout_s=60.0)
        for number in (0, 1):
            self.board.begin(number, 20, 10)
        settings = msgspec.convert(memory, Memory)
        self.persons = Persons("persons", settings, FactsSettings())
        tables: Any = self.tables
        self.store = SessionStore(tables, Session(), Limits(), self.persons)
        self.erased: list[str] = []
        publisher: Any = self
        self.expiry = Expiry(
            tables=tables,
            store=self.store,
            persons=self.persons,
            publisher=publisher,
            board=self.board,
            settings=settings,
            clock=self.clock,
            recovered=lambda: True,
            on_erase=self.erased.append,
        )

    async def write_ahead(self, records: list[ChangelogRecord], tables: Any, partition: Partition) -> Any:
        """The publisher's, remembering what it was given."""
        self.written += records
        return await self.publisher.write_ahead(records, tables, partition)

    def use(self, session: str, *, partition: int = 0, offset: int = 5, size: int = 0) -> None:
        """A session has an event now."""
        place: Any = type("Place", (), {"partition": partition})()
        place.message = place
        key = session_key("t", session)
        self.tables.stage("sessions", key, dump_stored(SessionState(state={"x": "y" * size})), place)
        self.tables.stage("answers", answer_key("t", session, "e1"), dump_stored(KeptAnswer(b"d", b"v", (), "model", None)), place)
        self.tables.stage("answers", key, dump_stored(KeptIndex((KeptEntry("e1", b"d", offset),), touched_ms=self.clock.wall_ms())), place)

    def sessions(self) -> set[str]:
        """Which are still there, of the session table."""
        return {msgspec.msgpack.decode(key)[1] for table, key in self.tables.values if table == "sessions"}


def swept(rig: Rig, until: Callable[[], bool] = lambda: False) -> int:
    """Sweep until nothing more is to be done; how many slices that took."""

    async def sweep() -> int:
        slices = 1
        while await rig.expiry.sweep() and not until():
            slices += 1
        return slices

    return asyncio.run(sweep())


def make(**memory: Any) -> Rig:
    """A rig, made where a loop runs."""

    async def build() -> Rig:
        return Rig(**memory)

    return asyncio.run(build())


def test_old_sessions_go_with_all_that_is_kept_of_them() -> None:
    """State, index and kept answers are erased together, each with a null record for the changelog; a younger session stays."""
    rig = make(session_ttl_s=100.0)
    rig.use("old")
    rig.clock.advance(90.0)
    rig.use("young", partition=1)
    rig.clock.advance(20.0)
    swept(rig)
    assert rig.sessions() == {"young"}
    assert [(record.table, record.value) for record in rig.written] == [("answers", None), ("answers", None), ("sessions", None)]
    assert (rig.tables.ledger.entries("answers", (0,)), rig.erased) == (0, ["age"])


def test_a_clock_set_back_and_one_set_far_ahead_erase_nobody_early() -> None:
    """Neither what was written while the clock was a year ahead nor what was written after it was set right goes before its time."""
    rig = make(session_ttl_s=100.0)
    rig.clock.jump_wall(365 * DAY_MS)
    rig.use("future")
    rig.clock.jump_wall(-365 * DAY_MS)
    rig.use("now")
    swept(rig)
    assert rig.sessions() == {"future", "now"}


def test_answers_that_may_be_asked_for_again_stay() -> None:
    """While an event is not committed its kept answer is what a redelivery must find: the session waits, however old it is."""
    rig = make(session_ttl_s=100.0)
    rig.use("running", offset=15)
    rig.clock.advance(1_000.0)
    swept(rig)
    assert rig.sessions() == {"running"}
    partition = rig.board.get(0)
    assert partition is not None
    partition.tracker.note_committed(16)
    swept(rig)
    assert rig.sessions() == set()


def test_too_much_goes_oldest_first() -> None:
    """Above `memory.max_bytes` the sessions used longest ago are erased until the rest fits."""
    rig = make(max_bytes=1_048_576)
    for number in range(20):
        rig.use(f"s{number}", size=100_000)
        rig.clock.advance(120.0)
    swept(rig)
    assert rig.sessions() == {f"s{number}" for number in range(10, 20)}
    assert set(rig.erased) == {"size"}


def test_the_oldest_go_whichever_partition_they_are_in() -> None:
    """A partition that happens to be swept first does not pay for the others."""
    rig = make(max_sessions=16)
    for number in range(24):
        rig.use(f"s{number}", partition=0 if number >= 12 else 1)
        rig.clock.advance(0.05)
    swept(rig)
    assert rig.sessions() == {f"s{number}" for number in range(8, 24)}


def test_many_go_in_slices() -> None:
    """However many are old, no slice erases more than its share before the loop is given back."""
    rig = make(session_ttl_s=1.0)
    for number in range(5 * SLICE_SESSIONS):
        rig.use(f"s{number}")
    rig.clock.advance(60.0)
    assert swept(rig) >= 5
    assert rig.sessions() == set()


def test_a_partition_in_doubt_is_left_alone() -> None:
    """Nothing is erased on a heartbeat that is too old, nor for a partition that went: its next owner has the session."""
    rig = make(session_ttl_s=1.0)
    rig.use("theirs")
    rig.clock.advance(60.0)
    rig.board.end((0,))
    swept(rig)
    assert (rig.written, rig.tables.ledger.sessions((0,))) == ([], 1)


def test_counts_outlive_a_rebalance_and_not_much_more() -> None:
    """A partition that comes back within the grace is swept as before; one that stays away is counted no more."""
    rig = make(session_ttl_s=1.0)
    rig.use("kept")
    rig.board.end((0, 1))
    swept(rig)
    rig.clock.advance(GRACE_S / 2)
    rig.board.begin(0, 20, 10)
    swept(rig)
    assert (rig.sessions(), rig.erased) == (set(), ["age"])
    rig.use("theirs")
    rig.board.end((0,))
    rig.clock.advance(GRACE_S + 1)
    swept(rig)
    assert rig.tables.ledger.partitions() == ()


def test_one_worker_erases_old_persons() -> None:
    """The one that holds partition 0: every worker holds all persons, and one null record is enough."""
    rig = make(person_ttl_s=1.0)
    rig.persons.take(person_key("t", "ann", "s1"), b"\x80", rig.clock.wall_ms())
    rig.clock.advance(60.0)
    rig.board.end((0,))
    swept(rig)
    assert rig.written == []
    rig.board.begin(0, 0)
    swept(rig)
    assert [(record.key, record.value) for record in rig.written] == [(person_key("t", "ann", "s1"), None)]
