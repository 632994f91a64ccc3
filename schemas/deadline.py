"""One absolute deadline an event, over a clock that tests can move; how a due becomes a token budget is the scheduler's."""

from __future__ import annotations

import time
from typing import Protocol

import msgspec


class Clock(Protocol):
    """Where every part reads time, so that a test can move it by hand."""

    def monotonic(self) -> float:
        """Seconds on CLOCK_MONOTONIC, the same in every process of this boot."""

    def wall_ms(self) -> int:
        """Unix time in milliseconds."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Seconds on CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until `advance` moves it; for tests, ours and a user's."""

    def __init__(self, *, monotonic: float = 1_000.0, wall_ms: int = 1_790_000_000_000) -> None:
        self._monotonic = monotonic
        self._wall_ms = float(wall_ms)

    def monotonic(self) -> float:
        """Seconds, moved only by `advance`."""
        return self._monotonic

    def wall_ms(self) -> int:
        """Unix milliseconds, moved by `advance` and `jump_wall`."""
        return int(self._wall_ms)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    def jump_wall(self, ms: float) -> None:
        """Step the wall clock alone, as NTP or an operator may."""
        self._wall_ms += ms


class Deadline(msgspec.Struct, frozen=True):
    """The one budget that queue, ladder, model and publish share.

    Fields:
        budget_ms: what was granted, after clamping, in milliseconds.
        arrived: when the worker's consumer handed the record over, monotonic seconds.
        due: when a consumer of `responses` should have the answer, monotonic seconds.
        due_at_ms: the same moment in Unix milliseconds.
        arrived_at_ms: when it arrived, in Unix milliseconds: a later moment is told from it, so that a clock that is set changes nothing.
        expired: what was left on arrival was below `deadline.min_ms`, or nothing; the model is never called.
        skew_ms: how far ahead of arrival the event's own stamp was, when beyond the allowed skew; else 0.
    """

    budget_ms: float
    arrived: float
    due: float
    due_at_ms: int
    expired: bool
    arrived_at_ms: int = 0
    skew_ms: int = 0

    def remaining(self, now: float, *, reserve_s: float = 0.0) -> float:
        """Seconds left at monotonic `now` once `reserve_s` is kept free; negative when late."""
        return self.due - reserve_s - now
