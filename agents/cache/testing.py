"""A shared store in memory, with faults to order, for tests, yours too; the real one is `agents.cache.shared.RedisStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agents.cache.shared import MAX_VALUE_BYTES, SharedStoreError
from schemas.deadline import Clock


class MemoryStore:
    """Keeps what it is given, until its clock says that it is over. Several workers of a test may share one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[bytes, tuple[bytes, float]] = {}
        self.calls = 0
        self.is_gone = False
        """Refuses everything, as a server that is down does."""
        self.is_full = False
        """Refuses writes."""
        self.delay_s = 0.0
        """What each call takes."""
        self.answering = asyncio.Event()
        """Cleared, it lets everybody wait."""
        self.answering.set()

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `SharedStore`."""
        await self._begin()
        return [self._read(key) for key in keys]

    async def put(self, key: bytes, value: bytes, ttl_s: float, *, replace: bool) -> None:
        """See `SharedStore`."""
        await self._begin()
        if self.is_full:
            raise SharedStoreError("the store in memory is told to be full")
        if replace or self._read(key) is None:
            self._values[key] = (value, self._clock.monotonic() + ttl_s)

    async def close(self) -> None:
        """See `SharedStore`: others may still use it."""

    async def _begin(self) -> None:
        self.calls += 1
        await self.answering.wait()
        if self.delay_s > 0:
            await asyncio.sleep(self.delay_s)
        if self.is_gone:
            raise SharedStoreError("the store in memory is told to be gone")

    def _read(self, key: bytes) -> bytes | None:
        value, until = self._values.get(key, (None, 0.0))
        return value[: MAX_VALUE_BYTES + 1] if value is not None and until > self._clock.monotonic() else None
