"""Cutting texts into numbered pieces, as BERT's own tokenizer does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.semantic.wordpiece import MAX_TOKENS, WordPiece
from schemas.errors import SetupError

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "cafe", ",", "!", "我", "run", "##ning", "'"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    """A vocabulary of a few words."""
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return WordPiece(file)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("Café, running!", ["cafe", ",", "run", "##ning", "!"]),
        ("我run我", ["我", "run", "我"]),
        ("zebra", ["[UNK]"]),
        ("", []),
        ("u" * 200, ["[UNK]"]),
        ("run\x00\u200bning", ["run", "##ning"]),
    ],
)
def test_words_become_their_longest_pieces(pieces: WordPiece, text: str, cut: list[str]) -> None:
    """Without case and accents; Chinese and punctuation stand alone; unknown words are marked as such."""
    assert pieces.number(text) == [PIECES.index(piece) for piece in ["[CLS]", *cut, "[SEP]"]]


@given(st.text(max_size=600))
def test_any_text_is_bounded(pieces: WordPiece, text: str) -> None:
    """Start and end marks stand, and no text is longer than the model reads."""
    numbers = pieces.number(text)
    assert 2 <= len(numbers) <= MAX_TOKENS
    assert (numbers[0], numbers[-1]) == (PIECES.index("[CLS]"), PIECES.index("[SEP]"))


def test_a_file_that_is_no_vocabulary_is_told(tmp_path: Path) -> None:
    """By what it lacks."""
    (tmp_path / "vocab.txt").write_text("a\nb\n", encoding="utf-8")
    with pytest.raises(SetupError, match=r"has no \[CLS\]"):
        WordPiece(tmp_path / "vocab.txt")
    with pytest.raises(SetupError, match="cannot be read"):
        WordPiece(tmp_path / "none.txt")


def test_a_sign_that_ends_lines_elsewhere_is_a_piece_like_others(tmp_path: Path) -> None:
    """Vocabularies list such signs, and every piece behind one must keep its number."""
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(["[UNK]", "[CLS]", "[SEP]", "\u2028", "\x85", "run"]) + "\n", encoding="utf-8")
    assert WordPiece(file).number("run") == [1, 5, 2]
