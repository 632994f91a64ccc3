"""Clauses and their moods."""

from __future__ import annotations

import pytest

from agents.facts.clauses import MAX_CLAUSES, cut, sentences
from agents.rules.normalize import fold_width


def moods(text: str) -> list[tuple[str, str]]:
    """Each clause with its mood."""
    return [(clause.text, clause.mood) for clause in cut(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am Bob, can you help?", [("I am Bob", "states"), ("can you help", "asks")]),
        ("If it rains, I stay home. I am Bob.", [("If it rains", "supposes"), ("I stay home", "supposes"), ("I am Bob", "states")]),
        ("If possible, call me.", [("If possible", "states"), ("call me", "states")]),
        ("It is 1,500 euros, on March 5, 2026 at 10:30.", [("It is 1,500 euros", "states"), ("on March 5, 2026 at 10:30", "states")]),
        ("My name is Bob, right?", [("My name is Bob", "asks"), ("right", "asks")]),
        ("She said: my name is Eve", [("She said", "quotes"), ("my name is Eve", "quotes")]),
        ("Could you call me Ann?", [("Could you call me Ann", "states")]),
        ("我叫王明，能帮我吗？", [("我叫王明", "states"), ("能帮我吗", "asks")]),
        ("要是下雨，我就在家。", [("要是下雨", "supposes"), ("我就在家", "supposes")]),
    ],
)
def test_moods_of_clauses(text: str, expected: list[tuple[str, str]]) -> None:
    """Commas end clauses, but not within numbers and dates; a supposition holds to the end of its sentence, a question to its clause."""
    assert moods(text) == expected


def test_quotations_are_nobodys_statement() -> None:
    """What somebody is quoted with is blanked out, a name in quotation marks is not."""
    assert [clause.text for clause in cut('The sign reads "my name is Carl".')] == ["The sign reads"]
    assert [clause.text.split() for clause in cut('My name is "Ann Lee"')] == [["My", "name", "is", "Ann", "Lee"]]


@pytest.mark.parametrize("text", ["I am Bob,  and my dog is old. Is it?", "你好，我叫王明；预算是300元。", " \n a, b : c "])
def test_places_are_places_in_the_text(text: str) -> None:
    """Each clause stands where it says, so that an answer can be mended there."""
    for clause in (*cut(text), *sentences(text)):
        assert fold_width(text)[clause.start : clause.start + len(clause.text)] == clause.text


@pytest.mark.parametrize("piece", ["我叫您，", "我叫您。", "I like it, ", "I like it. "])
def test_a_text_of_nothing_but_commas_is_read_so_far(piece: str) -> None:
    """What would hold the worker's loop is cut to the first clauses, and those are as ever."""
    clauses = cut(piece * 400)
    assert len(clauses) == MAX_CLAUSES
    assert clauses == cut(piece * MAX_CLAUSES)
    assert len(sentences(piece * 400)) <= MAX_CLAUSES
