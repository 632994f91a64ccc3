"""Patterns: what is let in, what it costs, and that the filter loses none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.rules.patterns import MAX_SIZE, Pattern, PatternFilter, PatternProblem, compile_pattern, has_fixed_piece


def pattern(source: str) -> Pattern:
    """A pattern that is right."""
    found = compile_pattern(source)
    assert isinstance(found, Pattern), found
    return found


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("(a", "is no RE2 pattern (missing ): (a)"),
        ("(?=a)b", "is no RE2 pattern (invalid perl operator: (?=)"),
        (r"(a)\1", r"is no RE2 pattern (invalid escape sequence: \1)"),
        ("((a{1,100}){1,100}){1,100}", "is no RE2 pattern (invalid repetition size: {1,100})"),
        ("a{1,2000}", "is no RE2 pattern (invalid repetition size: {1,2000})"),
        ("(x{1,30}){1,30}", "is too large"),
        (r"\pL{1,300}", "is no RE2 pattern (pattern too large - compile failed)"),
        ("a*", "matches an empty text, and so every one"),
        ("", "matches an empty text, and so every one"),
        ("refund|", "matches an empty text, and so every one"),
        ("\ud800", "holds half a character"),
    ],
)
def test_wrong_and_catastrophic_patterns_are_refused(source: str, wrong: str) -> None:
    """What could take long, or holds always, is told at load."""
    found = compile_pattern(source)
    assert isinstance(found, PatternProblem)
    assert found.wrong.startswith(wrong)


@pytest.mark.parametrize("source", [r"(a+)+$", r"(a|aa)+b", r"(x+x+)+y", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(.*)*b"])
@pytest.mark.timeout(20)
def test_patterns_that_backtrackers_choke_on_are_searched_at_once(source: str) -> None:
    """Patterns that take others centuries end (the suite's time-out is the bound: a backtracking engine would run past it)."""
    found = compile_pattern(source)
    text = b"a" * 50_000 + b"!"
    if isinstance(found, Pattern):
        assert found.size <= MAX_SIZE
        assert found.search(text) in (None, {})


def test_groups_are_given_as_text() -> None:
    """Named groups come out as written in the text; those that took no part are left out; case matters only where it is asked for."""
    found = pattern(r"order (?P<id>[a-z]{2}\d+)(?: from (?P<city>\pL+))?")
    assert found.groups in (("id", "city"), ("city", "id"))
    assert found.search("My ORDER Ab12 from 北京!".encode()) == {"id": "Ab12", "city": "北京"}
    assert found.search(b"order ab12") == {"id": "ab12"}
    assert found.search(b"no") is None
    assert pattern(r"(?-i)VIP").search(b"vip") is None


@pytest.mark.parametrize(("source", "fixed"), [("退款.*订单", True), ("order [0-9]+", True), (r"\d{11}", False), ("[ab]+c?", False)])
def test_patterns_without_a_fixed_piece_are_known(source: str, fixed: bool) -> None:
    """Those are tried on every text."""
    assert has_fixed_piece(pattern(source)) is fixed


ATOMS = st.sampled_from(["a", "b", "É", "退", "款", r"\d", "[ab]", ".", "refund", "(?:a|退)", r"\s", "(?-i:B)"])
SOURCES = st.lists(st.tuples(ATOMS, st.sampled_from(["", "+", "?", "{2}"])), min_size=1, max_size=4).map(lambda parts: "".join(map("".join, parts)))


@given(st.lists(SOURCES, max_size=8), st.text(alphabet="aAbBÉé退款1 refund", max_size=20))
def test_filter_loses_no_match(sources: list[str], text: str) -> None:
    """A pattern that matches is always among the possible ones."""
    patterns = [found for source in sources if isinstance(found := compile_pattern(source), Pattern)]
    raw = text.encode()
    matching = {index for index, one in enumerate(patterns) if one.search(raw) is not None}
    assert matching <= set(PatternFilter(patterns).possible(raw))


def test_filter_of_hundreds_names_few() -> None:
    """Among hundreds of patterns, only those whose words stand in the text are searched."""
    patterns = [pattern(rf"word{number}x\s+(\d+)") for number in range(600)]
    for in_pieces in (False, True):
        assert PatternFilter(patterns, in_pieces=in_pieces).possible(b"so WORD7X 12 and word599x") == [7, 599]
