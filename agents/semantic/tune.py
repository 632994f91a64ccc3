"""Choosing a threshold from labelled pairs: what each one would let through, with guards and without; the command that prints it is `agents.cli.cache`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from agents.semantic.encoder import ROUNDING, Encoder
from agents.semantic.guards import difference, signature
from agents.semantic.language import is_chinese
from schemas.errors import UsageError

HELD_OUT = "held_out"
"""The `set` of pairs that the threshold is not chosen by: what they show is what to expect of questions nobody has thought of."""

MARGIN = 0.03
"""Above the nearest wrong pair: the next one that nobody has written down may be a little nearer."""

LOWEST = 0.8
"""Never recommended less: pairs that are all told apart by guards say nothing about texts that guards know nothing of."""

MAX_PAIRS, MAX_BYTES = 20_000, 64_000_000
"""A file of another kind must not fill the memory: real ones have some hundred pairs."""

_STEPS = tuple(step / 100 for step in range(50, 101, 5))


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of pairs."""

    a: Annotated[str, Meta(min_length=1, max_length=4000)]
    b: Annotated[str, Meta(min_length=1, max_length=4000)]
    same: bool
    """Whether one answer serves both."""
    lang: str | None = None
    """Default: `zh` with Chinese characters, else `en`."""
    kind: str = ""
    set: str = ""
    note: str = ""

    @property
    def language(self) -> str:
        """As written, or as the text shows."""
        return self.lang or ("zh" if is_chinese(self.a) else "en")


class Judged(msgspec.Struct, frozen=True):
    """A pair with what encoder and guards say of it."""

    pair: Pair
    similarity: float
    guard: str | None
    """Which one told the two apart; None: none."""


class Count(msgspec.Struct, frozen=True):
    """Hits of some pairs at one threshold."""

    wrong: int
    right: int
    of_wrong: int
    of_right: int


class Row(msgspec.Struct, frozen=True):
    """One threshold: all pairs and each language, with guards; all without."""

    threshold: float
    guarded: Count
    bare: Count
    languages: dict[str, Count]


class Advice(msgspec.Struct, frozen=True):
    """The threshold to set, None when none is safe, and why."""

    threshold: float | None
    why: str


def read_pairs(file: Path) -> list[Pair]:
    """Pairs of a JSON Lines file, one a line: `{"a": "…", "b": "…", "same": true}`.

    Raises:
        UsageError: it cannot be read, or a line is wrong; the text says which and what would be right.
    """
    try:
        if file.stat().st_size > MAX_BYTES:
            msg = f"{file} has more than {MAX_BYTES // 1_000_000} MB: give a file of labelled pairs, one JSON object a line"
            raise UsageError(msg)
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror}): name a .jsonl file of pairs; see examples/semantic_pairs.jsonl"
        raise UsageError(msg) from None
    except UnicodeDecodeError as error:
        msg = f"{file} is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8"
        raise UsageError(msg) from None
    pairs = [_parse(file, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not any(pair.same for pair in pairs) or all(pair.same for pair in pairs):
        msg = f'{file} has {len(pairs)} pairs and not both kinds: give pairs with "same": true and with "same": false'
        raise UsageError(msg)
    if len(pairs) > MAX_PAIRS:
        msg = f"{file} has {len(pairs)} pairs: give at most {MAX_PAIRS}"
        raise UsageError(msg)
    return pairs


def judge(pairs: Sequence[Pair], encoder: Encoder) -> list[Judged]:
    """What the encoder and the guards say of each pair."""
    judged = []
    for pair in pairs:
        one, other = encoder.encode([pair.a, pair.b])
        judged.append(Judged(pair, float(one @ other), difference(signature(pair.a), signature(pair.b), same_words=encoder.same_words)))
    return judged


def tabulate(judged: Sequence[Judged], *, also: float | None = None) -> list[Row]:
    """Hits at thresholds from 0.5 to 1, and at `also`."""
    steps = sorted({*_STEPS, *(() if also is None else (also,))})
    return [_row(judged, step) for step in steps]


def recommend(judged: Sequence[Judged]) -> Advice:
    """The lowest threshold without a wrong hit, and a margin above it, from the pairs that are not held out."""
    chosen_by = [one for one in judged if one.pair.set != HELD_OUT] or list(judged)
    wrong = [one for one in chosen_by if not one.pair.same and one.guard is None]
    nearest = max(wrong, key=lambda one: one.similarity, default=None)
    lowest = LOWEST if nearest is None else max(LOWEST, math.ceil(round((nearest.similarity + MARGIN) * 100, 4)) / 100)
    if nearest is not None and lowest > 1:
        said = f"{nearest.pair.a[:60]!r} and {nearest.pair.b[:60]!r} are {nearest.similarity:.2f} alike and no guard tells them apart"
        return Advice(None, f"{said}: no threshold is safe for such questions")
    at = _row(chosen_by, lowest).guarded
    shown = f"no wrong hit among {at.of_wrong} pairs, {at.right} of {at.of_right} right ones"
    limit = (
        ""
        if nearest is None
        else f"; the nearest wrong ones that no guard tells apart are {nearest.similarity:.2f} alike: {nearest.pair.a[:60]!r}, {nearest.pair.b[:60]!r}"
    )
    return Advice(lowest, shown + limit)


def count_hits(judged: Sequence[Judged], threshold: float, *, guards: bool = True) -> Count:
    """Right and wrong hits at a threshold."""
    hits = [one for one in judged if one.similarity >= threshold - ROUNDING and (one.guard is None or not guards)]
    right = sum(one.pair.same for one in judged)
    return Count(sum(not one.pair.same for one in hits), sum(one.pair.same for one in hits), len(judged) - right, right)


def _row(judged: Sequence[Judged], threshold: float) -> Row:
    languages = sorted({one.pair.language for one in judged})
    by_language = {language: count_hits([one for one in judged if one.pair.language == language], threshold) for language in languages}
    return Row(threshold, count_hits(judged, threshold), count_hits(judged, threshold, guards=False), by_language)


def _parse(file: Path, number: int, line: str) -> Pair:
    try:
        return msgspec.json.decode(line, type=Pair)
    except msgspec.DecodeError as error:
        msg = f'{file}, line {number}: {error}; write {{"a": "…", "b": "…", "same": true}}'
        raise UsageError(msg) from None
