"""Turns token ids into text as they come, whole characters only; stop strings are `stops`' business."""

from __future__ import annotations

UNFINISHED = "\ufffd"
"""What a tokenizer gives for bytes that are no character yet: half of a Chinese character, or of an emoji."""


class TextStream:
    """One answer's tokens on their way to text. Decodes the last few tokens only, with those before them for their spacing.

    Each round: `windows` gives two token lists to decode (many requests share one call), `advance` takes the texts and returns what is new.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._context = 0
        self._read = 0

    def add(self, token: int) -> None:
        """The model said one more token."""
        self._ids.append(token)

    def windows(self) -> tuple[list[int], list[int]]:
        """The context alone, and the context with what is new."""
        return self._ids[self._context : self._read], self._ids[self._context :]

    def advance(self, before: str, after: str) -> str:
        """The new text; empty while a character is unfinished. At the end an unfinished one is left out."""
        if after.endswith(UNFINISHED) or len(after) <= len(before):
            return ""
        self._context, self._read = self._read, len(self._ids)
        return after[len(before) :]
