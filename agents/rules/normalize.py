"""One form for texts that mean the same to a reader: width, case, blanks and invisible characters; looking for words in it is `keywords`."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff\ud800-\udfff]")
"""Soft hyphen, zero-width blanks and joiners: they break a word for a program and not for a reader. Half characters: no library takes them."""

_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Myanmar
    (0x1100, 0x11FF),  # Hangul letters: Korean puts particles right behind a word
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x9FFF),  # Han, kana, bopomofo and their marks
    (0xA960, 0xA97F),  # Hangul letters
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),  # Han
    (0x1B000, 0x1B16F),  # kana
    (0x20000, 0x3FFFF),  # Han
)
"""Scripts without blanks between words (or with endings that are none of a word's own): there a keyword matches wherever it stands."""


def fold_width(text: str) -> str:
    """One form (NFKC) of every character, invisible ones left out; case and blanks as they are. What patterns search."""
    return text if text.isascii() else _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))


def fold(text: str) -> str:
    """The same without case, and with one blank wherever there are some. What keywords are looked for in; folding twice changes nothing."""
    return fold_case(fold_width(text))


def fold_case(wide: str) -> str:
    """`fold` of a text that `fold_width` has been through."""
    return fold_case_apart(wide)[0]


def fold_case_apart(wide: str) -> tuple[str, str | None]:
    """The same, and small letters each by itself where some of them have become one with a mark behind them (`H̱`): a pattern sees the letter `h` there."""
    if wide.isascii():
        return " ".join(wide.lower().split()), None
    small = wide.casefold()
    if unicodedata.is_normalized("NFKC", small):
        return " ".join(small.split()), None
    return " ".join(_INVISIBLE.sub("", unicodedata.normalize("NFKC", small)).casefold().split()), " ".join(small.split())


@lru_cache(maxsize=65_536)
def needs_blank(char: str) -> bool:
    """Whether a word made of such characters ends where the next one is of another kind: letters, digits and marks of scripts with blanks between words."""
    if not (char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"):
        return False
    code = ord(char)
    return not any(first <= code <= last for first, last in _UNSPACED)
