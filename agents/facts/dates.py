"""Days and times of day read from English and Chinese, as far as they are said; other values are `values`."""

from __future__ import annotations

import datetime
import re

from agents.semantic.numerals import find_numbers, spell_digits
from schemas.facts import Date

_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_WEEKDAYS = {name: number for number, name in enumerate("mon tue wed thu fri sat sun".split(), 1)}
_WEEKDAYS_ZH = {name: number for number, name in enumerate("一二三四五六日", 1)} | {"天": 7}
_RELATIVE = {
    "the day after tomorrow": 2,
    "day after tomorrow": 2,
    "tomorrow": 1,
    "today": 0,
    "tonight": 0,
    "大后天": 3,
    "后天": 2,
    "明天": 1,
    "明晚": 1,
    "今天": 0,
    "今晚": 0,
}

_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_SLASHED = re.compile(r"\b(\d{1,2})/(\d{1,2})(?:/(\d{4}))?\b")
_MONTH_DAY = re.compile(r"\b([a-z]{3})[a-z]*\.? (?:the )?(\d{1,2})(?:st|nd|rd|th)?\b(?:,? (\d{4}))?(?! ?[ap]m)")
_DAY_MONTH = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)? (?:of )?([a-z]{3})[a-z]*\b(?:,? (\d{4}))?")
_WEEKDAY = re.compile(r"\b(mon|tue|wed|thu|fri|sat|sun)[a-z]*\b")
_MONTH_DAY_ZH = re.compile(r"(?:(\d{4})年)?(\d{1,2}|[一二两三四五六七八九十]{1,3})月(\d{1,2}|[一二两三四五六七八九十]{1,3})[日号]?")
_WEEKDAY_ZH = re.compile("(?:周|星期|礼拜)([一二三四五六日天])")
_TIME = re.compile(r"\b(\d{1,2})(?:[:.](\d\d))? ?(am|pm|a\.m|p\.m)|\b(\d{1,2}):(\d\d)\b|\b(noon|midnight)\b")
_TIME_ZH = re.compile(
    r"(上午|早上|早晨|凌晨|中午|下午|傍晚|晚上|今晚|明晚)?(\d{1,2}|[一二两三四五六七八九十]{1,3})[点时:](半|一刻|\d{1,2}|[一二三四五六七八九十]{1,3})?"
)
_LATE = ("下午", "傍晚", "晚上", "今晚", "明晚")
_NOON, _DAY_HOURS, _HOUR_MINUTES = 12, 24, 60


def read_date(raw: str, at_ms: int, *, month_first: bool) -> Date | None:
    """What `raw` says of a day and a time; `at_ms` is the local time in which `tomorrow` is meant (negative: unknown, such words say nothing)."""
    text = raw.lower()
    year, month, day = _read_day(text, month_first=month_first)
    weekday = _read_weekday(text)
    hour, minute = _read_time(text)
    if month is None and at_ms >= 0:
        ahead = next((days for word, days in _RELATIVE.items() if word in text), None)
        if ahead is not None:
            when = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC) + datetime.timedelta(days=ahead)
            year, month, day, weekday = when.year, when.month, when.day, when.isoweekday()
    if month is None and weekday is None and hour is None:
        return None
    if month is not None and not (1 <= month <= 12 and day is not None and 1 <= day <= 31):  # noqa: PLR2004  # the calendar's own figures
        return None
    return Date(year, month, day, weekday, hour, minute)


def agree_dates(one: Date, other: Date) -> bool:
    """Whether no part that both name differs; a weekday and a day of the month without a year cannot be compared."""
    pairs = ((one.year, other.year), (one.month, other.month), (one.day, other.day), (_weekday(one), _weekday(other)), (one.hour, other.hour))
    if any(mine is not None and theirs is not None and mine != theirs for mine, theirs in pairs):
        return False
    return one.hour is None or other.hour is None or (one.minute or 0) == (other.minute or 0)


def _weekday(date: Date) -> int | None:
    if date.weekday is not None or date.year is None or date.month is None or date.day is None:
        return date.weekday
    try:
        return datetime.date(date.year, date.month, date.day).isoweekday()
    except ValueError:
        return None


def _read_day(text: str, *, month_first: bool) -> tuple[int | None, int | None, int | None]:
    if match := _ISO.search(text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := _MONTH_DAY_ZH.search(text):
        return _int(match[1]), _count(match[2]), _count(match[3])
    for match in _MONTH_DAY.finditer(text):
        if match[1] in _MONTHS:
            return _int(match[3]), _MONTHS[match[1]], int(match[2])
    for match in _DAY_MONTH.finditer(text):
        if match[2] in _MONTHS:
            return _int(match[3]), _MONTHS[match[2]], int(match[1])
    if match := _SLASHED.search(text):
        month, day = (match[1], match[2]) if month_first else (match[2], match[1])
        return _int(match[3]), int(month), int(day)
    return None, None, None


def _read_weekday(text: str) -> int | None:
    if match := _WEEKDAY_ZH.search(text):
        return _WEEKDAYS_ZH[match[1]]
    match = _WEEKDAY.search(text)
    return _WEEKDAYS[match[1]] if match else None


def _read_time(text: str) -> tuple[int | None, int | None]:
    if match := _TIME.search(text):
        if match[6]:
            return (_NOON if match[6] == "noon" else 0), 0
        if match[4]:
            return _clock(int(match[4]), int(match[5]))
        return _clock(int(match[1]) % _NOON + (_NOON if match[3].startswith("p") else 0), int(match[2] or 0))
    match = _TIME_ZH.search(text)
    if match is None:
        return None, None
    hour, rest = _count(match[2]), match[3] or ""
    minute = 30 if rest == "半" else 15 if rest == "一刻" else _count(rest) if rest else 0
    if hour is None or minute is None:
        return None, None
    return _clock(hour + _NOON if match[1] in _LATE and hour < _NOON else hour, minute)


def _clock(hour: int, minute: int) -> tuple[int | None, int | None]:
    return (hour, minute) if hour < _DAY_HOURS and minute < _HOUR_MINUTES else (None, None)


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _count(text: str) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    numbers = find_numbers(spell_digits(text))
    return int(numbers[0]) if len(numbers) == 1 and numbers[0].isdigit() else (1 if text == "一" else None)
