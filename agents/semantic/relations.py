"""Which way something goes: from where to where, what is compared with what, who does it to whom; a text and its reverse have the same words."""

from __future__ import annotations

import functools
import re

from agents.semantic.language import CJK, stem
from agents.semantic.lexicon import actors, read_lexicon

_MOVES = frozenset(
    "transf transfer convert translat switch chang mov send upgrad downgrad migrat fly exchang turn ship deliv deliver forward copy travel driv swap compar"
    " tur".split()
)
"""Stems behind which `to` leads to a place or a thing, and not to what somebody wants to do."""

_WISHES = frozenset("want like need have has had able go try how wish allow possibl suppos used way requir love prefer plan ready us".split())
"""In front of `to` and what somebody wants to do."""

_DETERMINERS = frozenset("a an the my your our his her their this that these those it him them".split())

_MARKS = {
    "from": "from",
    "into": "to",
    "than": "than",
    "before": "before",
    "after": "after",
    "until": "before",
    "since": "from",
    "instead": "not",
    "by": "by",
    "via": "by",
    "without": "without",
    "behalf": "for",
}

_THING = rf"[{CJK}a-z\d]"
_BEHIND = "转发打汇寄送付借还充改换调说讲看用买卖存"
"""Where the word behind a person begins."""

_HAND_ON = "转汇发寄送打借付还买卖退"
"""With these somebody is given something; in `给花浇水` nobody is."""

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "move",
        re.compile(
            rf"(?:从|由)({_THING}{{1,10}}?)(?:转账到|转移到|转到|转入|飞到|飞往|开到|寄到|搬到|升级到|升级为|降级到|迁移到|翻译成|译成|换成|换到|改成|改到|变成|到|去|往|飞|转)({_THING}{{1,12}})"
        ),
    ),
    (
        "move",
        re.compile(rf"(?:把|将)?({_THING}{{1,8}}?)(?:兑换成|兑换为|换算成|转换成|转换为|兑换|转成|翻译成|译成|改成|变成|替换成|替换为|换成)({_THING}{{1,8}})"),
    ),
    ("than", re.compile(rf"({_THING}{{1,6}})比(?!如|较|赛|例)({_THING}{{1,6}})")),
)
_BY = re.compile(rf"(?<!理)(?<!自)([被由让替向给跟])(?!于|此|我)({_THING}{{2}})")
_ORDER = re.compile(rf"({_THING}{{2}})(?:之|以)?(前|后)(?!面|门|台|年|天|期|续|边|来|往)")
_LEAD = re.compile("^(?:请问|怎么样|怎么|怎样|如何|我想要|我想|我要|我的|我|把|将|请|想|要)+")
_NO_ORDER = re.compile("目前|之前的|最后|然后|今后|前台|后台|提前|售后|前面|后面|以前|以后再")


def find_relations(words: list[str], folded: str) -> frozenset[tuple[str, str]]:
    """Pairs of a relation and what stands on its far side: (`from`, `saving`), (`than`, `pro`), (`前`, `付款`)."""
    return frozenset({*_english(words), *_chinese(folded)})


def find_actors(text: str) -> tuple[str, ...]:
    """Who is spoken of, in the order of the text (canonical); nothing while it is only the speaker."""
    found = list(dict.fromkeys(actors().find(text)))
    return tuple(found) if set(found) - {"i"} else ()


def _english(words: list[str]) -> list[tuple[str, str]]:
    found = []
    moves = "from" in words or bool(_MOVES & set(words))
    swaps = bool({"replac", "swap", "exchang", "trad", "substitut"} & set(words))
    for place, word in enumerate(words):
        mark = _MARKS.get(word) or (
            "to" if word == "to" and moves and (place == 0 or words[place - 1] not in _WISHES) else "for" if word in ("with", "for") and swaps else None
        )
        if word == "to" and _is_infinitive(words, place):
            continue
        if mark is not None and (thing := _next_thing(words, place + 1)) is not None and not (word == "to" and thing in _MOVES):
            found.append((mark, thing))
    return found


def _is_infinitive(words: list[str], place: int) -> bool:
    """`to borrow a book`, and not `to the library`: what follows has an object of its own."""
    behind = words[place + 1 : place + 3]
    return len(behind) == 2 and behind[0] not in _DETERMINERS and behind[1] in _DETERMINERS  # noqa: PLR2004  # a verb and what begins its object


def _next_thing(words: list[str], start: int) -> str | None:
    """The first word that means something, no further than a few words on."""
    empty = _empty_words()
    for word in words[start : start + 4]:
        if word in _MARKS or word == "to":
            return None
        if word not in empty:
            return word
    return None


@functools.cache
def _empty_words() -> frozenset[str]:
    return frozenset(stem(word) for word in read_lexicon()["fillers"]["en"])


def _chinese(folded: str) -> list[tuple[str, str]]:
    found = []
    for name, pattern in _PATTERNS:
        for match in pattern.finditer(folded):
            source, target = _trim(match[1]), _trim(match[2])
            found += [(f"{name} off", source[-2:]), (f"{name} on", target[:2])]
    hands_on = any(verb in folded for verb in _HAND_ON)
    found += [(match[1], match[2].rstrip(_BEHIND) or match[2]) for match in _BY.finditer(folded) if match[1] != "给" or hands_on]
    found += [(match[2], match[1]) for match in _ORDER.finditer(_NO_ORDER.sub(" ", folded))]
    return found


def _trim(text: str) -> str:
    """Without the words that lead up to a thing."""
    return _LEAD.sub("", text) or text
