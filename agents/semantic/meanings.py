"""A text's content words, synonyms as one and fillers left out: what `ngrams` makes vectors of and `guards` looks for swapped words in."""

from __future__ import annotations

from collections.abc import Iterator

from agents.semantic.language import fold, is_chinese, words_of
from agents.semantic.lexicon import fillers, join_verbs, synonyms
from agents.semantic.numerals import spell_digits


def find_pieces(text: str) -> list[tuple[str, bool]]:
    """Content words and runs of Chinese in order, each with whether it is a known meaning; all pieces when every one is a filler."""
    flat = " ".join(words_of(spell_digits(join_verbs(fold(text)))))
    parts = synonyms().split(flat)
    kept = [(label or piece, label is not None) for label, part in parts for piece in ([part] if label else _without_fillers(part))]
    return kept or [(part, label is not None) for label, part in parts]


def content_words(text: str) -> Iterator[str]:
    """Known meanings, words, and the single characters of Chinese that is not known."""
    for piece, known in find_pieces(text):
        if known or not is_chinese(piece):
            yield piece
        else:
            yield from piece


def _without_fillers(part: str) -> list[str]:
    return [piece for label, piece in fillers().split(part) if label is None]
