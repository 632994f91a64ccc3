"""Where to end a text that time cut short: at a sentence or a word that lies near, never inside a character; when it is cut is the scheduler's."""

from __future__ import annotations

import unicodedata

SENTENCE_ENDS = ".!?…。！？；;"

NEAR_SENTENCE = 0.35
"""Share of the text that may be given up to end with a whole sentence: more would cost the person more than half a sentence does."""

NEAR_WORD = 24
"""Characters that may be given up to end with a whole word; longer runs without a space are not words of this kind of script."""

CHARS_PER_TOKEN = 4
"""For counting what was given up: tokens are not known by their place in the text."""


def cut_cleanly(text: str, tokens: int, *, keep_tokens: int) -> tuple[str, int]:
    """The text up to a good end, and about how many tokens it still has; unchanged where that would leave fewer than `keep_tokens`."""
    text = _whole_characters(text).rstrip()
    for end in (_sentence_end(text), _word_end(text)):
        if end is None or end == len(text):
            if end is not None:
                return text, tokens
            continue
        left = tokens - max(1, -(-(len(text) - end) // CHARS_PER_TOKEN))
        if left >= keep_tokens and text[:end].strip():
            return text[:end].rstrip(), left
    return text, tokens


def _sentence_end(text: str) -> int | None:
    last = max((text.rfind(mark) for mark in SENTENCE_ENDS), default=-1)
    return last + 1 if last >= 0 and last + 1 >= len(text) * (1 - NEAR_SENTENCE) else None


def _word_end(text: str) -> int | None:
    """Before the last word, which may be half a one; scripts that write no spaces end anywhere."""
    if not text or not (text[-1].isascii() and text[-1].isalnum()):
        return None
    space = max(text.rfind(" "), text.rfind("\n"))
    return space if space > 0 and len(text) - space <= NEAR_WORD else None


def _whole_characters(text: str) -> str:
    """Without what joins to a character that never came: a joiner, a lone surrogate half, a replacement mark."""
    while text and (text[-1] in "\u200d\ufffd" or unicodedata.category(text[-1]) == "Cs"):
        text = text[:-1]
    return text
