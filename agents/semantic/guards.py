"""What two questions must agree on before similarity counts: encoders put `enable` beside `disable` and 100 beside 1000; similarity itself is `encoder`."""

from __future__ import annotations

import functools
import re

import msgspec

from agents.semantic.language import CJK, fold, is_chinese, words_of
from agents.semantic.lexicon import asks, join_verbs, members, opposites, read_lexicon, units
from agents.semantic.meanings import find_meanings, have_swapped
from agents.semantic.names import find_names
from agents.semantic.numerals import find_numbers, spell_digits
from agents.semantic.relations import find_actors, find_relations


class Signature(msgspec.Struct, frozen=True):
    """What a text pins down. Two texts may share an answer only when these are equal; for the last two see `difference`."""

    chinese: bool
    numbers: tuple[str, ...]
    """In order, see `numerals`."""
    units: frozenset[str]
    negated: bool
    """Whether an odd number of words deny something."""
    sides: frozenset[str]
    """Sides of pairs of opposites, as `enable+`."""
    members: frozenset[str]
    """Members of classes that exclude each other, as `colour.red`."""
    names: frozenset[str]
    relations: frozenset[tuple[str, str]]
    actors: tuple[str, ...]
    asks: frozenset[str]
    words: frozenset[str]
    """What is left of the text without words that carry no meaning, synonyms as one: see `difference`."""
    order: tuple[str, ...]
    """The same words as they follow each other; two texts must not be alike but for two parts that have changed places."""


GUARDS = tuple(Signature.__struct_fields__)
EQUAL = tuple(name for name in GUARDS if name not in ("words", "order"))


def signature(text: str) -> Signature:
    """What `text` pins down; pure, about 0.3 ms for a question."""
    folded = join_verbs(fold(text))
    spelled = spell_digits(folded)
    words = words_of(folded)
    flat = " ".join(words)
    meanings = find_meanings(text)
    return Signature(
        chinese=is_chinese(text),
        numbers=find_numbers(spelled),
        units=frozenset(units().find(" ".join(words_of(spelled)))),
        negated=is_negated(folded),
        sides=frozenset(opposites().find(flat)),
        members=frozenset(members().find(flat)),
        names=find_names(text),
        relations=find_relations(words, folded),
        actors=find_actors(flat),
        asks=find_asks(folded),
        words=meanings.words,
        order=meanings.order,
    )


def difference(one: Signature, other: Signature, *, same_words: bool = True) -> str | None:
    """The first guard on which two signatures disagree; None when they agree on all.

    With `same_words` the two speak of the same things, synonyms and order aside. Without, one may say more than the other, but not
    both something else: for encoders that can judge what the rest means.
    """
    equal = next((name for name in EQUAL if getattr(one, name) != getattr(other, name)), None)
    if equal is not None:
        return equal
    if one.words != other.words and (same_words or (one.words - other.words and other.words - one.words)):
        return "words"
    return "order" if have_swapped(one.order, other.order) else None


_ENGLISH_NO = re.compile(
    r"n't\b|n['’]t\b|\b(?:not|never|no|none|nothing|nobody|nowhere|neither|nor|without|cannot|cant|dont|doesnt|didnt|wont|isnt|wasnt|shouldnt|couldnt|unable|hardly|except|avoid|prevent|refrain|lacks?|lacking)\b"
)
_CHINESE_NO = re.compile("不|没|未|别|无法|勿|莫|甭|禁止|免得|避免|防止|拒绝|除了|并非|非(?!常)|无(?=需|权|效|人)")


_EITHER_WAY = re.compile(rf"([{CJK}])[不没]\1")
"""`开不开` asks whether, and denies nothing."""


def is_negated(folded: str) -> bool:
    """Whether an odd number of words of a folded text deny something; sayings such as `能不能` and `why don't you` deny nothing."""
    text = _EITHER_WAY.sub(r"\1", _sayings().sub(" ", folded))
    return (len(_ENGLISH_NO.findall(text)) + len(_CHINESE_NO.findall(text))) % 2 == 1


@functools.cache
def _sayings() -> re.Pattern[str]:
    lists = read_lexicon()["idioms"]
    english = [rf"\b{re.escape(saying)}\b" for saying in lists["en"]]
    return re.compile("|".join(sorted((*english, *(re.escape(saying) for saying in lists["zh"])), key=len, reverse=True)))


_CLAUSE = re.compile(
    r"(?:^|[,.!?;:]|\b(?:me|know|wondering|wonder|say|ask|explain|and|so|hi|hello|please|from|by|at|for|to|with|until|since|remember|check|see|is|find out))"
    r" ?(?P<ask>when|who|whom|whose|where|why)\b"
)
_RELATIVE = ("when", "who", "whom", "whose", "where", "why")
_BY_HAND = re.compile(
    r"\bwhere (?:can|do|should|could|would|to) ?(?:i|we|you|one)? ?(?:go to )?"
    r"(?:change|view|see|check|update|edit|set|turn|enable|disable|activate|delete|reset|cancel|modify|manage|switch|adjust)"
    r"|(?:在)?(?:哪里|哪儿|哪|什么地方)(?:可以|能|才能)?(?:修改|更改|查看|查询|看|设置|开启|关闭|开通|取消|改|管理|调整|删除|注销|重置)"
)


def find_asks(folded: str) -> frozenset[str]:
    """What a folded question asks for: a time, a reason, a price…; `where do I change it` asks how, as it does by hand."""
    text = _BY_HAND.sub(" how ", folded)
    asked = {match["ask"] for match in _CLAUSE.finditer(text)}
    for word in _RELATIVE:
        if word not in asked:
            text = re.sub(rf"\b{word}\b(?! (?:is the reason|cause))", " ", text)
    found = asks().find(" ".join(words_of(text)))
    return frozenset(found)
