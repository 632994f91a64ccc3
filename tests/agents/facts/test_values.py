"""Pieces of text read as values, and when two agree."""

from __future__ import annotations

import pytest

from agents.facts.dates import agree_dates, read_date
from agents.facts.values import agree, read_value, same
from schemas.facts import Choice, Date, Number, Text, Value, YesNo
from tests.agents.facts.playing import START_MS


@pytest.mark.parametrize(
    ("raw", "unit", "value"),
    [
        ("12", "", 12),
        ("1,500.50", "", 1500.5),
        ("two hundred and five", "", 205),
        ("three dozen", "", 36),
        ("a dozen", "", 12),
        ("2k", "", 2000),
        ("三千五", "", 3500),
        ("两", "个", 2),
        ("one", "", 1),
    ],
)
def test_numbers(raw: str, unit: str, value: float) -> None:
    """Digits, words and Chinese numerals say the same numbers."""
    assert read_value("number", raw, unit, {}, yes=True, at_ms=-1, month_first=False) == Number(value)


@pytest.mark.parametrize(("raw", "unit", "name"), [("$5", "", "USD"), ("5", "euros", "EUR"), ("5", "块钱", "CNY"), ("5", "小时", "hour"), ("5", "个", "")])
def test_units(raw: str, unit: str, name: str) -> None:
    """A unit has one name, however it is written; measure words are none."""
    assert read_value("number", raw, unit, {}, yes=True, at_ms=-1, month_first=False) == Number(5, name)


@pytest.mark.parametrize(
    ("raw", "date"),
    [
        ("2026-03-05", Date(2026, 3, 5)),
        ("March 5th at 3 pm", Date(None, 3, 5, None, 15, 0)),
        ("the 5th of March 2027", Date(2027, 3, 5)),
        ("next Friday at 12:30", Date(None, None, None, 5, 12, 30)),
        ("12 am", Date(hour=0, minute=0)),
        ("tomorrow", Date(2026, 1, 2, 5)),
        ("三月五号下午三点半", Date(None, 3, 5, None, 15, 30)),
        ("周三11点", Date(None, None, None, 3, 11, 0)),
        ("十二点一刻", Date(hour=12, minute=15)),
    ],
)
def test_dates(raw: str, date: Date) -> None:
    """Days and times are read as far as they are said."""
    assert read_date(raw, START_MS, month_first=False) == date


@pytest.mark.parametrize("raw", ["5 apples", "2026-13-40", "soon", "25:99", ""])
def test_no_dates(raw: str) -> None:
    """What is no day and no time is no value."""
    assert read_date(raw, START_MS, month_first=False) is None


def test_slashes_follow_the_locale() -> None:
    """3/5 is in March for who writes months first, and in May for the others."""
    assert read_date("3/5", -1, month_first=True) == Date(None, 3, 5)
    assert read_date("3/5", -1, month_first=False) == Date(None, 5, 3)


def test_dates_agree_in_what_both_say() -> None:
    """A weekday is compared with a full date, and with a day of a month of no year it is not."""
    assert agree_dates(Date(2026, 1, 2), Date(weekday=5))
    assert not agree_dates(Date(2026, 1, 2), Date(weekday=4))
    assert agree_dates(Date(None, 1, 2), Date(weekday=4))
    assert not agree_dates(Date(weekday=5, hour=15, minute=0), Date(weekday=5, hour=16))


@pytest.mark.parametrize(
    ("one", "other", "agrees"),
    [
        (Text("Bob Smith"), Text("Bob"), True),
        (Text("Bob"), Text("Rob"), False),
        (Text("A-12"), Text("a12"), True),
        (Text("A-12"), Text("A-123"), False),
        (Text("王小明"), Text("王先生"), True),
        (Text("王小明"), Text("李小明"), False),
        (Number(5, "EUR"), Number(5.0), True),
        (Number(5, "EUR"), Number(6, "EUR"), False),
        (Number(5, "EUR"), Number(6, "hour"), True),
        (YesNo(True), YesNo(False), False),
        (Choice("red"), Choice("blue"), False),
        (Choice("red"), Text("blue"), True),
    ],
)
def test_agreement(one: Value, other: Value, agrees: bool) -> None:
    """Two values contradict each other only when they say different things of the same kind; order does not matter."""
    assert agree(one, other) == agree(other, one) == agrees


def test_a_longer_name_is_news() -> None:
    """`Bob Smith` agrees with `Bob` and still replaces it."""
    assert not same(Text("Bob"), Text("Bob Smith"))
    assert same(Text("A-12"), Text("a 12"))
