"""Whether events wait for this worker itself: then models are left alone, so that all are answered in time; what engines can take is `runtime.scheduler`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

RECORDS_BEHIND = 32
"""Records in a row that waited too long before it counts: one stall of the loop must not cost the few events of a quiet worker their model."""

CALM_SHARE = 0.2
"""Of `limits.behind_ms`: below it the wait is over. A state that changed at one threshold would change with every record."""

LASTING_S = 0.5
"""A burst is over by then; what goes on is a flood, in which expired events take the place of others."""

FORGOTTEN_S = 0.5
"""Without a record for so long nothing waits any more, whatever the last one said."""


class Crowding:
    """Told of each record how long it had waited between the consumer and the agent."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit_s`: how long an event may wait in this worker while its models still work."""
        self._limit_s = limit_s
        self._clock = clock
        self._in_a_row = 0
        self._waited_s = 0.0
        self._told = self._since = clock()

    def note(self, waited_s: float) -> None:
        """A record was taken `waited_s` after it arrived."""
        if waited_s > self._limit_s:
            self._in_a_row += 1
            if self._in_a_row == RECORDS_BEHIND:
                self._since = self._clock()
        elif waited_s <= self._limit_s * CALM_SHARE or self._in_a_row < RECORDS_BEHIND:
            self._in_a_row = 0
        self._waited_s = waited_s
        self._told = self._clock()

    @property
    def lags(self) -> bool:
        """Whether the newest record had to wait: what takes long now is the loop's doing, and says nothing of the broker."""
        return self._waited_s > self._limit_s * CALM_SHARE and self._clock() - self._told <= FORGOTTEN_S

    @property
    def lasts(self) -> bool:
        """Whether the crowd has been there for longer than a burst."""
        return self.behind_s > 0 and self._clock() - self._since > LASTING_S

    @property
    def behind_s(self) -> float:
        """How long the newest record waited while there is a crowd, in seconds; 0 while there is none."""
        if self._in_a_row < RECORDS_BEHIND or self._clock() - self._told > FORGOTTEN_S:
            return 0.0
        return max(self._waited_s, self._limit_s)


class Cores:
    """The cores of this process, all of its threads: few beside engines that work, all while events wait for the worker itself."""

    CALM_S = 5.0
    """Before it goes back: moving costs the caches of both cores."""

    def __init__(self, few: Iterable[int], clock: Callable[[], float] = time.monotonic) -> None:
        """Stay on `few` from now on; what this process may use at the moment is what it spreads over."""
        self._all = frozenset(os.sched_getaffinity(0))
        self._few = frozenset(few)
        self._clock = clock
        self._crowded_at: float | None = None
        _move_threads(self._few)

    def follow(self, *, crowded: bool) -> None:
        """Spread while it is `crowded`, and draw back when it has not been for `CALM_S`; cheap enough to be called a few times a second."""
        now = self._clock()
        if crowded:
            if self._crowded_at is None:
                _move_threads(self._all)
            self._crowded_at = now
        elif self._crowded_at is not None and now - self._crowded_at > self.CALM_S:
            self._crowded_at = None
            _move_threads(self._few)


def _move_threads(cores: frozenset[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:  # it has just ended
            continue
