"""A message cut into clauses, each with its mood: what is asked, supposed or quoted states nothing; what clauses mean is `extract`."""

from __future__ import annotations

import re

import msgspec

from agents.facts.finder import Finder, encode
from agents.facts.moods import Mood, Moods, is_tag
from agents.rules.normalize import fold_width


class Clause(msgspec.Struct, frozen=True):
    """A piece of a text without a comma in it, as it was written (in one form of width)."""

    text: str
    mood: Mood
    start: int
    """Its place in the text that was cut."""
    sentence: int
    """Which sentence it is of, from 0."""


# Each repeat below stands before a character that it cannot take, so cutting takes time in proportion to the text.
_ENDS = re.compile("[!?。！？;；\n.]+")
_ABBREVIATED = re.compile(r"(?:(?:^|\s)[A-Z]|\b[Nn]o|\b[Rr]ef|\b(?:Mr|Mrs|Ms|Dr|St|vs|etc))$")
"""A full stop behind these ends no sentence: `St. Louis`, `J. Smith`, `no. 5`."""

_COMMAS = re.compile("[,，、:：—–…]| - ")
_GOES_ON = re.compile(r" ?(?:19|20)\d\d\b|\d{3}(?!\d)")
"""Behind a comma: a year or thousands, which belong to what stands before it."""

_LABEL = re.compile(
    r"^\s*(?:(?:my|the|our|your)\s)?(?:[a-z]+\s){0,2}?(?:name|number|no|id|code|reference|ref|order|e-?mail|phone|mobile|address|city|budget|language)$"
    r"|(?:姓名|名字|联系人|收件人|单号|订单|编号|号码|电话|手机号?|邮箱|地址|城市|预算)$",
    re.IGNORECASE,
)
_LABEL_ENDS = frozenset("erodflsytERODFLSYT名字人号单编码话机箱址市算")
"""Their last letters: a text of nothing but colons would take 10 ms if each were looked at closely."""

_LABEL_CHARS = 40
"""How many of its characters are looked at. Words before a colon that say what stands behind it, as forms have them: `Order number: A-12` is one statement."""

_CONTRAST = re.compile(r"\b(?:but(?! also)|however|although|because)\b|但是|(?<!不)但|可是|不过(?!敏)|因为|而且|所以", re.IGNORECASE)
_HAS_CONTRAST = Finder(r"\b(?:but|however|although|because)\b|但|可是|不过|因为|而且|所以")
_RATHER = re.compile(r"(?:\bnot|n't)(?: [^\s]+){1,3} $")
_RATHER_CHARS = 40
"""`not Ann but Eve` is one statement; the words between are few."""

_AND = re.compile(
    r" and (?=(?:i|i'm|i'd|i've|my|we|our|you|your|please|can|could|would|is|are|do|does|what|how|when|where|who|call|it|the)\b)",
    re.IGNORECASE,
)
_SPOKEN_QUOTE = re.compile(
    (
        r"(?:\b(?:said|says|say|told|tells|wrote|writes|asked|asks|reads?|replied|shouts?|shouted|quote|called|answered|like|titled)|说|"
        r"写道|写着|问|道|回答|显示|原话)[^\"“”「」『』\n]{0,20}?[:：,，]?\s*(?:\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|「[^」\n]{0,400}」|『[^』\n]{0,400}』)"
    ),
    re.IGNORECASE,
)
_QUOTED = re.compile('"([^"\n]{0,400})"|“([^”\n]{0,400})”|「([^」\n]{0,400})」|『([^』\n]{0,400})』')
_MARKS = str.maketrans(dict.fromkeys('"“”「」『』', " ") | {"’": "'", "‘": "'"})
_QUOTES = frozenset('"“”「」『』')
_SHORT_QUOTE = 24
"""Characters of a quotation that may still be a value (`my name is "Ann Lee"`); longer ones are somebody's words."""


MAX_CLAUSES = 40
"""Of a text, and of its sentences: reading one takes up to 0.1 ms, and two thousand characters of commas held the loop for 30 ms. At worst 5 ms."""


