"""Text comes in whole characters, and joined it is the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.pieces import TextStream


def _decode(ids: list[int]) -> str:
    """A tokenizer whose tokens are single bytes: the worst case for characters of several."""
    return bytes(ids).decode(errors="replace")


def _streamed(data: bytes) -> list[str]:
    stream = TextStream()
    pieces: list[str] = []
    for byte in data:
        stream.add(byte)
        before, after = stream.windows()
        pieces.append(stream.advance(_decode(before), _decode(after)))
    return pieces


@given(st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"]), max_size=40))
def test_bytes_of_characters_are_never_shown_apart(text: str) -> None:
    """Whatever the text, no piece holds part of a character, and together they are the text."""
    pieces = _streamed(text.encode())
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_unfinished_character_at_the_end_is_left_out() -> None:
    """A text cut by its limit ends in whole characters."""
    assert "".join(_streamed("你好".encode()[:-1])) == "你"
