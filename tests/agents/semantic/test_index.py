"""The index: nothing crosses places, everything is bounded, and what was called wrong is gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.semantic import index
from agents.semantic.guards import signature
from agents.semantic.index import ENTRY_BYTES, MAX_GIVEN, Answer, Asked, Closed, Hit, Indexes, Miss
from agents.semantic.ngrams import NgramEncoder
from schemas.responses import ModelRef

ENCODER = NgramEncoder()
HOME = ("a", "faq", "en")


def asked(text: str, place: tuple[str, str, str] = HOME, ground: bytes = b"g") -> Asked:
    """A question as the rung hands it over."""
    return Asked(place, ground, signature(text), ENCODER.encode([text])[0])


def said(text: str) -> Answer:
    """An answer."""
    return Answer(text, None, "stop", ModelRef("m", "1"))


def indexes(**changed: Any) -> Indexes:
    """Small ones."""
    return Indexes(ENCODER.size, **{"entries": 3, "indexes": 3, "max_bytes": 1 << 24, **changed})


def text_of(found: Hit | Closed | Miss) -> str | None:
    """What would be said."""
    return found.answer.text if isinstance(found, Hit) else None


def test_the_same_meaning_is_found() -> None:
    """By other words of the same meaning."""
    kept = indexes()
    kept.put(asked("How do I cancel my order?"), said("Press cancel."), ("a", "e1", "s"), 1.0)
    assert text_of(kept.search(asked("Can you tell me how to cancel an order?"), 0.9, 0.0)) == "Press cancel."


def test_a_guard_holds_back_what_is_near() -> None:
    """And its name is told."""
    kept = indexes()
    kept.put(asked("转账100元"), said("好"), ("a", "e1", "s"), 1.0)
    found = kept.search(asked("转账1000元"), 0.1, 0.0)
    assert isinstance(found, Miss)
    assert found.guard == "numbers"


@given(st.sampled_from(["a", "b"]), st.sampled_from(["faq", "shop"]), st.sampled_from(["en", "zh"]), st.sampled_from([b"g", b"h"]))
def test_nothing_crosses_places_or_grounds(tenant: str, scenario: str, language: str, ground: bytes) -> None:
    """Another tenant, scenario, language, model or context never gets the answer."""
    kept = indexes()
    kept.put(asked("How do I pay?"), said("By card."), ("a", "e1", "s"), 1.0)
    found = kept.search(asked("How do I pay?", (tenant, scenario, language), ground), 0.5, 0.0)
    assert isinstance(found, Hit) == ((tenant, scenario, language) == HOME and ground == b"g")


def test_the_oldest_makes_room() -> None:
    """An index is bounded, and forgets which events the old one was given to."""
    kept = indexes()
    for number in range(5):
        kept.put(asked(f"What about {number + 2} crates?"), said(str(number)), ("a", f"e{number}", "s"), float(number))
    assert len(kept) == 3
    assert isinstance(kept.search(asked("What about 2 crates?"), 0.9, 0.0), Miss)
    assert text_of(kept.search(asked("What about 6 crates?"), 0.9, 0.0)) == "4"
    assert kept.evict("a", "e0", None) == 0


def test_the_place_used_longest_ago_goes_first() -> None:
    """Places are bounded, and looking is using."""
    kept = indexes()
    for tenant in "abc":
        kept.put(asked("How do I pay?", (tenant, "faq", "en")), said(tenant), (tenant, "e", "s"), 1.0)
    kept.search(asked("How do I pay?", ("a", "faq", "en")), 0.9, 0.0)
    kept.put(asked("How do I pay?", ("d", "faq", "en")), said("d"), ("d", "e", "s"), 1.0)
    assert [text_of(kept.search(asked("How do I pay?", (tenant, "faq", "en")), 0.9, 0.0)) for tenant in "abcd"] == ["a", None, "c", "d"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(2, 60)), max_size=80))
def test_bytes_stay_bounded(puts: list[tuple[str, int]]) -> None:
    """Whatever is kept for whomever, the vectors take no more than they may."""
    most = 64 * (4 * ENCODER.size + ENTRY_BYTES)
    kept = indexes(entries=50, indexes=10, max_bytes=most)
    for tenant, number in puts:
        kept.put(asked(f"{number} crates?", (tenant, "faq", "en")), said("y" * 1000 * (number % 5)), (tenant, f"e{number}", "s"), 1.0)
        assert kept.size_bytes <= most
        assert len(kept) <= 64


def test_the_totals_are_those_of_the_places() -> None:
    """After puts, expiries, closings and dropped places."""
    kept = indexes(entries=5, indexes=3)
    for number in range(2, 40):
        tenant = "abcde"[number % 5]
        kept.put(asked(f"{number} crates?", (tenant, "faq", "en")), said("y" * number), (tenant, f"e{number}", "s"), float(number), since=number - 9.0)
        kept.evict(tenant, f"e{number - 5}", None)
        places = kept._places.values()
        assert len(kept) == sum(len(index) for index in places) == sum(1 for index in places for _ in index)
        assert kept.size_bytes == sum(index.size_bytes for index in places)


def test_one_meaning_has_one_answer() -> None:
    """Of two that were on their way at once the first is kept, and a complaint about either takes it away."""
    kept = indexes()
    assert kept.put(asked("How do I cancel my order?"), said("Press cancel."), ("a", "e1", "s"), 1.0, threshold=0.9)
    assert not kept.put(asked("Tell me how to cancel an order"), said("Call us."), ("a", "e2", "s"), 1.0, threshold=0.9)
    assert len(kept) == 1
    assert kept.evict("a", "e2", None) == 1
    assert not kept.put(asked("How do I cancel my order?"), said("Press cancel."), ("a", "e3", "s"), 1.0, threshold=0.9)


def test_an_old_answer_does_not_hide_a_new_one() -> None:
    """A question asked for ever finds its newest answer, however often it has expired."""
    kept = indexes(entries=100)
    for number in range(80):
        now = number * 10.0
        assert isinstance(kept.search(asked("How do I pay?"), 0.9, now - 5), Miss)
        assert kept.put(asked("How do I pay?"), said(str(number)), ("a", f"e{number}", "s"), now, threshold=0.9, since=now - 5)
        assert text_of(kept.search(asked("How do I pay?"), 0.9, now - 5)) == str(number)
    assert len(kept) == 1


def test_what_is_too_old_is_no_hit() -> None:
    """Entries stored before the given moment are let go."""
    kept = indexes()
    kept.put(asked("How do I pay?"), said("By card."), ("a", "e1", "s"), 5.0)
    assert isinstance(kept.search(asked("How do I pay?"), 0.9, 5.0), Hit)
    assert isinstance(kept.search(asked("How do I pay?"), 0.9, 5.5), Miss)
    assert len(kept) == 0


def test_a_wrong_answer_goes_by_any_event_that_had_it() -> None:
    """By the one it came from, and by one that it was given to; another session's event of that id only when no session is named.

    Its question is closed as long as the answer would have been kept.
    """
    for complains in ("e1", "e2"):
        kept = indexes()
        kept.put(asked("How do I pay?"), said("By card."), ("a", "e1", "s"), 1.0)
        hit = kept.search(asked("How do I pay?"), 0.9, 0.0)
        assert isinstance(hit, Hit)
        kept.note_given(hit.entry, ("a", "e2", "t"))
        assert kept.evict("b", complains, None) == 0
        assert kept.evict("a", complains, "nobody") == 0
        assert kept.evict("a", complains, None) == 1
        assert isinstance(kept.search(asked("How do I pay?"), 0.9, 0.0), Closed)
        assert isinstance(kept.search(asked("How do I pay?"), 0.9, 2.0), Miss)
        assert kept.evict("a", "e1", None) == kept.evict("a", "e2", None) == 0


def test_events_of_an_answer_are_bounded() -> None:
    """The oldest events of an answer are forgotten, not the answer."""
    kept = indexes()
    kept.put(asked("How do I pay?"), said("By card."), ("a", "first", "s"), 1.0)
    hit = kept.search(asked("How do I pay?"), 0.9, 0.0)
    assert isinstance(hit, Hit)
    for number in range(MAX_GIVEN):
        kept.note_given(hit.entry, ("a", f"e{number}", "s"))
    assert kept.evict("a", "first", None) == 0
    assert kept.evict("a", "e0", None) == 1


def test_old_entries_go_a_bounded_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are too old, one search lets go of so many and no more; none of them is a hit meanwhile."""
    monkeypatch.setattr(index, "EXPIRED_AT_ONCE", 2)
    kept = indexes(entries=5)
    for number in range(5):
        kept.put(asked(f"Where is parcel {number}?"), said("x"), ("a", f"e{number}", "s"), 1.0)
    left = []
    for _ in range(3):
        assert text_of(kept.search(asked("Where is parcel 4?"), 0.9, 2.0)) is None
        left.append(len(kept))
    assert left == [3, 1, 0]


