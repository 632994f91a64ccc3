"""How long a step of the engine takes: a profile measured beforehand, corrected online, pessimistic where a promise hangs on it; see `scheduler`.

A step makes one token for each of `batch` requests that decode and reads `prefill` prompt tokens. For the model both are
the same work: a step's time follows how many tokens pass through it, on a line that is flat while the weights are what is
read and steep once arithmetic is (measured on an AVX-512 core: 12, 13, 15, 20, 30 ms at 1, 2, 4, 8, 16 tokens and 1.1 to
1.3 ms a token beyond; on an AVX2 core: 19, 27, 38, 50, 75 ms and 3.4 ms). So the points are decoding at a few batch
sizes and the reading of one whole chunk, with straight lines between them.
"""

from __future__ import annotations

import bisect
from collections import deque

from schemas.cost import CostProfile, StepCost

QUANTILE = 0.9
"""Of measured over foreseen: far enough out to see how unsteady the machine is, near enough not to be set by single outliers; what a promise
makes of it is the scheduler's."""

WINDOW = 256
"""Steps that the quantile is taken over: about five busy seconds, so a neighbour that takes the core is noticed while it does."""

REMEMBERED_S = 30.0
"""Beyond it a step counts only while there are fewer than `ENOUGH` newer ones. Where few requests are admitted the window would last minutes, and one
spell of unsteady steps would refuse everybody for as long."""

ENOUGH = 32
"""Fewer steps say nothing about a tail; until then the profile's own spread is used."""

DRIFT_SHARE = 0.05
"""How much one step moves the correction: twenty steps follow a machine that slowed down, one outlier does not."""

MIN_DRIFT, MAX_DRIFT = 0.4, 6.0
"""A correction beyond these is another machine's profile or a stopped process; believing it would admit nothing or everything."""

MAX_SPREAD = 2.5
"""A tail worse than this refuses nearly everything; the engine's own cut keeps the promise then."""


def guessed_profile(model: str, version: str, *, threads: int, cpu: str, prefill_chunk: int) -> CostProfile:
    """A slow machine's figures, for the first seconds of a worker that was never calibrated: too careful rather than late."""
    steps = tuple(StepCost(batch, 0.018 + 0.0016 * batch, 0.024 + 0.002 * batch) for batch in (1, 2, 4, 8, 16, 32))
    return CostProfile(model, version, threads, cpu, prefill_chunk, steps, 0.0018, 1.3, 3.2)


class CostModel:
    """A profile with what serving has taught since."""

    def __init__(self, profile: CostProfile) -> None:
        self._ratios: deque[tuple[float, float]] = deque()
        """When each of the last steps ended, and its measured over foreseen time."""
        self._sorted: list[float] = []
        self.adopt(profile)

    def adopt(self, profile: CostProfile) -> None:
        """Start over from a profile that was measured just now."""
        self.profile = profile
        self._points = [(step.batch, step.median) for step in profile.steps]
        self._has_chunk = profile.chunk_s > 0 and profile.prefill_chunk > self._points[-1][0]
        if self._has_chunk:
            self._points.append((profile.prefill_chunk, profile.chunk_s))
        self._drift = 1.0
        self._ratios.clear()
        self._sorted.clear()
        self.spread = self._tail()

    def step_s(self, batch: int, prefill_tokens: int = 0) -> float:
        """The likely seconds of a step that makes `batch` tokens and reads `prefill_tokens`."""
        if prefill_tokens > 0 and self._has_chunk:
            return self._drift * self._on_line(batch + prefill_tokens)
        reading = prefill_tokens * self.profile.prefill_token_s
        return self._drift * (reading + (self._on_line(batch) if batch > 0 else 0.0))

    def bound_s(self, batch: int, prefill_tokens: int = 0) -> float:
        """Seconds that such a step rarely exceeds."""
        return self.step_s(batch, prefill_tokens) * self.spread

    def _tail(self) -> float:
        """How far above its prediction a step may come, as a factor."""
        if len(self._sorted) < ENOUGH:
            first = self.profile.steps[0]
            return min(MAX_SPREAD, max(1.0, first.p99 / first.median))
        return min(MAX_SPREAD, max(1.0, self._sorted[min(len(self._sorted) - 1, int(len(self._sorted) * QUANTILE))]))

    def learn(self, batch: int, prefill_tokens: int, seconds: float, now: float) -> float | None:
        """A step that ended at `now` (monotonic) took `seconds`; returns its relative error against what was foreseen, None for a step that did nothing."""
        if batch + prefill_tokens <= 0 or seconds <= 0:
            return None
        predicted = self.step_s(batch, prefill_tokens)
        ratio = seconds / predicted
        self._ratios.append((now, ratio))
        bisect.insort(self._sorted, ratio)
        while len(self._ratios) > WINDOW or (len(self._ratios) > ENOUGH and now - self._ratios[0][0] > REMEMBERED_S):
            del self._sorted[bisect.bisect_left(self._sorted, self._ratios.popleft()[1])]
        step = min(max(ratio, 0.5), 2.0)
        self._drift = min(MAX_DRIFT, max(MIN_DRIFT, self._drift * (1 + DRIFT_SHARE * (step - 1))))
        self.spread = self._tail()
        return abs(ratio - 1)

    def _on_line(self, tokens: int) -> float:
        """Between the measured points on a straight line, beyond them along the last one."""
        points = self._points
        at = bisect.bisect_left(points, (tokens, 0.0))
        if at < len(points) and points[at][0] == tokens:
            return points[at][1]
        if len(points) == 1 or at == 0:
            return points[0][1]
        left, right = (points[at - 1], points[at]) if at < len(points) else (points[-2], points[-1])
        return left[1] + (right[1] - left[1]) / (right[0] - left[0]) * (tokens - left[0])
