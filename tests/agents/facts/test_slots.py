"""Slots checked at load: each mistake is named with its key and what would be right."""

from __future__ import annotations

import time

import msgspec
import pytest

from agents.facts import extract, load_slots
from agents.facts.pieces import PIECES
from agents.facts.slots import builtin_slots
from schemas.errors import ConfigError
from schemas.settings_facts import Facts, Slot
from tests.agents.facts.playing import START_MS, said


def test_builtin_slots_are_right() -> None:
    """Every built-in pattern loads, in both languages, with a label for each."""
    load_slots(Facts())
    for slot in builtin_slots():
        assert set(slot.patterns) == {"en", "zh"}
        assert set(slot.labels) == {"en", "zh"}


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        (Slot("a", patterns={"en": ("my (?P<value>[a-z",)}), r"facts\.slots\[0\]\.patterns\.en\[0\]: is no RE2 pattern"),
        (Slot("a", patterns={"en": (r"(?P<value>a)\1",)}), "is no RE2 pattern"),
        (Slot("a", patterns={"en": ("my [a-z]+",)}), "has no group `value`"),
        (Slot("a", patterns={"en": ("(?P<value>a)(?P<other>b)",)}), "a group is named 'other'"),
        (Slot("a", patterns={"en": ("(?P<value><<colour>>)",)}), "there is no piece <<colour>>"),
        (Slot("a"), r"facts\.slots\[0\]\.patterns: there is no pattern"),
        (Slot("a", type="choice", patterns={"en": ("(?P<value>a)",)}), "choices: missing"),
        (Slot("a", choices={"x": ()}, patterns={"en": ("(?P<value>a)",)}), "choices: given for type 'text'"),
    ],
)
def test_mistakes_are_named(slot: Slot, message: str) -> None:
    """Nothing that cannot work gets past the start."""
    with pytest.raises(ConfigError, match=message):
        load_slots(Facts(slots=(slot,)))


def test_a_name_stands_once() -> None:
    """Two slots of one name would hide each other."""
    slot = Slot("a", patterns={"en": ("(?P<value>a)b",)})
    with pytest.raises(ConfigError, match=r"facts\.slots\[1\]\.name: 'a' stands twice"):
        load_slots(Facts(slots=(slot, slot)))


def test_own_slot_replaces_a_builtin() -> None:
    """A slot of a built-in's name takes its place, and `builtin = false` leaves the own ones alone."""
    slot = Slot("name", patterns={"en": ("ich bin (?P<value>[a-z]+)",)})
    assert [fact.slot for fact in extract("My name is Bob", "en", load_slots(Facts(slots=(slot,))), "e", START_MS)] == []
    assert [fact.slot for fact in extract("Ich bin Bob", "en", load_slots(Facts(slots=(slot,))), "e", START_MS)] == ["name"]
    assert list(load_slots(Facts(slots=(slot,), builtin=False)).slots) == ["name"]


@pytest.mark.parametrize("piece", sorted(set(PIECES) - {"money", "money_zh"}))
def test_each_piece_may_be_used(piece: str) -> None:
    """Every `<<piece>>` of the guide fits into a pattern of a user's own."""
    slots = load_slots(Facts(slots=(Slot("a", patterns={"en": (f"thing (?P<value><<{piece}>>)",)}),)))
    assert "a" in slots.slots


def test_settings_are_read_from_toml() -> None:
    """The settings' own words, as a file writes them."""
    text = "[[slots]]\nname = \"seat\"\npatterns.en = ['seat (?P<value>[0-9]+[A-F])']\ndecision = true\n"
    facts = msgspec.toml.decode(text, type=Facts)
    found = extract("seat 12C please", "en", load_slots(facts), "e", START_MS)
    assert [(fact.slot, load_slots(facts).slots[fact.slot].decision) for fact in found] == [("seat", True)]


def test_hostile_text_takes_no_time() -> None:
    """Repeats that make backtracking engines hang are read in no time (a generous bound: does not hang)."""
    began = time.monotonic()
    for text in ("not " * 500, "a@" * 1000, "from a to " * 200, '"' * 2000, "I like " * 280, "一" * 2000, "9," * 1000, "and my " * 280):
        said(text)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        ("I need 12 mugs", "quantity"),
        ("I need twelve mugs", "quantity"),
        ("I need a dozen mugs", "quantity"),
        ("我想要三个杯子", "quantity"),
        ("My appointment is on Friday", "date"),
        ("My appointment is at noon", "date"),
        ("I booked a table for tonight", "date"),
    ],
)
def test_a_value_is_looked_for_where_its_sign_stands(text: str, slot: str) -> None:
    """Patterns are passed over for want of a numeral or a day, and never where there is one in any spelling."""
    slots = load_slots(Facts())
    assert slot in {matcher.slot.name for matcher in slots.possible(text, "default", answers=False)}
    assert slot in {fact.slot for fact in extract(text, "en", slots, "e", START_MS)}
    assert not slots.possible("I need help with my appointment", "default", answers=False, names={slot})
