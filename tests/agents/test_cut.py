"""Where a text ends that time cut short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cut import cut_cleanly


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The parcel left on Monday. It will arr", "The parcel left on Monday."),
        ("The capital of France is Par", "The capital of France is"),
        ("您的包裹已经发出。预计明", "您的包裹已经发出。"),
        ("今天天气很", "今天天气很"),
        ("A family: 👨\u200d", "A family: 👨"),
        ("It is done.", "It is done."),
    ],
)
def test_text_ends_at_a_sentence_or_a_word(text: str, expected: str) -> None:
    """A near sentence end is taken, else a near word end; scripts without spaces end anywhere."""
    assert cut_cleanly(text, 20, keep_tokens=2)[0] == expected


def test_no_cut_below_the_minimum() -> None:
    """Half a word is better than an answer that is too short to be sent."""
    assert cut_cleanly("one two three fou", 6, keep_tokens=6) == ("one two three fou", 6)


@given(st.text(max_size=200), st.integers(0, 60), st.integers(0, 10))
def test_result_is_a_beginning_and_counts_no_more(text: str, tokens: int, keep: int) -> None:
    """Whatever the text, the result is a beginning of it, and its tokens are never more, nor fewer than needed unless they were."""
    kept, left = cut_cleanly(text, tokens, keep_tokens=keep)
    assert text.startswith(kept)
    assert left <= tokens
    assert left >= min(keep, tokens)
