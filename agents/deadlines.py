"""The one place where a deadline is computed, and the reserve that is kept free at its end."""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from schemas.deadline import Deadline
from schemas.events import InteractionEvent
from schemas.settings import DeadlineSection

FIRST_RESERVE_S = 0.020
"""Until enough publishes were measured; a local broker's p99.9 is below it, a remote one's soon replaces it."""

MAX_RESERVE_S = 0.250
"""A stalled broker must not push the reserve so far that short budgets never reach the model again."""

MIN_RESERVE_S = 0.004
"""Below it one turn of a busy event loop would already be late."""

RECEIPT_S = 0.003
"""From the broker's acknowledgement to a consumer's hands; a consumer's clock is not ours to read."""

WINDOW = 2000
"""Publishes that the quantile is taken over: p99.9 needs a thousand, and the last minutes matter most."""

REMEMBERED_S = 300.0
"""A stall of the broker is forgotten after so long even where events are few: it would shorten every budget for hours."""

ENOUGH = 200
"""Fewer samples say nothing about a tail."""

QUANTILE = 0.999

PER_EVENT_S = 0.0005
"""What each event that is being written at the same moment adds to a publish. The timer's lead allows for it by the number in flight, so the reserve
must not hold it too: one burst would take a third of a second from every budget of the next five minutes."""


def compute_deadline(event: InteractionEvent, *, record_ms: int, arrived: float, arrived_wall_ms: int, section: DeadlineSection) -> Deadline:
    """When `event` is due (contract, Deadline).

    Args:
        event: its `occurred_at_ms` and `deadline_ms` may be anything an int and a finite number can be.
        record_ms: the Kafka record's timestamp, Unix ms; -1 for none.
        arrived: monotonic seconds when the consumer handed the record over.
        arrived_wall_ms: the same moment in Unix ms.
        section: the settings' bounds.
    """
    stamped = next((ms for ms in (event.occurred_at_ms, record_ms) if ms is not None and ms != -1), arrived_wall_ms)
    ahead_ms = stamped - arrived_wall_ms
    start_ms = arrived_wall_ms if section.clock == "arrival" else min(stamped, arrived_wall_ms)
    asked = section.default_ms if event.deadline_ms is None else event.deadline_ms
    budget_ms = max(0.0, min(asked, section.max_ms))
    left_ms = budget_ms - (arrived_wall_ms - start_ms)
    return Deadline(
        budget_ms=budget_ms,
        arrived=arrived,
        due=arrived + left_ms / 1000,
        due_at_ms=round(start_ms + budget_ms),
        arrived_at_ms=arrived_wall_ms,
        expired=left_ms < section.min_ms or left_ms <= 0,
        skew_ms=ahead_ms if ahead_ms > section.max_skew_ms else 0,
    )


class Reserve(Protocol):
    """How much of each budget is kept free for changelog, publish and receipt."""

    def seconds(self) -> float:
        """Seconds to keep free."""

    def note(self, seconds: float) -> None:
        """One publish took `seconds` from fixed bytes to acknowledgement, less the share of those beside it (`alone`)."""


class FixedReserve:
    """The reserve that `deadline.reserve_ms` names."""

    def __init__(self, ms: float) -> None:
        self._seconds = ms / 1000

    def seconds(self) -> float:
        """Always the setting."""
        return self._seconds

    def note(self, seconds: float) -> None:
        """Measured values do not change a fixed reserve."""


class MeasuredReserve:
    """The p99.9 of the last publishes, plus the receipt."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []
        self._seconds = FIRST_RESERVE_S

    def seconds(self) -> float:
        """The measured quantile within its bounds; a fixed start until enough is known."""
        return self._seconds

    def _measured(self) -> float:
        if len(self._sorted) < ENOUGH:
            return FIRST_RESERVE_S
        above = max(1, round(len(self._sorted) * (1 - QUANTILE)))  # fewer than a thousand samples: the slowest one is chance, not a tail
        rank = len(self._sorted) - 1 - above
        return min(max(self._sorted[rank] + RECEIPT_S, MIN_RESERVE_S), MAX_RESERVE_S)

    def note(self, seconds: float) -> None:
        """Add a measurement, forget the oldest beyond the window."""
        now = self._clock()
        self._recent.append((now, seconds))
        bisect.insort(self._sorted, seconds)
        while len(self._recent) > WINDOW or now - self._recent[0][0] > REMEMBERED_S:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft()[1])]
        self._seconds = self._measured()


def alone(seconds: float, beside: int) -> float:
    """Seconds that a publish would have taken without the `beside` others that were being written; at least none."""
    return max(0.0, seconds - PER_EVENT_S * beside)


def reserve_for(section: DeadlineSection) -> Reserve:
    """The reserve that the settings ask for."""
    return MeasuredReserve() if section.reserve_ms is None else FixedReserve(section.reserve_ms)
