"""What turns texts into vectors whose nearness means nearness of meaning, and how the one that the settings name is opened; what runs it is `worker_thread`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""One row a text, each of length 1 (or all zero for a text that has nothing to go by)."""

NGRAMS = "ngrams"

ROUNDING = 1e-5
"""Two vectors of one text may come out at 0.999999: a threshold of 1 still means the same."""


class Encoder(Protocol):
    """Texts to vectors; called from one thread at a time."""

    name: str
    """Encoder and version: vectors of two names cannot be compared."""
    size: int
    """Numbers in a vector."""

    same_words: bool
    """Whether a hit needs the same content words: what knows words alone cannot say what one word more means."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of `texts`, float32 [len(texts), size], normalised."""


def open_encoder(wanted: str) -> Encoder:
    """The encoder that `semantic_cache.encoder` names: `ngrams`, a pulled one (`minilm`), or a folder with an OpenVINO or ONNX encoder and its vocabulary.

    Raises:
        SetupError: it is not here, or cannot be read; the text says which command mends it.
    """
    if wanted == NGRAMS:
        from agents.semantic.ngrams import NgramEncoder  # noqa: PLC0415  # word lists are read by whom they serve alone

        return NgramEncoder()
    from agents.semantic.openvino_encoder import OpenVinoEncoder, find_encoder  # noqa: PLC0415  # openvino takes a second and 60 MB to import

    folder: Path = find_encoder(wanted)
    return OpenVinoEncoder(folder)


def normalise(rows: Vectors) -> Vectors:
    """Rows of length 1; a zero row stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)
