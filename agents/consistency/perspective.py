"""An answer's clauses as the person would say them (`your name is Ann` as `my name is Ann`), so that one set of patterns reads both; comparing is `check`."""

from __future__ import annotations

import re

from agents.facts.finder import Finder, encode

_SWAPS = {
    "you": "i", "you're": "i'm", "you've": "i've", "you'll": "i'll", "you'd": "i'd", "yourself": "myself", "your": "my", "yours": "mine",
    "i": "you", "i'm": "you're", "i've": "you've", "i'll": "you'll", "i'd": "you'd", "me": "you", "my": "your", "mine": "yours",
    "we": "they", "we're": "they're", "we've": "they've", "we'll": "they'll", "we'd": "they'd", "our": "their", "us": "them",
    "我们": "本店", "咱们": "本店", "您们": "我们", "你们": "我们", "您": "我", "你": "我", "我": "您",
}  # fmt: skip  # pairs read best side by side
"""The speaker's `we` is the company: what it has says nothing of the person."""

_WORDS = re.compile(r"[A-Za-z']+|[我咱您你]们?")
_AGREED = {"i are": "i am", "I are": "i am", "i were": "i was"}
_OF_THE_PERSON = Finder(r"\b(?:i|i'm|i've|i'll|i'd|my|mine|myself)\b|我")


def swap_speaker(text: str) -> str:
    """`text` as the other side would say it."""
    swapped = _WORDS.sub(lambda match: _SWAPS.get(match[0].lower(), match[0]), text)
    for wrong, right in _AGREED.items():
        if wrong in swapped:
            swapped = re.sub(rf"\b{wrong}\b", right, swapped)
    return swapped


def speaks_of_person(swapped: str) -> bool:
    """Whether a swapped clause names the person at all: `a box holds 6 mugs` is about nobody."""
    return _OF_THE_PERSON.finds(encode(swapped))
