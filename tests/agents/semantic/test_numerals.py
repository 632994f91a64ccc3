"""Numbers in digits, English words and Chinese numerals come out alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.semantic.language import fold
from agents.semantic.numerals import find_numbers, spell_digits

_DIGITS, _POWERS = "零一二三四五六七八九", ("", "十", "百", "千")


def numbers(text: str) -> tuple[str, ...]:
    """Those of a text as people write it."""
    return find_numbers(spell_digits(fold(text)))


def in_chinese(value: int) -> str:
    """A number from 1 to 99,999,999 in Chinese numerals."""
    if value >= 10_000:
        high, low = divmod(value, 10_000)
        return in_chinese(high) + "万" + ("" if low == 0 else ("零" if low < 1000 else "") + in_chinese(low))
    text, zero = "", False
    for place in range(3, -1, -1):
        digit = value // 10**place % 10
        if digit == 0:
            zero = bool(text)
            continue
        text += ("零" if zero else "") + _DIGITS[digit] + _POWERS[place]
        zero = False
    return text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("transfer 100 dollars", "transfer one hundred dollars"),
        ("two thousand five hundred", "2,500"),
        ("2.5k followers", "2500 followers"),
        ("twenty-five", "25"),
        ("转账100元", "转账一百元"),
        ("两千五", "2500"),
        ("一万二", "12000"),
        ("1.5万", "一万五千"),
        ("百分之十", "10%"),
        ("ten percent", "10 percent"),
        ("第三关", "第3关"),
        ("the second door", "the 2nd door"),
        ("下午三点半", "15:30"),
        ("3:30 pm", "15:30"),
        ("１００", "100"),
        ("三百零五", "305"),
    ],
)
def test_one_number_has_many_spellings(one: str, other: str) -> None:
    """However it is written, it is the same number."""
    assert numbers(one) == numbers(other) != ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("6:30 am", "6:30 pm"),
        ("10%", "10"),
        ("第3关", "3关"),
        ("2 adults and 3 children", "3 adults and 2 children"),
        ("one hundred", "one thousand"),
        ("一百", "一百一"),
        ("1.5", "15"),
        ("x2", "double"),
    ],
)
def test_other_numbers_are_told_apart(one: str, other: str) -> None:
    """Kinds count, and so does the order."""
    assert numbers(one) != numbers(other)


@pytest.mark.parametrize("text", ["等一下", "which one is this one", "我们一起去", "千万别忘了", "a new one", "十分好看"])
def test_sayings_hold_no_number(text: str) -> None:
    """Words that only look like numbers are none."""
    assert numbers(text) == ()


@given(st.integers(2, 99_999_999))
def test_every_chinese_numeral_is_read(value: int) -> None:
    """Whatever its zeros and powers."""
    assert numbers(f"买{in_chinese(value)}股") == (str(value),)


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """No text raises."""
    numbers(text)
