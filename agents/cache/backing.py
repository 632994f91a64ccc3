"""Asks the shared store without ever waiting for it longer than allowed, and leaves it alone while it is gone; the store itself is `agents.cache.shared`."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from agents.cache.envelope import Envelope, Sort, seal, unseal
from agents.cache.exact import Count
from agents.cache.shared import MAX_VALUE_BYTES, ROUND_S, SharedStore, SharedStoreError
from schemas.deadline import Clock

log = structlog.get_logger(__name__)

BATCH = 256
"""Keys of one read: more in one round trip would make the first of them wait for the last."""

MAX_WANTED = 4096
"""Reads that wait for their round trip; beyond it an event does without."""

MAX_WRITES = 2000
"""Answers that wait to be written; a store that is slower than they come loses some, and memory stays flat: 128 MiB if all were of the largest size."""

MAX_CLOSING = 10_000
"""Marks of wrong answers that the store still has to be told of. Unlike answers they wait while it is gone; above it the oldest is lost, counted."""

LATE_IN_A_ROW = 5
"""Waits that ran out before the store counts as too slow: fewer, and one pause of its own would shut it out; each costs an event `cache.shared_ms`."""

COOL_S = 0.5
MAX_COOL_S = 15.0
"""Pauses before a store that was gone is asked again, doubling until an event has had an answer from it. Only the background waits for that."""

CALL_S = 2 * ROUND_S
"""For a store that does not end its calls by itself; above the store's own bound, so that the two do not race."""

STOP_S = 1.0
"""For telling the store what is still queued when the worker stops; what is left then is lost, and answers are made anew."""

_PROBE_KEY = b"probe"

OnNoted = Callable[[bytes, float], None]
"""Told the key of the answer that an event was given, and for how many seconds it is kept."""


@dataclass(frozen=True, slots=True)
class _Write:
    key: bytes
    value: bytes
    ttl_s: float
    replace: bool


