"""Which of thousands of keywords stand in a text, in one pass (Aho-Corasick); the form of both is `normalize`, patterns are `patterns`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ahocorasick_rs
import msgspec

from agents.rules.courteous import in_turns
from agents.rules.normalize import fold, needs_blank

MAX_KEYWORD_CHARS = 200
"""A longer one is a sentence, which nobody types again letter by letter. Worst case it allows: 200 keywords that end at one place of the text."""

_AT_ONCE = 2000
"""Keywords in one automaton of several. Its last steps hold the interpreter, for some 2 ms, and an event loop must not wait for 5. Each costs a pass."""


class Keyword(msgspec.Struct, frozen=True, gc=False):
    """What is looked for, folded, and at which of its ends a word must begin or end as well."""

    text: str
    whole_start: bool
    whole_end: bool

    def stands_in(self, folded: str) -> bool:
        """Whether a text which `fold` has been through has it."""
        start = folded.find(self.text)
        while start >= 0:
            if self.fits(folded, start):
                return True
            start = folded.find(self.text, start + 1)
        return False

    def fits(self, folded: str, start: int) -> bool:
        """Whether it stands at `start`, where its letters were found, as what it is: `art` is no word of `start`."""
        if self.whole_start and start > 0 and needs_blank(folded[start - 1]):
            return False
        end = start + len(self.text)
        return not (self.whole_end and end < len(folded) and needs_blank(folded[end]))


def parse_keyword(written: str) -> Keyword | None:
    """`refund` is a whole word, `refund*` the start of one, `*fund` its end; None when nothing is left to look for."""
    bare = written.strip()
    text = fold(bare.strip("*"))
    if not text:
        return None
    return Keyword(text, needs_blank(text[0]) and not bare.startswith("*"), needs_blank(text[-1]) and not bare.endswith("*"))


class KeywordFinder:
    """Finds its keywords; each is known by its place in the list."""

    def __init__(self, keywords: Sequence[Keyword], *, in_pieces: bool = False) -> None:
        by_text: dict[str, list[tuple[int, bool, bool]]] = {}
        for number, keyword in enumerate(keywords):
            by_text.setdefault(keyword.text, []).append((number, keyword.whole_start, keyword.whole_end))
        texts = sorted(by_text, key=str.isascii) if in_pieces else list(by_text)  # apart, so that a piece of others is not asked about an English text
        size = _AT_ONCE if in_pieces else max(1, len(texts))
        pieces = [texts[at : at + size] for at in range(0, len(texts), size)]
        self._parts = [(any(map(str.isascii, piece)), _build(piece), [tuple(by_text[text]) for text in piece]) for piece in pieces]

    def pieces(self) -> list[object]:
        """What it is made of, for who lets it go bit by bit."""
        return [piece for _, automaton, meanings in self._parts for piece in (automaton, *meanings)]

    def find(self, folded: str) -> set[int]:
        """The numbers of the keywords that stand in a text which `fold` has been through."""
        found: set[int] = set()
        last = len(folded)
        plain = folded.isascii()
        for has_plain, automaton, meanings in self._parts:
            if plain and not has_plain:
                continue
            for index, start, end in automaton.find_matches_as_indexes(folded, overlapping=True):
                for number, whole_start, whole_end in meanings[index]:  # as `Keyword.fits`, without a call for each of a hundred matches
                    if whole_start and start and needs_blank(folded[start - 1]):
                        continue
                    if whole_end and end < last and needs_blank(folded[end]):
                        continue
                    found.add(number)
        return found


def _build(texts: Iterable[str]) -> ahocorasick_rs.AhoCorasick:
    # The smaller of the automata: as fast to search as the fastest, and five times faster to build.
    return ahocorasick_rs.AhoCorasick(in_turns(texts), implementation=ahocorasick_rs.Implementation.ContiguousNFA, store_patterns=False)
