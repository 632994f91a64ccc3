"""BERT's way to cut a text into numbered pieces, from a vocabulary file alone; the model that reads them is `openvino_encoder`."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from schemas.errors import SetupError

MAX_TOKENS = 256
"""What sentence encoders were trained on at most; reading more would take above 100 ms a text."""

_LONGEST_WORD = 100
"""Characters: a longer one is no word, and looking for its pieces takes time with the square of it."""

_NEEDED = ("[CLS]", "[SEP]", "[UNK]")


class WordPiece:
    """A vocabulary without case (or with: `lower=False`), as `vocab.txt` lists it, a piece a line."""

    def __init__(self, vocabulary: Path, *, lower: bool = True) -> None:
        """Read it.

        Raises:
            SetupError: it cannot be read or lacks the marks that every text needs.
        """
        try:
            pieces = vocabulary.read_text(encoding="utf-8").split("\n")  # not `splitlines`: a piece may be a sign that it takes for a line's end
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{vocabulary} cannot be read ({error}): give the encoder's own vocab.txt, one piece a line"
            raise SetupError(msg) from error
        self._numbers = {piece: number for number, piece in enumerate(pieces)}
        missing = next((mark for mark in _NEEDED if mark not in self._numbers), None)
        if missing is not None:
            msg = f"{vocabulary} has no {missing}: give the vocab.txt of a BERT encoder, or an openvino_tokenizer.xml beside the model"
            raise SetupError(msg)
        self._lower = lower
        self._first, self._last, self._unknown = (self._numbers[mark] for mark in _NEEDED)

    def number(self, text: str) -> list[int]:
        """Token numbers of `text`, start and end marks included, at most `MAX_TOKENS`."""
        inner = [number for word in self._words(text) for number in self._pieces(word)]
        return [self._first, *inner[: MAX_TOKENS - 2], self._last]

    def _words(self, text: str) -> list[str]:
        if self._lower:
            text = "".join(char for char in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(char) != "Mn")
        spaced = []
        for char in text:
            if _is_space(char):
                spaced.append(" ")
            elif unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs") or char == "�":
                continue
            else:
                spaced.append(f" {char} " if _stands_alone(char) else char)
        return "".join(spaced).split()

    def _pieces(self, word: str) -> list[int]:
        """The longest piece from the left, again and again; unknown when one part has none."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        found, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in self._numbers), None)
            if end is None:
                return [self._unknown]
            found.append(self._numbers[mark + word[start:end]])
            start = end
        return found


def _is_space(char: str) -> bool:
    return char in "\t\n\r" or unicodedata.category(char) == "Zs"


def _stands_alone(char: str) -> bool:
    """Punctuation, signs of ASCII, and Chinese characters are words of their own."""
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:  # noqa: PLR2004  # the signs among ASCII
        return True
    return unicodedata.category(char).startswith("P") or any(
        low <= code <= high for low, high in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0xF900, 0xFAFF), (0x20000, 0x2CEAF), (0x2F800, 0x2FA1F))
    )
