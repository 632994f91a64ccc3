"""Pieces of text without which a pattern cannot match, read from the pattern itself, so that one pass finds them with the keywords; RE2 is `patterns`."""

from __future__ import annotations

import re
from typing import TypeAlias

Either: TypeAlias = tuple[str, ...]
"""Pieces, one of which must be there."""

MAX_EITHER = 16
"""Of one choice: `(a|b|c…)` of more says little about a text, and each piece would bring the rule up."""

MAX_DEPTH = 50
"""Of groups in groups: a pattern of 2,000 opening brackets must not end the interpreter's stack. Deeper ones are left to RE2's own filter."""

_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\[^Q]|[^\]\\])*\]", re.DOTALL)
_BETWEEN = re.compile(r"\\(?:[dDsSwWbBAz]|[pP](?:\{\^?\w+\}|[A-Z])|[^\w\s])|[.^$]")
"""What stands for no letter that can be named, or for a sign: it ends a piece."""
_SIGN = re.compile(r"[^\\\[(]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|[imsU-]*:))?(?!\?)")
_FLAGS = re.compile(r"\(\?[imsU-]+\)")
_TIMES = re.compile(r"(?:[*?]|(?P<some>\+)|\{(?P<least>\d*)(?:,\d*)?\})\??")
_LETTER = re.compile("[A-Za-z0-9\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
"""What every folding keeps, each as itself or as its small form, whatever stands beside it. RE2 holds a few other letters for equal to some of these (the
Kelvin sign for k): none of those is left in a text that `fold_width` has been through."""
_BLANK = re.compile(r"\\s| ")
"""Folding makes one blank of all that are in a row, so that some more change nothing."""
_BLANKS = re.compile(" +")


def needed_pieces(source: str) -> tuple[Either, ...] | None:
    """What must be in a text for `source`, a right RE2 pattern, to match: of each choice one piece.

    The text is one that `normalize.fold_case_apart` has been through, with a blank put before and behind it.
    Empty when nothing must be, None where the pattern has something that is not understood here. More may be needed than is named, never less.
    """
    try:
        reader = _Reader(source)
        found = reader.choice(0)
    except _NotUnderstood:
        return None
    return tuple(dict.fromkeys(found)) if reader.ended else None


def cost_of(either: Either) -> float:
    """How many texts hold one of the pieces, by guess: a long one is in few."""
    return sum(0.8 ** len(piece.encode()) for piece in either)


class _NotUnderstood(Exception):
    """Raised at what could mean anything."""


class _Reader:
    """Reads a pattern that is known to be right, from left to right."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._source)

    def choice(self, depth: int) -> list[Either]:
        """`a|b|…` up to the bracket that closes it, or the end."""
        if depth > MAX_DEPTH:
            raise _NotUnderstood
        branches = [self._row(depth)]
        while self._source.startswith("|", self._at):
            self._at += 1
            branches.append(self._row(depth))
        if len(branches) == 1:
            return branches[0]
        if not all(branches):
            return []
        joined = tuple(dict.fromkeys(piece for branch in branches for piece in min(branch, key=cost_of)))
        return [joined] if len(joined) <= MAX_EITHER else []

    def _row(self, depth: int) -> list[Either]:
        """What stands one behind the other; letters that follow each other are one piece."""
        needed: list[Either] = []
        piece = ""
        while not self.ended and self._source[self._at] not in "|)":
            letter, inner = self._one(depth)
            once, optional = self._times()
            if not optional:
                piece += letter
            if optional or not (letter == " " or (letter and once)):
                needed += _as_needed(piece)
                piece = ""
            if not optional:
                needed += inner
        return [*needed, *_as_needed(piece)]

    def _one(self, depth: int) -> tuple[str, list[Either]]:
        """The next letter, or what the next group needs; nothing of either for everything else."""
        source, at = self._source, self._at
        if _LETTER.match(source, at):
            self._at += 1
            return source[at].lower(), []
        if blank := _BLANK.match(source, at):
            self._at = blank.end()
            return " ", []
        if group := _GROUP.match(source, at):
            self._at = group.end()
            inner = self.choice(depth + 1)
            if not source.startswith(")", self._at):
                raise _NotUnderstood
            self._at += 1
            return "", inner
        found = _FLAGS.match(source, at) or _CLASS.match(source, at) or _BETWEEN.match(source, at) or _SIGN.match(source, at)
        if found is None:
            raise _NotUnderstood
        self._at = found.end()
        return "", []

    def _times(self) -> tuple[bool, bool]:
        """How often what was just read must be there: whether once and no more, and whether perhaps not at all."""
        once, optional = True, False
        while found := _TIMES.match(self._source, self._at):
            self._at = found.end()
            once = False
            optional = optional or not (found["some"] or int(found["least"] or 0))
        return once, optional


def _as_needed(piece: str) -> list[Either]:
    return [(_BLANKS.sub(" ", piece),)] if piece.strip() else []