def cut(text: str) -> tuple[Clause, ...]:
    """The first `MAX_CLAUSES` clauses in order; pure, some ten microseconds a clause."""
    plain = _without_quotations(fold_width(text))
    parts: list[_Sentence] = []
    left = MAX_CLAUSES
    for start, end, mark in _sentences(plain):
        pieces = _pieces(plain[start:end])[:left]
        parts.append(_Sentence(start, plain[start:end], "?" in mark, pieces))
        left -= len(pieces)
        if left <= 0:
            break
    moods = Moods([part.text[start:end].strip() for part in parts for start, end in part.pieces])
    found: list[Clause] = []
    for number, part in enumerate(parts):
        _add_clauses(part, number, moods, found)
    return tuple(found)


def sentences(whole: str) -> tuple[Clause, ...]:
    """The same without cutting at commas."""
    plain = _without_quotations(fold_width(whole))
    parts = [(end - len(plain[start:end].lstrip()), plain[start:end].strip(), mark) for start, end, mark in _sentences(plain)[:MAX_CLAUSES]]
    moods = Moods([text for _, text, _ in parts])
    return tuple(Clause(text, moods.of(text, asked="?" in mark), start, number) for number, (start, text, mark) in enumerate(parts))


class _Sentence(msgspec.Struct, frozen=True):
    start: int
    text: str
    asked: bool
    pieces: list[tuple[int, int]]


def _without_quotations(text: str) -> str:
    """What somebody said or wrote blanked out, other marks of quotation left out; every character keeps its place."""
    if _QUOTES.isdisjoint(text):
        return text.replace("’", "'")
    text = _SPOKEN_QUOTE.sub(lambda match: _blank_quote(match[0]), text)
    text = _QUOTED.sub(lambda match: match[0] if len(match[0]) <= _SHORT_QUOTE else " " * len(match[0]), text)
    return text.translate(_MARKS)


def _blank_quote(match: str) -> str:
    return _QUOTED.sub(lambda quote: " " * len(quote[0]), match)


def _sentences(text: str) -> list[tuple[int, int, str]]:
    found, start = [], 0
    for match in _ENDS.finditer(text):
        at, end, mark = match.start(), match.end(), match[0]
        if mark == "." and (text[end : end + 1].strip() or _ABBREVIATED.search(text[max(start, at - 4) : at])):
            continue
        found.append((start, at, mark.replace("？", "?")))
        start = end
    found.append((start, len(text), ""))
    return [(start, end, mark) for start, end, mark in found if text[start:end].strip()]


def _add_clauses(part: _Sentence, number: int, moods: Moods, found: list[Clause]) -> None:
    supposed, first, text = False, len(found), part.text
    for start, end in part.pieces:
        piece = text[start:end].strip()
        mood: Mood = "supposes" if supposed else moods.of(piece, asked=part.asked and (start, end) == part.pieces[-1])
        supposed = supposed or (mood == "supposes" and moods.supposes_on(piece))
        if mood == "asks" and is_tag(piece):
            found[first:] = [msgspec.structs.replace(clause, mood="asks") if clause.mood == "states" else clause for clause in found[first:]]
        if mood == "states" and len(found) > first and found[-1].mood == "quotes" and text[:start].rstrip().endswith((":", "：")):
            mood = "quotes"
        found.append(Clause(piece, mood, part.start + end - len(text[start:end].lstrip()), number))


def _pieces(text: str) -> list[tuple[int, int]]:
    marks = [match.span() for match in _COMMAS.finditer(text) if not _joins(text, *match.span())]
    if " and " in text:
        marks += [match.span() for match in _AND.finditer(text)]
    if _HAS_CONTRAST.finds(encode(text)):
        marks += [match.span() for match in _CONTRAST.finditer(text) if not _RATHER.search(text[max(0, match.start() - _RATHER_CHARS) : match.start()])]
    marks.sort()
    found, start = [], 0
    for begin, end in marks:
        found.append((start, begin))
        start = end
    found.append((start, len(text)))
    return [(start, end) for start, end in found if text[start:end].strip()]


def _is_label(before: str) -> bool:
    return before[-1:] in _LABEL_ENDS and _LABEL.search(_COMMAS.split(before)[-1]) is not None


def _joins(text: str, start: int, end: int) -> bool:
    """Whether this comma or colon stands within a number, a date or a time."""
    if text[start] in ":：":
        return text[end : end + 1].isdigit() or _is_label(text[max(0, start - _LABEL_CHARS) : start].rstrip(" "))
    return text[start] == "," and text[start - 1 : start].isdigit() and _GOES_ON.match(text, end) is not None
