"""Holds streamed text back while it may still become a stop string, and cuts before one; whole characters are `pieces`' business."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Released:
    """Text that may leave; `tokens` have begun in it. `stopped` is true when a stop string followed, and nothing comes after."""

    text: str
    tokens: int
    stopped: bool = False


class StopCutter:
    """One request's text on its way out. Without stop strings everything passes at once."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._released = 0
        self._starts: deque[int] = deque()

    def feed(self, text: str) -> Released:
        """Add one token's text, which may be empty, and get what may leave now."""
        self._starts.append(self._released + len(self._held))
        self._held += text
        found = [at for at in map(self._held.find, self._stops) if at >= 0]
        if found:
            return self._release(min(found), stopped=True)
        return self._release(len(self._held) - self._possible_stop())

    def flush(self) -> Released:
        """The rest, when the text ends without a stop string."""
        return self._release(len(self._held))

    def _possible_stop(self) -> int:
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0

    def _release(self, size: int, *, stopped: bool = False) -> Released:
        text, self._held = self._held[:size], "" if stopped else self._held[size:]
        self._released += size
        tokens = 0
        while self._starts and self._starts[0] < self._released:
            self._starts.popleft()
            tokens += 1
        return Released(text, tokens, stopped)