class Backing:
    """One store, two tasks: one reads for all events together, one writes. Only they ever wait for the network."""

    def __init__(self, store: SharedStore, *, wait_s: float, clock: Clock, count: Count, on_noted: OnNoted) -> None:
        self._store = store
        self._wait_s = wait_s
        self._clock = clock
        self._count = count
        self._on_noted = on_noted
        self._up = False
        self._late = 0
        self._patience = 1
        self._cool_s = COOL_S
        self._wanted: OrderedDict[bytes, asyncio.Future[bytes | None]] = OrderedDict()
        self._writes: deque[_Write] = deque()
        self._closing: OrderedDict[bytes, _Write] = OrderedDict()
        self._sought: OrderedDict[bytes, None] = OrderedDict()
        self._read_now = asyncio.Event()
        self._write_now = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether events ask it now."""
        return self._up

    async def start(self) -> None:
        """Begin; the store need not be there."""
        self._tasks = (asyncio.create_task(self._read(), name="cache-shared-reads"), asyncio.create_task(self._write(), name="cache-shared-writes"))

    async def stop(self) -> None:
        """Write what is queued if the store is up, at most `STOP_S`, then let go of it."""
        if self._up:
            try:
                async with asyncio.timeout(STOP_S):
                    await self._drained.wait()
            except TimeoutError:
                log.warning("the shared cache was not told everything", answers=len(self._writes), wrong=len(self._closing))
        self._up = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        self._give_up_reads()
        await self._store.close()

    async def fetch(self, key: bytes, until: float) -> Envelope | None:
        """What workers share under `key`: at most `cache.shared_ms` from now, and not after the monotonic moment `until`."""
        wait_s = min(self._wait_s, until - time.monotonic())
        if not self._up or wait_s <= 0:
            return None
        found = self._wanted.get(key)
        if found is None:
            if len(self._wanted) >= MAX_WANTED:
                return None
            found = self._wanted[key] = asyncio.get_running_loop().create_future()
            self._read_now.set()
        await asyncio.wait((found,), timeout=wait_s)
        if not found.done():
            self._note_late()
            return None
        raw = found.result()
        envelope = None if raw is None else unseal(raw, key, self._clock.wall_ms())
        if raw is not None and envelope is None:
            self._count("shared_error")
        return envelope

    def put(self, sort: Sort, key: bytes, value: bytes, ttl_s: float) -> None:
        """Have it written some time soon, or never when the store is gone or cannot keep up."""
        write = self._sealed(sort, key, value, ttl_s, replace=sort == "note")
        if not self._up or len(self._writes) >= MAX_WRITES or len(write.value) > MAX_VALUE_BYTES:
            self._count("shared_dropped")
            return
        self._writes.append(write)
        self._wake_writer()

    def close(self, key: bytes, ttl_s: float) -> None:
        """Have every worker know that the answer under `key` was called wrong, as soon as the store can be told."""
        self._closing[key] = self._sealed("closed", key, b"", ttl_s, replace=True)
        if len(self._closing) > MAX_CLOSING:
            self._closing.popitem(last=False)
            self._count("shared_dropped")
        self._wake_writer()

    def seek(self, event: bytes) -> None:
        """Have `on_noted` told what another worker gave this event, as soon as the store can be asked."""
        self._sought[event] = None
        if len(self._sought) > MAX_CLOSING:
            self._sought.popitem(last=False)
            self._count("shared_dropped")
        self._wake_writer()

    def _sealed(self, sort: Sort, key: bytes, value: bytes, ttl_s: float, *, replace: bool) -> _Write:
        return _Write(key, seal(sort, key, value, self._clock.wall_ms() + round(ttl_s * 1000)), ttl_s, replace)

    async def _read(self) -> None:
        while True:
            if not self._up:
                await self._revive()
            await self._read_now.wait()
            self._read_now.clear()
            while self._up and self._wanted:
                await self._read_batch()

    async def _read_batch(self) -> None:
        batch = list(self._wanted.items())[:BATCH]
        began = time.monotonic()
        try:
            async with asyncio.timeout(CALL_S):
                values = await self._store.get_many([key for key, _ in batch])
        except (SharedStoreError, TimeoutError) as error:
            self._go_down(error)
            return
        for (key, found), value in zip(batch, values, strict=True):
            self._wanted.pop(key, None)
            if not found.done():
                found.set_result(value)
        if self._up and time.monotonic() - began <= self._wait_s:
            self._late, self._patience, self._cool_s = 0, LATE_IN_A_ROW, COOL_S

    async def _revive(self) -> None:
        """Come back when the store answers twice, the second time as quickly as events need it; the first one connects."""
        while True:
            try:
                async with asyncio.timeout(CALL_S):
                    await self._store.get_many([_PROBE_KEY])
                    began = time.monotonic()
                    await self._store.get_many([_PROBE_KEY])
            except (SharedStoreError, TimeoutError) as error:
                log.debug("the shared cache is gone", why=str(error))
            else:
                if time.monotonic() - began <= self._wait_s:
                    break
            await asyncio.sleep(self._cool_s)
            self._cool_s = min(2 * self._cool_s, MAX_COOL_S)
        self._up = True
        self._late, self._patience = 0, 1
        log.info("the shared cache answers")
        self._wake_writer()

    def _note_late(self) -> None:
        self._count("shared_late")
        self._late += 1
        if self._up and self._late >= self._patience:
            self._go_down(TimeoutError("slower than cache.shared_ms"))

    def _go_down(self, why: Exception) -> None:
        """Nobody asks it any more until it has come back; the reader is woken to see to that."""
        if self._up:
            self._up = False
            log.warning("the shared cache is left alone for a while: answers come from elsewhere", why=str(why))
        self._count("shared_error")
        self._give_up_reads()
        self._read_now.set()

    def _give_up_reads(self) -> None:
        for found in self._wanted.values():
            if not found.done():
                found.set_result(None)
        self._wanted.clear()

    def _wake_writer(self) -> None:
        if self._writes or self._closing or self._sought:
            self._drained.clear()
            self._write_now.set()

    async def _write(self) -> None:
        while True:
            await self._write_now.wait()
            self._write_now.clear()
            while self._up and (self._closing or self._sought or self._writes):
                if not await self._write_one():
                    await asyncio.sleep(COOL_S)
            if not (self._closing or self._sought or self._writes):
                self._drained.set()

    async def _write_one(self) -> bool:
        """The most urgent piece of work: wrong answers first. False when it has to be done again, later."""
        try:
            async with asyncio.timeout(CALL_S):
                if self._closing:
                    key, write = next(iter(self._closing.items()))
                    await self._store.put(write.key, write.value, write.ttl_s, replace=True)
                    if self._closing.get(key) is write:
                        del self._closing[key]
                elif self._sought:
                    await self._find_note(next(iter(self._sought)))
                else:
                    write = self._writes.popleft()
                    await self._store.put(write.key, write.value, write.ttl_s, replace=write.replace)
        except (SharedStoreError, TimeoutError):
            self._count("shared_error")
            return not (self._closing or self._sought)
        return True

    async def _find_note(self, event: bytes) -> None:
        raw = (await self._store.get_many([event]))[0]
        self._sought.pop(event, None)
        now_ms = self._clock.wall_ms()
        envelope = None if raw is None else unseal(raw, event, now_ms)
        if envelope is not None and envelope.sort == "note":
            self._on_noted(envelope.value, (envelope.until_ms - now_ms) / 1000)
