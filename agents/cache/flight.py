"""One model request for all who ask the same at the same time: who asks, who waits, and for how long; what is kept afterwards is `agents.cache.exact`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from agents.ladder import Budget

LOOK_S = 0.02
"""How often a waiting event looks at its due, which may have been pulled forward: at worst it leaves so much later than it should,
still before its time is up."""

MAX_FLIGHTS = 10_000
"""Questions asked at once that others may wait for. More than events in flight there never are; beyond it each asks for itself."""

GRACE_S = 0.1
"""After the asking event's time is up its answer may be on its way for a moment; then nobody joins it any more, whatever became of it."""


@dataclass(slots=True, eq=False)
class Flight:
    """One question on its way through the ladder."""

    key: bytes
    until: float
    """Monotonic seconds after which nobody joins it."""
    landed: asyncio.Future[bytes | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done with the kept form of the answer, or with None when others cannot have it."""


class Flights:
    """All of them, by question."""

    def __init__(self) -> None:
        self._flights: dict[bytes, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def joinable(self, key: bytes) -> Flight | None:
        """The flight that another event with this question may wait for."""
        flight = self._flights.get(key)
        if flight is None or flight.landed.done() or flight.until <= time.monotonic():
            return None
        return flight

    def begin(self, key: bytes, budget: Budget) -> Flight | None:
        """A new flight, to be landed by whoever began it; None when there are too many. An overdue one under the same key is released."""
        before = self._flights.get(key)
        if before is not None:
            self.land(before, None)
        if len(self._flights) >= MAX_FLIGHTS:
            return None
        flight = self._flights[key] = Flight(key, budget.stop_at + GRACE_S)
        return flight

    def land(self, flight: Flight, value: bytes | None) -> None:
        """Tell all who wait; the first word counts."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if not flight.landed.done():
            flight.landed.set_result(value)


async def follow(flight: Flight, budget: Budget, needs_s: float) -> bytes | None:
    """What `flight` brings; None when it brings nothing, or when `needs_s` seconds before the budget's end are all that is left."""
    while not flight.landed.done() and not budget.stop.done():
        left = budget.stop_at - needs_s - time.monotonic()
        if left <= 0:
            return None
        await asyncio.wait((flight.landed, budget.stop), timeout=min(left, LOOK_S), return_when=asyncio.FIRST_COMPLETED)
    return flight.landed.result() if flight.landed.done() else None
