"""How long a step of the engine takes: a profile measured beforehand, corrected online, pessimistic where a promise hangs on it; see `scheduler`.

A step reads `prefill` prompt tokens and makes one token for each of `batch` requests that decode. Its time is close to
linear in both (measured: 12, 13, 15, 20, 30 ms at batch 1, 2, 4, 8, 16 and 1.1 to 1.3 ms a prompt token on an AVX-512
core), so a table over the batch and one figure a token are enough, and both can be corrected while serving.
"""

from __future__ import annotations

import bisect
from collections import deque

from schemas.cost import CostProfile, StepCost

QUANTILE = 0.98
"""Of measured over predicted: a promise breaks for one step in fifty, and a request has many steps that even out."""

WINDOW = 256
"""Steps that the quantile is taken over: about five busy seconds, so a neighbour that takes the core is noticed while it does."""

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
        self._ratios: deque[float] = deque()
        self._sorted: list[float] = []
        self.adopt(profile)

    def adopt(self, profile: CostProfile) -> None:
        """Start over from a profile that was measured just now."""
        self.profile = profile
        self._batches = [step.batch for step in profile.steps]
        self._drift = 1.0
        self._ratios.clear()
        self._sorted.clear()
        self.spread = self._tail()

    def step_s(self, batch: int, prefill_tokens: int = 0) -> float:
        """The likely seconds of a step that makes `batch` tokens and reads `prefill_tokens`."""
        return self._drift * (self._decode_s(batch) + prefill_tokens * self.profile.prefill_token_s)

    def bound_s(self, batch: int, prefill_tokens: int = 0) -> float:
        """Seconds that such a step rarely exceeds."""
        return self.step_s(batch, prefill_tokens) * self.spread

    def _tail(self) -> float:
        """How far above its prediction a step may come, as a factor."""
        if len(self._sorted) < ENOUGH:
            first = self.profile.steps[0]
            return min(MAX_SPREAD, max(1.0, first.p99 / first.median))
        return min(MAX_SPREAD, max(1.0, self._sorted[min(len(self._sorted) - 1, int(len(self._sorted) * QUANTILE))]))

    def learn(self, batch: int, prefill_tokens: int, seconds: float) -> float | None:
        """A step took `seconds`; returns how far, relatively, that was from what was foreseen. None for a step that did nothing."""
        if batch + prefill_tokens <= 0 or seconds <= 0:
            return None
        predicted = self.step_s(batch, prefill_tokens)
        ratio = seconds / predicted
        self._ratios.append(ratio)
        bisect.insort(self._sorted, ratio)
        if len(self._ratios) > WINDOW:
            del self._sorted[bisect.bisect_left(self._sorted, self._ratios.popleft())]
        step = min(max(ratio, 0.5), 2.0)
        self._drift = min(MAX_DRIFT, max(MIN_DRIFT, self._drift * (1 + DRIFT_SHARE * (step - 1))))
        self.spread = self._tail()
        return abs(ratio - 1)

    def _decode_s(self, batch: int) -> float:
        """Between the measured batch sizes on a straight line, beyond them along the last one; a step that only reads makes no token."""
        if batch <= 0:
            return 0.0
        steps = self.profile.steps
        at = bisect.bisect_left(self._batches, batch)
        if at < len(steps) and steps[at].batch == batch:
            return steps[at].median
        if len(steps) == 1 or at == 0:
            return steps[0].median
        left, right = (steps[at - 1], steps[at]) if at < len(steps) else (steps[-2], steps[-1])
        slope = (right.median - left.median) / (right.batch - left.batch)
        return left.median + slope * (batch - left.batch)
