"""Which of thousands of keywords stand in a text, in one pass (Aho-Corasick); the form of both is `normalize`, patterns are `patterns`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ahocorasick_rs
import msgspec

from agents.rules.normalize import fold, needs_blank

MAX_KEYWORD_CHARS = 200
"""A longer one is a sentence, which nobody types again letter by letter. Worst case it allows: 200 keywords that end at one place of the text."""

_AT_ONCE = 2000
"""Keywords in one automaton. Building one holds the interpreter for about 3 ms, and the event loop must not wait longer while rules are read again."""


class Keyword(msgspec.Struct, frozen=True):
    """What is looked for, folded; `open_*` drops the need for a word's start or end there."""

    text: str
    open_start: bool = False
    open_end: bool = False


def parse_keyword(written: str) -> Keyword | None:
    """`refund` is a whole word, `refund*` the start of one, `*fund` its end; None when nothing is left to look for."""
    bare = written.strip()
    open_start, open_end = bare.startswith("*"), bare.endswith("*")
    text = fold(bare.strip("*"))
    return Keyword(text, open_start, open_end) if text else None


class KeywordFinder:
    """Finds its keywords; each is known by its place in the list."""

    def __init__(self, keywords: Sequence[Keyword]) -> None:
        by_text: dict[str, list[tuple[int, bool, bool]]] = {}
        for number, keyword in enumerate(keywords):
            text = keyword.text
            whole_start = not keyword.open_start and needs_blank(text[0])
            whole_end = not keyword.open_end and needs_blank(text[-1])
            by_text.setdefault(text, []).append((number, whole_start, whole_end))
        texts, meanings = list(by_text), list(by_text.values())
        self._parts = [(_build(texts[at : at + _AT_ONCE]), meanings[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]

    def find(self, folded: str) -> set[int]:
        """The numbers of the keywords that stand in a text which `fold` has been through."""
        found: set[int] = set()
        last = len(folded)
        for automaton, meanings in self._parts:
            for index, start, end in automaton.find_matches_as_indexes(folded, overlapping=True):
                for number, whole_start, whole_end in meanings[index]:
                    if whole_start and start > 0 and needs_blank(folded[start - 1]):
                        continue
                    if whole_end and end < last and needs_blank(folded[end]):
                        continue
                    found.add(number)
        return found


def _build(texts: Iterable[str]) -> ahocorasick_rs.AhoCorasick:
    # The smaller of the automata: as fast to search as the fastest, and five times faster to build.
    return ahocorasick_rs.AhoCorasick(list(texts), implementation=ahocorasick_rs.Implementation.ContiguousNFA, store_patterns=False)
