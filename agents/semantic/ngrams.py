"""The encoder that needs no model: content words by their meaning, and pieces of words, hashed into one vector; the learned one is `openvino_encoder`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from agents.semantic.encoder import Vectors, normalise
from agents.semantic.language import is_chinese
from agents.semantic.meanings import find_pieces

SIZE = 512
"""Two features fall together once in five hundred: among the thirty of a question hardly one does, and twice the size gave no better figures."""

WORD = 1.0
"""Weight of a content word or meaning."""

PIECE = 0.35
"""Weight of a piece of a word in all: forms and typing errors stay near each other, words that only look alike do not meet."""


class NgramEncoder:
    """Reads English and Chinese."""

    name = "ngrams-1"
    size = SIZE
    same_words = True

    def encode(self, texts: Sequence[str]) -> Vectors:
        """About 0.15 ms a question."""
        rows = np.zeros((len(texts), SIZE), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in features(text).items():
                row[zlib.crc32(feature.encode()) % SIZE] += weight
        return normalise(rows)


def features(text: str) -> dict[str, float]:
    """What a text is made of, with weights; a word counts once, however often it stands there."""
    found: dict[str, float] = {}
    for piece, known in find_pieces(text):
        if known:
            found[f"<{piece}>"] = WORD
        elif is_chinese(piece):
            found.update(_chinese(piece))
        else:
            found[f"<{piece}>"] = WORD
            parts = [f" {piece} "[at : at + 3] for at in range(len(piece))]
            found.update({part: PIECE / len(parts) ** 0.5 for part in parts})
    return found


def _chinese(run: str) -> dict[str, float]:
    """Characters and pairs of them: there are no spaces to tell words by."""
    singles = dict.fromkeys(run, WORD * 0.6)
    pairs = {run[at : at + 2]: WORD * 0.6 for at in range(len(run) - 1)}
    return singles | pairs
