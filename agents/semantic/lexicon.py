"""The word lists of `lexicon.toml`, read once, and finding their entries in a text; what follows from a find is `guards` and `ngrams`."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agents.semantic.language import canonical, fold, is_chinese

_PARTICLES = ("on", "off", "up", "out", "in", "back", "down")
_APART = 4
"""Most words between the halves of a verb: `turn the kitchen lights off`; further apart they belong to different sentences."""

_COUNTED = frozenset("0123456789几少每半数一二两三四五六七八九十百千万")
"""A measure of one character only counts behind a number: 天 is also in 聊天, 元 in 单元."""


class Finder:
    """Finds the labels of terms in a canonical text, the longest term first, none inside another; terms of `ignored` hide what they hold."""

    def __init__(self, terms: Mapping[str, Iterable[str]], ignored: Iterable[str] = (), *, measures: bool = False) -> None:
        self._labels: dict[str, str | None] = {}
        for label, words in terms.items():
            for word in words:
                self._labels.setdefault(_shape(word), label)
        for word in ignored:
            self._labels.setdefault(_shape(word), None)
        self._lengths = _lengths_by_start(self._labels)
        self._measures = measures

    def find(self, text: str) -> list[str]:
        """Labels in the order of the text, repeats included."""
        return [label for label, _ in self.split(text) if label is not None]

    def split(self, text: str) -> list[tuple[str | None, str]]:
        """The whole text in pieces, each with its label or None; ignored terms and Chinese between terms stay in one piece."""
        tokens = text.split()
        pieces: list[tuple[str | None, str]] = []
        place = 0
        while place < len(tokens):
            if is_chinese(tokens[place]):
                pieces += self._split_chinese(tokens[place], after=tokens[place - 1][-1] if place else "")
                place += 1
                continue
            piece = tokens[place]
            for count in self._lengths.get(piece, ()):
                longer = " ".join(tokens[place : place + count])
                if longer in self._labels:
                    piece = longer
                    break
            pieces.append((self._labels.get(piece), piece))
            place += piece.count(" ") + 1
        return pieces

    def _split_chinese(self, run: str, after: str) -> list[tuple[str | None, str]]:
        pieces: list[tuple[str | None, str]] = []
        plain = place = 0
        while place < len(run):
            term = self._term_at(run, place, run[place - 1] if place else after)
            if term is None:
                place += 1
                continue
            if plain < place:
                pieces.append((None, run[plain:place]))
            pieces.append((self._labels[term], term))
            place += len(term)
            plain = place
        if plain < len(run):
            pieces.append((None, run[plain:]))
        return pieces

    def _term_at(self, run: str, place: int, before: str) -> str | None:
        for length in self._lengths.get(run[place], ()):
            term = run[place : place + length]
            if term in self._labels:
                return None if self._measures and length == 1 and before not in _COUNTED else term
        return None


def _lengths_by_start(terms: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """How long terms are, longest first, by what they begin with: characters by the first one in Chinese, words by the first one else."""
    lengths: dict[str, set[int]] = {}
    for term in terms:
        if is_chinese(term):
            lengths.setdefault(term[0], set()).add(len(term))
        elif " " in term:
            lengths.setdefault(term.split()[0], set()).add(term.count(" ") + 1)
    return {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}


@functools.cache
def read_lexicon() -> dict[str, Any]:
    """The whole file, which is part of the installation."""
    return tomllib.loads(Path(__file__).with_name("lexicon.toml").read_text(encoding="utf-8"))


def idioms() -> tuple[str, ...]:
    """Sayings that hold words of other lists without their meaning."""
    lists = read_lexicon()["idioms"]
    return (*lists["en"], *lists["zh"])


@functools.cache
def opposites() -> Finder:
    """Sides of pairs of opposites, as `pair+` and `pair-`."""
    pairs: dict[str, list[list[str]]] = read_lexicon()["opposites"]
    return Finder({f"{name}{sign}": side for name, sides in pairs.items() for sign, side in zip("+-", sides, strict=True)}, idioms())


@functools.cache
def members() -> Finder:
    """Members of classes that exclude each other, as `class.member`."""
    classes: dict[str, list[list[str]]] = read_lexicon()["classes"]
    return Finder({f"{name}.{words[0]}": words for name, group in classes.items() for words in group}, idioms())


@functools.cache
def units() -> Finder:
    """Units and currencies."""
    hidden = [word for group in read_lexicon()["classes"]["weekday"] + read_lexicon()["classes"]["day"] for word in group]
    return Finder(read_lexicon()["units"], (*hidden, *idioms()), measures=True)


@functools.cache
def asks() -> Finder:
    """What a question asks for."""
    return Finder(read_lexicon()["asks"], idioms())


@functools.cache
def actors() -> Finder:
    """Who is spoken of."""
    polite = read_lexicon()["polite"]
    return Finder(read_lexicon()["actors"], (*polite["en"], *polite["zh"]))


@functools.cache
def synonyms() -> Finder:
    """Words by the first of those that mean the same."""
    groups: list[list[str]] = read_lexicon()["synonyms"]["groups"]
    measures: dict[str, list[str]] = read_lexicon()["units"]
    spelled = {label: [word for word in words if word.isascii() or len(word) > 1] for label, words in measures.items()}
    return Finder({group[0]: group for group in groups} | spelled)


@functools.cache
def fillers() -> Finder:
    """Words without a meaning of their own in a question."""
    lists = read_lexicon()["fillers"]
    return Finder({"": (*lists["en"], *lists["zh"])})


def join_verbs(folded: str) -> str:
    """A folded text with the halves of separable verbs together: `turn the lights off` as `turn off the lights`."""
    return _separable().sub(r"\1 \3 \2", folded)


@functools.cache
def _separable() -> re.Pattern[str]:
    entries = [word for sides in read_lexicon()["opposites"].values() for side in sides for word in side]
    entries += [word for group in read_lexicon()["synonyms"]["groups"] for word in group]
    halves = [parts for word in entries if len(parts := word.split()) == 2 and parts[1] in _PARTICLES]  # noqa: PLR2004  # verb and particle
    verbs, particles = "|".join(sorted({verb for verb, _ in halves})), "|".join(sorted({particle for _, particle in halves}))
    return re.compile(rf"\b((?:{verbs})(?:s|ed|ing)?) ((?:[\w'-]+ ){{1,{_APART}}}?)({particles})\b(?! (?:my|the|a|to)\b)")


def _shape(word: str) -> str:
    return canonical(fold(word)) or fold(word)
