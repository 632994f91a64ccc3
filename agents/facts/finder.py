"""Whether any of many words or phrases stands in a text, in a microsecond or two; patterns with values to read are `slots`."""

from __future__ import annotations

from agents.rules.patterns import Pattern, compile_pattern


class Finder:
    """Some RE2 patterns of our own, asked as one; case does not matter."""

    __slots__ = ("_patterns",)

    def __init__(self, *sources: str) -> None:
        self._patterns = tuple(_compile(source) for source in sources)

    def within(self, raw: bytes) -> Finder:
        """A finder that knows only the patterns that match somewhere in `raw`: enough for the pieces of it, when each stands on its own line."""
        narrow = Finder()
        narrow._patterns = tuple(pattern for pattern in self._patterns if pattern.search(raw) is not None)
        return narrow

    def finds(self, raw: bytes) -> bool:
        """Whether one of them matches somewhere."""
        for pattern in self._patterns:  # a loop, since any() costs as much again as the search
            if pattern.search(raw) is not None:
                return True
        return False

    def __bool__(self) -> bool:
        """Whether it knows any pattern."""
        return bool(self._patterns)


def _compile(source: str) -> Pattern:
    pattern = compile_pattern(f"(?m){source}")
    if not isinstance(pattern, Pattern):
        msg = f"{source}: {pattern.wrong}"
        raise TypeError(msg)  # a pattern of this package is wrong: no setting and no text can bring that about
    return pattern


def encode(text: str) -> bytes:
    """UTF-8 for a finder, whatever half characters a message holds."""
    return text.encode("utf-8", "replace")
