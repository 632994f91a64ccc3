"""A text's content words, synonyms as one and fillers left out: what `ngrams` makes vectors of and `guards` looks for swapped words in."""

from __future__ import annotations

from typing import NamedTuple

from agents.semantic.language import fold, is_chinese, words_of
from agents.semantic.lexicon import fillers, join_verbs, synonyms
from agents.semantic.numerals import spell_digits


def find_pieces(text: str) -> list[tuple[str, bool]]:
    """Content words and runs of Chinese in order, each with whether it is a known meaning; all pieces when every one is a filler."""
    flat = " ".join(words_of(spell_digits(join_verbs(fold(text)))))
    parts = synonyms().split(flat)
    kept = [(label or piece, label is not None) for label, part in parts for piece in ([part] if label else _without_fillers(part))]
    return kept or [(part, label is not None) for label, part in parts]


class Meanings(NamedTuple):
    """The content of a text."""

    words: frozenset[str]
    """Known meanings, words, and the characters of Chinese that is not known."""
    order: tuple[str, ...]
    """Meanings, words and characters, as they follow each other."""


def find_meanings(text: str) -> Meanings:
    """What a text speaks of, for comparing it with another."""
    order: list[str] = []
    for piece, known in find_pieces(text):
        order += [piece] if known or not is_chinese(piece) else piece
    return Meanings(frozenset(order), tuple(order))


def have_swapped(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two texts are the same but for two parts that have changed places around something: who does it to whom, what comes before what.

    Two parts that meet have only been put the other way round (`怎么连接打印机`, `打印机怎么连接`), as have the two of an `and`.
    """
    if one == other or len(one) != len(other):
        return False
    start = next(at for at, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)
    end = len(one) - next(at for at, (left, right) in enumerate(zip(reversed(one), reversed(other), strict=True)) if left != right)
    left, right = one[start:end], other[start:end]
    size = len(left)
    firsts = [count for count in range(1, size - 1) if left[:count] == right[size - count :]]
    lasts = [count for count in range(1, size - 1) if left[size - count :] == right[:count]]
    return any(
        first + last < size and left[first : size - last] == right[last : size - first] and left[first : size - last] not in _JOINTS
        for first in firsts
        for last in lasts
    )


_JOINTS = {("and",), ("or",), ("和",), ("与",), ("或",), ("及",), ("跟",), ("还", "是"), ("或", "者")}


def _without_fillers(part: str) -> list[str]:
    return [piece for label, piece in fillers().split(part) if label is None]
