"""Pieces of patterns: never one that a text can match without."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.rules.literals import MAX_DEPTH, needed_pieces
from agents.rules.normalize import fold_case_apart, fold_width
from agents.rules.patterns import Pattern, compile_pattern
from tests.agents.rules.writing import ruleset

LETTERS = st.sampled_from(["a", "B", "hj", "k", "s", "退", "退款", "カ", "ガ", "한", "1", "é", "ſ", "K", "i", "_", " ", "  ", "-"])
ESCAPES = st.sampled_from(
    [".", r"\s", r"\w", r"\b", r"\pL", r"\p{Han}", r"\.", "[ab]", "[^]a]", r"[\]k]", "[[:alpha:]s]", "^", "$", r"\x61", r"\Qa.\E", "(?i)", "{"]
)
TIMES = st.sampled_from(["", "", "", "*", "+", "?", "{0}", "{2}", "{0,2}", "{1,}", "+?", "{,2}"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.builds("{}{}){}".format, st.sampled_from(["(", "(?:", "(?P<n>", "(?i:", "(?s-i:"]), inner, TIMES)
    return st.lists(groups | inner, min_size=1, max_size=3).map("".join) | st.lists(inner, min_size=2, max_size=3).map("|".join)


PATTERNS = st.recursive(st.builds("{}{}".format, LETTERS | ESCAPES, TIMES), _grown, max_leaves=8)
TEXTS = st.lists(LETTERS | st.sampled_from(["A", "H\u0331", "J\u030c", "S", "K", "İ", "\u3099", "\u0301", "ẞ", "\u00a0", "\n", "{", "."]), max_size=8).map(
    "".join
)


@settings(max_examples=1500, deadline=None)
@given(PATTERNS, TEXTS)
@example("h.", "H\u0331")
@example("k", "\u212a")
@example(" a b ", "\u3000 a\u00a0\u00a0b ")
@example(r"a\s+", "a\t")
@example(r"\sa", "\na")
def test_matching_text_has_what_is_needed(source: str, text: str) -> None:
    """Whatever RE2 finds a match in has one piece of each choice, in the form that is searched for them."""
    pattern = compile_pattern(source)
    wide = fold_width(text)
    if not isinstance(pattern, Pattern) or pattern.search(wide.encode("utf-8", "replace")) is None:
        return
    folded, apart = fold_case_apart(wide)
    searched = f" {folded if apart is None else apart} "
    assert all(any(piece in searched for piece in either) for either in pattern.needed or ())


@pytest.mark.parametrize(
    ("source", "pieces"),
    [
        (r"\brefund\s+(?P<id>[A-Z]{2}\d{4,8})", (("refund ",),)),
        (r"(?:Order|订单)\s*my\s+\w+", (("order", "订单"), ("my ",))),
        (r"how (?:do|can) i reset\b.*password", (("how ",), ("do", "can"), (" i reset",), ("password",))),
        (r"\s*a\s+ b\s*c {2}\s?", (("a b",), ("c ",))),
        ("ab*c", (("a",), ("c",))),
        ("ab+c", (("ab",), ("c",))),
        ("(ab)?cd|e", (("cd", "e"),)),
        ("[0-9]{11}", ()),
        ("(a|)b?", ()),
        (r"\Qab\E", None),
        (r"\x61b", None),
        ("(" * 60 + "a" + ")" * 60, None),
    ],
)
def test_pieces_are_found(source: str, pieces: tuple[tuple[str, ...], ...] | None) -> None:
    """What must be there is named; what is not understood is left to RE2's own filter."""
    assert MAX_DEPTH < 60
    assert needed_pieces(source) == pieces


def test_letter_that_a_mark_changes_is_found() -> None:
    """`H̱` becomes one letter when it is made small; the pattern that asks for an `h` there is tried all the same, and a keyword is no word of it."""
    rules = ruleset("match.pattern = 'xh.y'", 'match.any = ["xh*"]')
    found = rules.match("XH\u0331Y")
    assert found is not None
    assert found.rule == "r0"
