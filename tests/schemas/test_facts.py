"""Facts as stored: small, and keeping what a newer release added."""

from __future__ import annotations

from typing import Any

import msgspec

from agents.facts import merge
from schemas.facts import Choice, Date, Fact, Facts, Number, Past, Text, YesNo, dump_facts, load_facts
from schemas.settings_facts import Facts as FactsSettings

ALL = Facts(
    (
        Fact("a", Text("Bob"), "e1", 1, 7, 0.9, pinned=True, personal=True, history=(Past(Text("Rob"), "e0", 0, superseded_by="e1"),)),
        Fact("b", Number(5, "EUR"), "e2", 2),
        Fact("c", Date(2026, 3, 5, hour=15, minute=0), "e3", 3, key="meeting"),
        Fact("d", YesNo(False), "e4", 4, key="tea", denied=True),
        Fact("e", Choice("red"), "e5", 5),
    )
)


def through_the_store(plain: dict[str, Any]) -> dict[str, Any]:
    """As the changelog gives it back."""
    read: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(plain))
    return read


def test_what_is_stored_is_read() -> None:
    """Every type of value comes back as it was."""
    assert load_facts(through_the_store(dump_facts(ALL))) == ALL


def test_no_facts_take_no_room() -> None:
    """A session without facts is stored as it was before there were any."""
    assert dump_facts(Facts()) == {}
    assert load_facts({}) == Facts()


def test_fields_of_a_newer_release_are_kept() -> None:
    """New fields of the map, of a fact and within a value survive reading and writing, and the fact is still understood."""
    stored = dump_facts(ALL)
    stored["v"], stored["summary"] = 2, "short"
    stored["facts"][0]["mood"] = {"deep": [1, 2]}
    stored["facts"][0]["value"]["script"] = "latin"
    read = load_facts(through_the_store(stored))
    assert read.facts[0].value == Text("Bob")
    assert through_the_store(dump_facts(read)) == through_the_store(stored)


def test_new_kinds_of_values_are_kept() -> None:
    """A fact that this release cannot read is not shown, not lost, and outlives the merge of others."""
    foreign = {"slot": "where", "value": {"type": "place", "lat": 1.5}, "event_id": "e9", "at_ms": 9}
    stored = {**dump_facts(ALL), "facts": [*dump_facts(ALL)["facts"], foreign]}
    read = load_facts(through_the_store(stored))
    assert read.facts == ALL.facts
    merged = merge(read, [Fact("a", Text("Bill"), "e10", 10)], FactsSettings())
    assert foreign in dump_facts(merged)["facts"]


def test_nonsense_is_no_fact() -> None:
    """What is not a list of facts means none, and is no error: a session must open."""
    assert load_facts({"facts": "none"}).facts == ()
    assert load_facts({"facts": [1, None, {"slot": 5}]}).facts == ()
