"""Finding all events that had one answer: across caches, never across tenants, and in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import same_answers
from agents.same_answers import TELLING_CHARS, SameAnswers

LONG = "Your refund is on its way and takes three to five days."


def test_a_long_answer_is_the_same_whatever_was_asked() -> None:
    """The question of a semantic hit differs from the one that was kept."""
    same = SameAnswers()
    same.note(("t", "s1", "e1"), "Where is my refund?", LONG)
    same.note(("t", "s2", "e2"), "When do I get my money back?", LONG)
    assert set(same.of(("t", "s2", "e2"), "", LONG)) == {("t", "s1", "e1"), ("t", "s2", "e2")}


def test_a_short_answer_is_the_same_only_for_the_same_question() -> None:
    """Half of all questions are answered "Yes."."""
    same = SameAnswers()
    same.note(("t", "s1", "e1"), "Is it open?", "Yes.")
    same.note(("t", "s2", "e2"), "Is it free?", "Yes.")
    same.note(("t", "s3", "e3"), " is it  OPEN?", "Yes.")
    assert set(same.of(("t", "s1", "e1"), "Is it open?", "Yes.")) == {("t", "s1", "e1"), ("t", "s3", "e3")}


@given(st.text(), st.text(max_size=2 * TELLING_CHARS))
def test_another_tenants_events_are_never_found(question: str, answer: str) -> None:
    """Nobody's complaint reaches another tenant's caches."""
    same = SameAnswers()
    same.note(("a", "s", "e"), question, answer)
    assert same.of(("b", "s", "x"), question, answer) == (("b", "s", "x"),)
    assert ("a", "s", "e") in same.of(("a", "s", "x"), question, answer)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the answers, the oldest going first, and the events of one."""
    monkeypatch.setattr(same_answers, "MOST", 10)
    same = SameAnswers()
    for number in range(30):
        same.note(("t", "s", f"e{number}"), f"q{number}", "Yes.")
        for repeat in range(100):
            same.note(("t", "s", f"r{repeat}"), "always", LONG)
    assert same.of(("t", "s", "x"), "q0", "Yes.") == (("t", "s", "x"),)
    assert len(same.of(("t", "s", "x"), "q29", "Yes.")) == 2
    assert len(same.of(("t", "s", "x"), "", LONG)) == 1 + same_answers.EACH
