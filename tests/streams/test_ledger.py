"""What is counted of the tables: sizes, and the age of sessions."""

from __future__ import annotations

from schemas.session import answer_key, session_key
from streams.ledger import SLICE, Ledger

ONE, TWO = session_key("t", "one"), session_key("t", "two")


def test_sizes_are_of_what_is_kept() -> None:
    """Entries and bytes are those of the newest values, keys included; deleting brings them back to nothing."""
    ledger = Ledger()
    ledger.note("sessions", 0, ONE, 100, 1)
    ledger.note("sessions", 0, ONE, 40, 2)
    ledger.note("sessions", 1, TWO, 7, 2)
    assert (ledger.entries("sessions", (0,)), ledger.size("sessions", (0,))) == (1, 40 + len(ONE))
    assert (ledger.entries("sessions", (0, 1)), ledger.entries("answers", (0, 1))) == (2, 0)
    ledger.note("sessions", 0, ONE, None, 3)
    ledger.note("sessions", 0, ONE, None, 3)
    assert (ledger.entries("sessions", (0,)), ledger.size("sessions", (0,)), ledger.sessions((0,))) == (0, 0, 0)


def test_a_session_lives_until_its_last_part_is_gone() -> None:
    """A tombstone takes the session's state, not its kept answers: the session is still counted and still grows old."""
    ledger = Ledger()
    ledger.note("sessions", 0, ONE, 10, 5)
    ledger.note("answers", 0, ONE, 10, 5)
    ledger.note("answers", 0, answer_key("t", "one", "e"), 10, 5)
    ledger.note("sessions", 0, ONE, None, 6)
    assert ledger.oldest(0, 10) == [(ONE, 5)]
    ledger.note("answers", 0, ONE, None, 7)
    assert ledger.oldest(0, 10) == []


def test_the_oldest_come_first_in_whatever_order_they_were_told() -> None:
    """Recovery tells sessions in no order; a newer note wins over an older one of the same session."""
    ledger = Ledger(span_ms=10)
    for name, at_ms in (("c", 300), ("a", 100), ("b", 200), ("a", 250), ("a", 90)):
        ledger.note("answers", 0, session_key("t", name), 1, at_ms)
    assert ledger.oldest(0, 2) == [(session_key("t", "b"), 200)]
    ledger.note("answers", 0, session_key("t", "b"), None, 300)
    assert ledger.oldest(0, 2) == [(session_key("t", "a"), 250)]
    assert ledger.used_at(0, session_key("t", "c")) == 300
    assert ledger.oldest(9, 2) == []


def test_partitions_that_went_are_let_go_in_slices() -> None:
    """A partition that is no longer ours counts nothing at once, and is let go bit by bit; coming back it begins anew."""
    ledger = Ledger()
    for number in range(3 * SLICE):
        ledger.note("sessions", 0, session_key("t", str(number)), 1, number)
    ledger.note("sessions", 1, ONE, 1, 1)
    ledger.keep_only((1,))
    assert (ledger.entries("sessions", (0, 1)), ledger.sessions((0, 1))) == (1, 1)
    ledger.note("sessions", 0, TWO, 1, 1)
    rounds = 0
    while ledger.letting_go:
        ledger.keep_only((0, 1))
        rounds += 1
    assert rounds >= 6
    assert ledger.oldest(0, 9) == [(TWO, 1)]
