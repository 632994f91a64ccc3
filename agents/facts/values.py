"""Pieces of text read as typed values, and whether two values agree; where the pieces stand is told by the patterns of `slots`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import assert_never

from agents.facts.dates import agree_dates, read_date
from agents.facts.pieces import PIECES
from agents.semantic.numerals import find_numbers, spell_digits
from schemas.facts import Choice, Date, Number, Text, Value, YesNo
from schemas.settings_facts import SlotType

_CURRENCIES = {
    "EUR": "€ eur euro euros 欧元 欧",
    "USD": "$ usd dollar dollars bucks us$ 美元 美金 刀",
    "GBP": "£ gbp pound pounds quid 英镑",
    "CNY": "¥ ￥ cny rmb yuan 元 块 块钱 人民币 元钱",
    "JPY": "jpy yen 日元",
    "gold": "gold coins coin 金币",
}
_UNITS = {
    "minute": "minute minutes min mins 分钟",
    "hour": "hour hours hr hrs h 小时 个小时 钟头 个钟头",
    "day": "day days 天 日",
    "week": "week weeks 周 星期 个星期",
    "month": "month months 个月 月",
    "year": "year years 年 岁",
    "person": "person persons people guest guests adult adults traveller travellers 人 个人 位 名",
    "kg": "kg kilo kilos kilogram kilograms 公斤 千克",
    "%": "% percent",
}
UNITS: dict[str, str] = {word: unit for table in (_CURRENCIES, _UNITS) for unit, words in table.items() for word in words.split()}
MONEY = frozenset(_CURRENCIES)

_PLAIN_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?\Z")
_ONE = frozenset(("one", "a", "an", "a single", "一"))
_MEASURE_WORDS = re.compile(f"^{PIECES['measure_zh']}\\Z")
_EDGES = " \t,，.。!！?？:：;；'\"()（）#"
_CODE = re.compile(r"[\s#\-]+")
_TITLES_ZH = re.compile("(?:先生|女士|小姐|同学|老师|太太)\\Z")
_SUFFIX_ZH = re.compile("[市省县区]\\Z")


def read_value(kind: SlotType, raw: str, unit: str, choices: Mapping[str, tuple[str, ...]], *, yes: bool, at_ms: int, month_first: bool) -> Value | None:
    """The value that `raw` says; None when it is none of the type."""
    raw = raw.strip(_EDGES)
    match kind:
        case "text":
            return Text(raw) if raw else None
        case "number":
            return _read_number(raw, unit)
        case "date":
            return read_date(raw, at_ms, month_first=month_first)
        case "yes_no":
            return YesNo(yes)
        case "choice":
            return _read_choice(raw, choices)
        case _:
            assert_never(kind)


def agree(one: Value, other: Value) -> bool:
    """Whether they can both be true of one slot; values of different types or units are no contradiction, since they say different things."""
    match one:
        case Text():
            return not isinstance(other, Text) or _agree_texts(one.text, other.text)
        case Number():
            return not isinstance(other, Number) or _differ_in_unit(one, other) or math.isclose(one.number, other.number, rel_tol=1e-9)
        case Date():
            return not isinstance(other, Date) or agree_dates(one, other)
        case YesNo():
            return not isinstance(other, YesNo) or one.yes == other.yes
        case Choice():
            return not isinstance(other, Choice) or one.choice == other.choice
        case _:
            assert_never(one)


def same(one: Value, other: Value) -> bool:
    """Whether the second restates the first: equal but for the way it is written."""
    if isinstance(one, Text) and isinstance(other, Text):
        return _bare(one.text) == _bare(other.text)
    return one == other


def read_unit(word: str) -> str:
    """The canonical name of a unit; empty for words that only count (个, 张) and for none."""
    word = word.strip(_EDGES).lower()
    if not word or _MEASURE_WORDS.match(word):
        return UNITS.get(word, "") if word == "块" else ""
    return UNITS.get(word, word)


def _read_number(raw: str, unit: str) -> Number | None:
    text = raw.lower()
    for mark in ("€", "$", "£", "¥", "￥"):
        if mark in text:
            unit, text = unit or mark, text.replace(mark, " ").strip()
    text = text.replace(",", "").strip()
    if text.endswith(" dozen") and text != "a dozen":
        count = _read_number(text.removesuffix(" dozen"), unit)
        return Number(count.number * 12, count.unit) if count is not None else None
    if _PLAIN_NUMBER.match(text):
        return Number(float(text), read_unit(unit))
    if text in _ONE:
        return Number(1.0, read_unit(unit))
    numbers = find_numbers(spell_digits(text))
    if len(numbers) != 1 or _PLAIN_NUMBER.match(numbers[0]) is None:
        return None
    return Number(float(numbers[0]), read_unit(unit))


def _read_choice(raw: str, choices: Mapping[str, tuple[str, ...]]) -> Choice | None:
    said = raw.casefold()
    for name, words in choices.items():
        if said == name.casefold() or any(said == word.casefold() for word in words):
            return Choice(name)
    return None


def _differ_in_unit(one: Number, other: Number) -> bool:
    return one.unit != other.unit and bool(one.unit) and bool(other.unit)


def _agree_texts(one: str, other: str) -> bool:
    """`Ann` and `Ann Lee` may be one person, `王先生` and `王小明` too; `A-12` and `a12` are one code, `A-12` and `A-123` are two."""
    first, second = _bare(one), _bare(other)
    if first == second:
        return True
    if any(char.isdigit() for char in first + second):
        return False
    if not first.isascii() or not second.isascii():
        shorter, longer = sorted((_TITLES_ZH.sub("", first), _TITLES_ZH.sub("", second)), key=len)
        return longer.startswith(shorter) or longer.endswith(shorter)
    words, others = set(re.findall(r"[^\W_]+", one.casefold())), set(re.findall(r"[^\W_]+", other.casefold()))
    return bool(words) and bool(others) and (words <= others or others <= words)


def _bare(text: str) -> str:
    return _SUFFIX_ZH.sub("", _CODE.sub("", text.casefold()))
