"""What a cheap rung took lately, so that it is known before it starts; what a model takes is `agents.runtime.cost_model`."""

from __future__ import annotations

from collections import deque

KEPT = 64
"""Recent times: enough for a high quantile, few enough to be sorted now and then (4 µs)."""

EACH = 8
"""They are sorted at every so many new ones, the first ones at once: a rung that grows slow is noticed so many events later at worst."""

QUANTILE = 0.95
"""One slow moment in twenty does not take a rung out of the ladder; more of them do."""

MAX_AGE_S = 30.0
"""A rung that was slow is tried again after so long: without it, one that is skipped would never be measured again. At worst one event in
half a minute then finds that it is still slow, and goes on with what is left."""


class RungCost:
    """A high quantile of one rung's recent times. Pure: whoever calls says what time it is, in monotonic seconds."""

    def __init__(self, floor_s: float) -> None:
        self._floor_s = floor_s
        self._times: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self._quantile = 0.0
        self._noted = 0

    def note(self, seconds: float, now: float) -> None:
        """The rung has just taken so long."""
        self._times.append((now, seconds))
        self._noted += 1
        if self._noted < EACH or self._noted % EACH == 0:
            self._forget(now)
            self._measure()

    def needed(self, now: float) -> float:
        """Seconds that it should be given: what it declares, or what it took lately when that was more."""
        if self._times and now - self._times[0][0] > MAX_AGE_S:
            self._forget(now)
            self._measure()
        return max(self._floor_s, self._quantile)

    def _forget(self, now: float) -> None:
        while self._times and now - self._times[0][0] > MAX_AGE_S:
            self._times.popleft()

    def _measure(self) -> None:
        taken = sorted(seconds for _, seconds in self._times)
        self._quantile = taken[min(len(taken) - 1, int(len(taken) * QUANTILE))] if taken else 0.0
