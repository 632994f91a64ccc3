"""What a correction means (`no, I meant 12, not 10`, `改成12个`): which known fact it is of, and the new value; plain statements are `extract`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from agents.facts.clauses import Clause
from agents.facts.dates import read_date
from agents.facts.pieces import PIECES
from agents.facts.values import agree, read_value
from agents.rules.patterns import Pattern, compile_pattern
from schemas.facts import Date, Fact, Facts, Number, Text, Value

CONFIDENCE = 0.8
"""Of a corrected value: the slot is guessed from what was said last."""


def _piece(source: str) -> Pattern:
    pattern = compile_pattern(source)
    if not isinstance(pattern, Pattern):  # our own sources
        raise TypeError(source)
    return pattern


_WORD = r"(?:(?-i:[A-ZÀ-Þ])[A-Za-zÀ-ɏ'-]+(?: (?-i:[A-ZÀ-Þ])[A-Za-zÀ-ɏ'-]+)*|[A-Z]+-?[0-9]+(?:-[A-Z0-9]+)*)"
_END = re.compile(r"(?: (?:please|instead|in fact|actually|then))+$|(?:吧|了|啊|哦|谢谢|才对|就行)+$", re.IGNORECASE)
_LEAD = re.compile(
    r"^.*?\b(?:i meant|i mean|i actually meant|make (?:it|that)|change (?:it|that) to|move (?:it|that) to|actually it's|"
    r"it's actually|actually|it is|it's|it should be|should be|rather|correction|i misspoke)\b"
    r"(?: is| to| for| on| it's)*\s*|^[^改换应我更其]*(?:改成|改到|改为|换成|应该是|我是说|我说的是|更正为?|其实是|而是)\s*|^是\s*",
    re.IGNORECASE,
)
_DATES = (_piece(f"^(?P<value>{PIECES['date']})$"), _piece(f"^(?P<value>{PIECES['date_zh']})$"))
_NUMBERS = (_piece(rf"^(?P<value>[$€£]?{PIECES['number']}) ?(?P<key>[a-z ]+|[€$£])?$"), _piece(rf"^(?P<value>[¥]?{PIECES['number_zh']}) ?(?P<key>[一-鿿]+)?$"))
_PLACE = _piece(f"^(?P<value>{_WORD}|[一-鿿]{{2,6}})$")
_OLD = re.compile(
    (
        r"^(?:(?:and )?not (?:for |on |at )?|不是 ?)(?P<value>[$€£¥]?[0-9][0-9,.]*k?|[A-Za-zÀ-ɏ0-9:'-]+(?: [A-Z][A-Za-z'-]+)*|"
        r"[零〇一二两三四五六七八九十百千万]+|[一-鿿]{2,8})(?: ?(?:[a-z]+|[一-鿿]))?$"
    ),
    re.IGNORECASE,
)

_MEANT = re.compile(
    r"^(?:(?:oh|ah|oops|wait|sorry|no|well|hold on|ok|okay)\b[ ]*)*(?:i (?:actually )?mean[t]?|i misspoke|make (?:it|that)|"
    r"change (?:it|that)|move (?:it|that)|actually|it's actually|it should be|should be|correction|rather)\b"
    r"|^(?:不|哦|抱歉|不好意思|等等|等一下|请|那就|还是|那|麻烦|帮我|把它|把)*(?:[一-鿿]{1,4})?(?:改成|改到|改为|换成|应该是|我是说|我说的是|更正|其实是|而是)",
    re.IGNORECASE,
)
_MEASURE = re.compile("[个张本件条只台部份套盒瓶双间杯支箱把匹头辆颗]")
"""Words that count and name nothing: `改成二十五支` may be said of anything."""

_NAME_WORDS = 3
"""Of a text that a corrected word may stand for; longer ones are phrases, which nobody corrects by one word."""

_NO_WORDS = ("goal", "address", "email", "phone")
"""Slots whose value is never one word or one code."""

_RATHER = re.compile(r"(?:\bnot|n't) (?:for |on |at )?(?P<old>[^\s]{1,30})(?: [a-z]+)? but (?:rather |for |on |at )?(?P<new>.{1,60})$", re.IGNORECASE)
"""Both values in one clause: `it isn't 150 gold but 180 gold`."""

_TAKES_BACK = re.compile(
    r"^(?:oh |wait |ah |oops )?(?:no|sorry|wait|oops|correction|hold on|not quite|不|不对|抱歉|错了|说错了|我说错了|不好意思|等等)$", re.IGNORECASE
)


def correct(clauses: Sequence[Clause], found: Sequence[Fact], known: Facts, at_ms: int, *, month_first: bool) -> list[Fact]:
    """The facts that a text corrects, of those just `found` in it and of those `known`; nothing when it is not clear which."""
    corrected: list[Fact] = []
    for index, clause in enumerate(clauses):
        if clause.mood != "states":
            continue
        before, after = clauses[index - 1] if index else None, clauses[index + 1] if index + 1 < len(clauses) else None
        old = _old_value(after) or _old_value(before)
        meant = _MEANT.search(clause.text) is not None or (before is not None and _TAKES_BACK.match(before.text) is not None)
        text, rather = clause.text, _RATHER.search(clause.text)
        if rather is not None:
            text, old = rather["new"], rather["old"]
        if not meant and old is None:
            continue
        said = _new_value(text, at_ms, month_first=month_first)
        if said is None:
            continue
        value, key = said
        target = _target(value, key, old, text, (*found, *sorted(known.facts, key=lambda fact: fact.stamp, reverse=True)))
        if target is not None:
            corrected.append(msgspec.structs.replace(target, value=_in_unit(value, target), denied=False, confidence=CONFIDENCE))
    return corrected


def _new_value(text: str, at_ms: int, *, month_first: bool) -> tuple[Value, str] | None:
    raw = _END.sub("", _LEAD.sub("", text, count=1)).encode("utf-8", "replace")
    for pattern in _DATES:
        if groups := pattern.search(raw):
            date = read_date(groups["value"], at_ms, month_first=month_first)
            if date is not None:
                return date, ""
    for pattern in _NUMBERS:
        if groups := pattern.search(raw):
            number = read_value("number", groups["value"], groups.get("key", ""), {}, yes=True, at_ms=at_ms, month_first=month_first)
            if number is not None:
                return number, groups.get("key", "")
    groups = _PLACE.search(raw)
    return (Text(groups["value"]), "") if groups else None


def _old_value(clause: Clause | None) -> str | None:
    if clause is None:
        return None
    match = _OLD.match(clause.text)
    return match["value"].strip() if match else None


def _target(value: Value, key: str, old: str | None, text: str, facts: Sequence[Fact]) -> Fact | None:
    """The fact that is meant: the one with the old value, else the one whose unit or thing was named, else the one said last of that type."""
    same_type = [fact for fact in facts if type(fact.value) is type(value) and _alike(fact, value)]
    if old is not None:
        return next((fact for fact in same_type if _says(fact.value, old)), None)
    named = next((fact for fact in same_type if fact.key and fact.key in text.lower()), None)
    if named is not None:
        return named
    if key and not _MEASURE.fullmatch(key) and isinstance(value, Number):
        from_key = [fact for fact in same_type if isinstance(fact.value, Number) and (fact.value.unit == value.unit or _names(fact.key, key))]
        return from_key[0] if from_key else None
    return same_type[0] if same_type else None


def _alike(fact: Fact, value: Value) -> bool:
    """A code is no name and a name no goal: of texts only those can take each other's place that look alike."""
    if not isinstance(value, Text) or not isinstance(fact.value, Text):
        return True
    coded = any(char.isdigit() for char in value.text)
    return coded == any(char.isdigit() for char in fact.value.text) and len(fact.value.text.split()) <= _NAME_WORDS and fact.slot not in _NO_WORDS


def _says(value: Value, raw: str) -> bool:
    match value:
        case Number():
            other = read_value("number", raw, "", {}, yes=True, at_ms=-1, month_first=False)
            return other is not None and agree(value, other)
        case Text():
            return agree(value, Text(raw))
        case Date():
            date = read_date(raw, -1, month_first=False)
            return date is not None and agree(value, date)
        case _:
            return False


def _names(key: str, word: str) -> bool:
    return bool(key) and (key in word.lower() or word.lower().rstrip("s") in key)


def _in_unit(value: Value, target: Fact) -> Value:
    """`I meant 12` is of the unit that was said before; a new time of day keeps the day."""
    if isinstance(value, Number) and isinstance(target.value, Number):
        return Number(value.number, target.value.unit)
    if isinstance(value, Date) and isinstance(target.value, Date):
        old = target.value
        if value.month is None and value.weekday is None:
            return Date(old.year, old.month, old.day, old.weekday, value.hour, value.minute)
        if value.hour is None:
            return msgspec.structs.replace(value, hour=old.hour, minute=old.minute)
    return value
