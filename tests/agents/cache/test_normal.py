"""Texts that are one question, and texts that only look alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cache.normal import normalise_text

SAME = (
    ("How do I pay?", "  how do I   pay?\t"),
    ("如何退款？", "如何退款?"),
    ("订单 １２３", "订单\u3000123"),
    ("café au lait", "cafe\u0301 au lait"),
    ("ｶﾞﾗｽ", "ガラス"),
    ("Can I pay\u00a0later?", "can I pay later?"),
    ("line one \r\nline two\n", "line one\nline two"),
)
DIFFERENT = (
    ("10⁵ units", "105 units"),
    ("2½ cups", "21⁄2 cups"),
    ("开启自动续费", "关闭自动续费"),
    ("转账100元", "转账1000元"),
    ("What does US mean?", "What does us mean?"),
    ("Polish furniture", "polish furniture"),
    ("HOW do I pay?", "how do I pay?"),
    ("if x:\n  a\nb", "if x:\n  a\n  b"),
    ("You are open.", "You are open?"),
    ("退 货", "退货"),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_way_a_question_is_typed_does_not_count(one: str, other: str) -> None:
    """Width, composition, doubled blanks and a first word's capital make no other question."""
    assert normalise_text(one) == normalise_text(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_change_the_meaning_counts(one: str, other: str) -> None:
    """Powers, fractions, negations, numbers, names, and the layout of code stay apart."""
    assert normalise_text(one) != normalise_text(other)


@given(st.text(alphabet="aA1⁵ \u3000\u00a0\n\t?？ｶﾞé\u0301Ｈow"))
def test_normal_texts_stay_as_they_are(text: str) -> None:
    """What is normal already is not changed again, so that a text and its normal form are one question."""
    once = normalise_text(text)
    assert normalise_text(once) == once
