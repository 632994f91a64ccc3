"""Facts as a prompt quotes them: one JSON object, data and never instructions; where it stands in the prompt is `agents.context`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from agents.facts.slots import SlotSet
from schemas.facts import Choice, Date, Fact, Number, Text, Value, YesNo

_UNIT_WORDS = {
    "zh": {
        "EUR": "欧元",
        "USD": "美元",
        "GBP": "英镑",
        "CNY": "元",
        "JPY": "日元",
        "person": "人",
        "day": "天",
        "hour": "小时",
        "minute": "分钟",
        "gold": "金币",
    }
}
_WEEKDAYS = {"en": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(), "zh": "周一 周二 周三 周四 周五 周六 周日".split()}


def render_facts(facts: Iterable[Fact], budget_chars: int, locale: str, slots: SlotSet) -> str:
    """As many facts as fit into `budget_chars`, as one line of JSON; empty when none fits.

    Pinned facts have the first claim, then the newest; the line is in the order of the names, so that a new fact does not move those before it. Line
    ends and quotes are escaped: no value ends the object it stands in.
    """
    language = "zh" if locale.lower().startswith("zh") else "en"
    ordered = sorted(facts, key=lambda fact: (not fact.pinned, tuple(-part for part in fact.stamp[:2]), fact.identity))
    shown: dict[str, Any] = {}
    for fact in ordered:
        _show(shown, fact, slots.label(fact.slot, locale), language)
    if not ordered or len(line := _line(shown)) <= budget_chars:
        return line if ordered else ""
    chosen: dict[str, Any] = {}
    text = ""
    for fact in ordered:
        trial = {label: dict(said) if isinstance(said, dict) else said for label, said in chosen.items()}
        _show(trial, fact, slots.label(fact.slot, locale), language)
        if len(line := _line(trial)) <= budget_chars:
            chosen, text = trial, line
    return text


def render_value(value: Value, language: str) -> str:
    """One value in words that a model of that language (`en` or `zh`) reads."""
    match value:
        case Text():
            return value.text
        case Choice():
            return value.choice
        case YesNo():
            return ("是" if value.yes else "否") if language == "zh" else ("yes" if value.yes else "no")
        case Number():
            unit = _UNIT_WORDS.get(language, {}).get(value.unit, value.unit)
            return f"{value.number:.10g}" + (unit if language == "zh" else f" {unit}" if unit else "")
        case Date():
            return _render_date(value, language)
        case _:
            assert_never(value)


def _show(shown: dict[str, Any], fact: Fact, label: str, language: str) -> None:
    said = render_value(fact.value, language)
    if fact.denied:
        said = f"不是{said}" if language == "zh" else f"not {said}"
    if not fact.key:
        shown[label] = said
    elif isinstance(inner := shown.setdefault(label, {}), dict):
        inner[fact.key] = said


def _line(shown: dict[str, Any]) -> str:
    return msgspec.json.encode(shown, order="sorted").decode()


def _render_date(date: Date, language: str) -> str:
    day = ""
    if date.month is not None and date.day is not None:
        day = f"{date.month:02d}-{date.day:02d}" if date.year is None else f"{date.year:04d}-{date.month:02d}-{date.day:02d}"
    weekday = _WEEKDAYS[language][date.weekday - 1] if date.weekday is not None else ""
    time = f"{date.hour:02d}:{date.minute or 0:02d}" if date.hour is not None else ""
    return " ".join(part for part in (weekday, day, time) if part)
