"""Patterns by RE2, which never backtracks, and the few of hundreds that can match a text at all; keywords are `keywords`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import re2

from agents.rules.literals import needed_pieces

MAX_SIZE = 500
"""Places at which a pattern can be at once. RE2 is linear in text times places: a hostile text costs at most 25 ns for each byte and place, three times
that when it is the first of its kind (measured): 12 ms for 1,000 bytes. Ordinary patterns have 20 to 100 places and cost 5 µs. `(x{1,30}){1,30}` is
refused here, what is larger by RE2 itself."""

_MAX_MEM = 1 << 20
"""Bytes that one pattern's automaton may take: a thousand of them stay below 1 GiB even when each one is at its worst."""

_AT_ONCE = 100
"""Patterns in one filter of several. Building it holds the interpreter, for some 2 ms, and an event loop must not wait for 5. Each costs a pass."""

_OPTIONS = re2.Options()
_OPTIONS.max_mem = _MAX_MEM
_OPTIONS.case_sensitive = False
_OPTIONS.log_errors = False

_SAMPLE = "The quick brown fox jumps over the lazy dog. abcdefghijklmnopqrstuvwxyz ABC 0123456789, 退款？!\n".encode()
"""Searched once by every new pattern: RE2 builds its automaton as it reads, and the first message would wait for that (12 µs instead of 7, measured)."""

_BYTEWISE = re2.Options()
_BYTEWISE.encoding = re2.Options.Encoding.LATIN1
_BYTEWISE.log_errors = False
"""To count places: over UTF-8 a class like `\\pL` alone has 1,200 instructions, of which one at a time is active."""


_SYNTAX = "see github.com/google/re2/wiki/Syntax; there are no look-arounds and no back references"


class PatternProblem(msgspec.Struct, frozen=True):
    """Why a pattern cannot be used, and what would be right."""

    wrong: str
    right: str


class Pattern:
    """A compiled pattern; case does not matter unless it says `(?-i)`."""

    __slots__ = ("_regex", "groups", "needed", "size", "source")

    def __init__(self, source: str, regex: re2._Regexp, size: int) -> None:
        self.source = source
        self._regex = regex
        self.groups: tuple[str, ...] = tuple(name.decode() for name in regex.groupindex)
        self.size = size
        self.needed = needed_pieces(source)
        regex.search(_SAMPLE)

    def search(self, text: bytes) -> dict[str, str] | None:
        """The named groups of the first match, those left out that took no part; None without a match."""
        if not self.groups:
            return None if self._regex.search(text) is None else {}
        match = self._regex.search(text)
        if match is None:
            return None
        return {name.decode(): value.decode("utf-8", "replace") for name, value in match.groupdict().items() if value is not None}


def compile_pattern(source: str) -> Pattern | PatternProblem:
    """Check and compile one pattern."""
    try:
        regex = re2.compile(source.encode(), _OPTIONS)
    except re2.error as error:
        what = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        large = "too large" in what or "repetition" in what
        return PatternProblem(f"is no RE2 pattern ({what})", "use smaller repetitions" if large else _SYNTAX)
    except UnicodeEncodeError:
        return PatternProblem("holds half a character", "remove the lone surrogate")
    size = _size(source.encode(), regex)
    if size > MAX_SIZE:
        return PatternProblem(f"is too large (size {size})", f"use smaller repetitions; the limit is {MAX_SIZE}")
    if regex.search(b"") is not None:
        return PatternProblem("matches an empty text, and so every one", "ask for something that must be there")
    return Pattern(source, regex, size)


def _size(source: bytes, regex: re2._Regexp) -> int:
    try:
        return int(re2.compile(source, _BYTEWISE).programsize)
    except re2.error:  # a class of characters that has no meaning in bytes
        return int(regex.programsize)


class PatternFilter:
    """Tells which patterns can match: those whose fixed pieces stand in the text, and those that have none."""

    def __init__(self, patterns: Sequence[Pattern], *, in_pieces: bool = False) -> None:
        self._parts: list[tuple[int, re2.Filter]] = []
        size = _AT_ONCE if in_pieces else max(1, len(patterns))
        for at in range(0, len(patterns), size):
            part = re2.Filter()
            for pattern in patterns[at : at + size]:
                part.Add(pattern.source.encode(), _OPTIONS)
            part.Compile()
            self._parts.append((at, part))

    def pieces(self) -> list[object]:
        """What it is made of, for who lets it go bit by bit."""
        return [part for _, part in self._parts]

    def possible(self, text: bytes) -> list[int]:
        """The places, in the list given, of the patterns that are worth a search."""
        return [at + index for at, part in self._parts for index in part.Match(text, potential=True) or ()]


def has_fixed_piece(pattern: Pattern) -> bool:
    """Whether a text without it is known not to match before the pattern is tried."""
    return bool(pattern.needed) or not PatternFilter([pattern]).possible(b"")
