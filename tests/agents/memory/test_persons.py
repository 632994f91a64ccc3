"""Facts of persons across sessions: laid over each other, bounded, forgotten."""

from __future__ import annotations

import msgspec
import pytest

from agents.memory.persons import SESSIONS_EACH, Persons, forgotten_key, person_key, read_key
from schemas.facts import Fact, Facts, Text, dump_facts
from schemas.settings_facts import Facts as FactsSettings
from schemas.settings_memory import Memory
from streams.tables import ChangelogRecord


def fact(slot: str, text: str, at_ms: int = 1) -> Fact:
    """A fact of one text."""
    return Fact(slot, Text(text), f"e{at_ms}", at_ms)


def facts(*several: Fact) -> Facts:
    """As a session has them."""
    return Facts(tuple(several))


def make(**memory: float) -> Persons:
    """With room for all, unless told otherwise."""
    return Persons("persons", msgspec.convert(memory, Memory), FactsSettings())


def feed(persons: Persons, records: list[ChangelogRecord], at_ms: int = 1) -> None:
    """What another worker reads from the topic."""
    for record in records:
        persons.take(record.key, record.value, at_ms)


def texts(persons: Persons, subject: str = "ann") -> dict[str, str]:
    """Values by slot."""
    return {one.slot: one.value.text for one in persons.of("t", subject).facts if isinstance(one.value, Text)}


def test_what_one_session_learned_the_next_one_knows() -> None:
    """On another worker too, once it has read the topic; nobody else's person or tenant knows it."""
    here, there = make(), make()
    records = here.stage("t", "ann", "s1", facts(fact("name", "Ann")), 1)
    feed(there, records)
    assert texts(here) == texts(there) == {"name": "Ann"}
    assert there.of("t", "bob") == there.of("u", "ann") == there.of("t", None) == Facts()


def test_what_is_known_is_not_written_again() -> None:
    """A session that adds nothing writes nothing, also on another worker and in another session."""
    here, there = make(), make()
    feed(there, here.stage("t", "ann", "s1", facts(fact("name", "Ann")), 1))
    assert here.stage("t", "ann", "s1", facts(fact("name", "Ann")), 2) == []
    assert there.stage("t", "ann", "s2", facts(fact("name", "Ann")), 2) == []


def test_two_workers_at_once_lose_nothing() -> None:
    """Sessions of one person on two workers write under keys of their own: in whatever order the records are read, both facts stand, the newer value wins."""
    one, two = make(), make()
    first = one.stage("t", "ann", "s1", facts(fact("name", "Ann", 5), fact("city", "Bonn", 5)), 5)
    second = two.stage("t", "ann", "s2", facts(fact("name", "Anna", 7), fact("order", "A-1", 7)), 7)
    for order in (first + second, second + first):
        reader = make()
        feed(reader, order)
        assert texts(reader) == {"name": "Anna", "city": "Bonn", "order": "A-1"}


def test_a_person_of_many_sessions_stays_small() -> None:
    """Of more than `SESSIONS_EACH` records the oldest are deleted in the topic too, and what they told is still known."""
    persons, log = make(), dict[bytes, bytes | None]()
    for number in range(3 * SESSIONS_EACH):
        for record in persons.stage("t", "ann", f"s{number}", facts(fact(f"slot{number}", "x", number)), number):
            log[record.key] = record.value
    assert sum(value is not None for value in log.values()) == SESSIONS_EACH
    reader = make()
    feed(reader, [ChangelogRecord("persons", "persons", 0, key, value) for key, value in log.items()])
    assert len(texts(reader)) == 3 * SESSIONS_EACH


def test_forgetting_empties_caches_and_counts_down() -> None:
    """The null record of a person takes all their sessions at once, tells the caches, and leaves others alone."""
    told: list[int] = []
    persons = Persons("persons", Memory(), FactsSettings(), lambda: told.append(1))
    persons.stage("t", "bob", "s9", facts(fact("name", "Bob")), 1)
    before = persons.bytes
    persons.stage("t", "ann", "s1", facts(fact("name", "Ann")), 1)
    persons.stage("t", "ann", "s2", facts(fact("city", "Bonn")), 1)
    persons.take(forgotten_key("t", "ann"), None, 2)
    assert (texts(persons), texts(persons, "bob"), persons.bytes, told) == ({}, {"name": "Bob"}, before, [1])
    persons.stage("t", "ann", "s3", facts(fact("name", "Ann")), 3)
    feed(persons, persons.stage_forget("t", "ann", "s3"))
    assert (texts(persons), persons.bytes) == ({}, before)


def test_memory_is_bounded_by_bytes() -> None:
    """Beyond `memory.person_bytes` the person heard of longest ago is let go here, and counted."""
    persons = make(person_bytes=1_048_576)
    for number in range(1200):
        persons.take(person_key("t", f"p{number}", "s"), msgspec.msgpack.encode(dump_facts(facts(fact("note", "x" * 1000)))), number)
    assert persons.bytes <= 1_048_576
    assert persons.dropped == 1200 - len(persons)
    assert (texts(persons, "p0"), len(texts(persons, "p1199"))) == ({}, 1)


def test_age_counts_from_the_last_thing_learned() -> None:
    """Only persons of whom nothing was written for `memory.person_ttl_s` are named, oldest first."""
    persons = make(person_ttl_s=1.0)
    persons.take(person_key("t", "old", "s1"), b"\x80", 1_000)
    persons.take(person_key("t", "back", "s1"), b"\x80", 1_000)
    persons.take(person_key("t", "back", "s2"), b"\x80", 9_000)
    assert persons.expired(9_500, 10) == [("t", "old", "s1")]


@pytest.mark.parametrize("key", [b"", b"\xc1", b"name", msgspec.msgpack.encode(("a",)), msgspec.msgpack.encode((1, 2, 3))])
def test_foreign_records_are_passed_over(key: bytes) -> None:
    """Keys and values that are not ours change nothing."""
    persons = make()
    persons.take(key, b"junk", 1)
    persons.take(person_key("t", "ann", "s1"), b"junk", 1)
    assert texts(persons) == {}
    assert read_key(person_key("t", "ann", "s1")) == ("t", "ann", "s1")


def test_a_stamp_of_the_future_keeps_nobody_for_ever() -> None:
    """A record of a worker whose clock was wrong counts from when it is looked at, and does not keep those behind it."""
    persons = make(person_ttl_s=60)
    persons.take(person_key("t", "future", "s1"), msgspec.msgpack.encode(dump_facts(facts(fact("name", "Ann")))), 4_070_908_800_000)
    persons.take(person_key("t", "old", "s1"), msgspec.msgpack.encode(dump_facts(facts(fact("name", "Bob")))), 1_000)
    assert persons.expired(100_000, 10) == [("t", "old", "s1")]
    persons.stage_forget("t", "old", "s1")
    assert persons.expired(159_999, 10) == []
    assert persons.expired(160_001, 10) == [("t", "future", "s1")]
