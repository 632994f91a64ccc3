"""Texts of two writings brought to one shape: folded, cut into words, English ones without their endings; what words mean is `lexicon`."""

from __future__ import annotations

import functools
import re
import unicodedata

CJK = "一-鿿㐀-䶿"
"""A class of characters for patterns: what Chinese is written with."""

_QUOTES = str.maketrans({"’": "'", "‘": "'", "＇": "'", "“": '"', "”": '"', "´": "'", "`": "'"})
_CHINESE = re.compile(f"[{CJK}]")
_BETWEEN_CHINESE = re.compile(rf"(?<=[{CJK}])\s+(?=[{CJK}])")
_WORDS = re.compile(rf"[a-z0-9]+(?:['.\-][a-z0-9]+)*|[{CJK}]+|[$€£¥%]")
_VOWEL = re.compile("[aeiouy]")

_SHORTEST_STEM = 3
"""Letters that must be left: shorter ones are other words (`red` is no past of `r`)."""


def fold(text: str) -> str:
    """One way to write each letter and digit: full width, case and curly quotes do not matter."""
    return _BETWEEN_CHINESE.sub("", unicodedata.normalize("NFKC", text).translate(_QUOTES).lower())


def is_chinese(text: str) -> bool:
    """Whether any of it is written in Chinese characters."""
    return _CHINESE.search(text) is not None


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """An English word without plural, tense and final e: `changes`, `changed` and `change` are one. Rough, but the same for every text."""
    word = word.removesuffix("'s")
    if "'" in word or not word.isascii() or not word.isalpha():
        return word
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ied", "y"), ("ed", ""), ("es", ""), ("s", "")):
        root = word.removesuffix(ending)
        if root == word or len(root) < _SHORTEST_STEM or _VOWEL.search(root) is None or (ending == "s" and root[-1] in "sui"):
            continue
        return _settle(root + instead)
    return _settle(word)


def words_of(folded: str) -> list[str]:
    """Words of a folded text, stemmed; a run of Chinese characters is one."""
    return [stem(word) for word in _WORDS.findall(folded)]


def canonical(folded: str) -> str:
    """A folded text as stemmed words with one space between them."""
    return " ".join(words_of(folded))


def _settle(root: str) -> str:
    if len(root) > _SHORTEST_STEM and root[-1] == root[-2] and root[-1] not in "aeious":
        root = root[:-1]
    return root[:-1] if len(root) > _SHORTEST_STEM and root[-1] == "e" else root