def test_sessions_that_count_from_one_do_not_speak_for_each_other() -> None:
    """Events of one id in many sessions: a complaint takes the answer of its own session alone, and nothing is remembered of what has gone."""
    kept = indexes(entries=9)
    for number in range(9):
        kept.put(asked(f"Where is parcel {number}?"), said(str(number)), ("a", "1", f"s{number}"), 1.0)
    assert kept.evict("a", "1", "s3") == 1
    assert [text_of(kept.search(asked(f"Where is parcel {number}?"), 0.9, 0.0)) for number in (2, 3, 4)] == ["2", None, "4"]
    assert kept.evict("a", "1", None) == 8
    kept.search(asked("Where?"), 0.9, 2.0)
    assert (len(kept), kept.evict("a", "1", None)) == (0, 0)


def test_rows_are_used_again() -> None:
    """A full index does not grow, and old vectors are not found."""
    kept = indexes(entries=40)
    for number in range(200):
        kept.put(asked(f"Where are {number + 2} crates?"), said(str(number)), ("a", f"e{number}", "s"), 1.0)
    assert kept.size_bytes == 40 * (4 * ENCODER.size + ENTRY_BYTES) + sum(4 * len(str(number)) for number in range(160, 200))
    assert isinstance(kept.search(asked("Where are 9 crates?"), 0.9, 0.0), Miss)
    assert text_of(kept.search(asked("Where are 201 crates?"), 0.9, 0.0)) == "199"


def test_an_entry_that_made_room_is_given_to_nobody() -> None:
    """An answer that was found and then made room while it was on its way leaves no trace of the event."""
    kept = indexes(entries=1)
    kept.put(asked("How do I pay?"), said("By card."), ("a", "e1", "s"), 1.0)
    hit = kept.search(asked("How do I pay?"), 0.9, 0.0)
    assert isinstance(hit, Hit)
    kept.put(asked("How do I leave?"), said("By bus."), ("a", "e2", "s"), 1.0)
    kept.note_given(hit.entry, ("a", "e3", "s"))
    assert kept.evict("a", "e3", None) == 0
