"""A compacted topic that every worker reads whole, beside its partitions: for what is keyed by person, not by session; the others are `streams.tables`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from schemas.settings import Settings
from streams.security import client_options

log = structlog.get_logger(__name__)

AT_ONCE = 200
"""Records taken without giving the loop back: each costs some microseconds."""

POLL_MS = 500
"""The longest wait inside one fetch, so that a stop is heard soon."""

RETRY_S = 1.0
"""After an error of the client, which reconnects by itself: a broker that is down must not fill the log."""

TakeRecord = Callable[[bytes, bytes | None, int], None]
"""Told each record: key, value (None deletes it) and the broker's or writer's timestamp in Unix ms."""


class GlobalTable:
    """Reads one topic from its beginning and then on, in no consumer group."""

    def __init__(self, settings: Settings, topic: str, take: TakeRecord) -> None:
        self._settings = settings
        self._topic = topic
        self._take = take
        self._consumer: AIOKafkaConsumer | None = None
        self._reading: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()

    @property
    def loaded(self) -> bool:
        """Whether everything that was there at the start has been read."""
        return self._loaded.is_set()

    async def start(self, wait_s: float) -> None:
        """Connect, and wait at most `wait_s` until all that is there is read; the rest comes while the worker answers. Raises KafkaError."""
        self._consumer = consumer = AIOKafkaConsumer(**client_options(self._settings.kafka), enable_auto_commit=False, auto_offset_reset="earliest")
        await consumer.start()
        place = TopicPartition(self._topic, 0)
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        if end == 0:
            self._loaded.set()
        began = time.monotonic()
        self._reading = asyncio.create_task(self._read(consumer, place, end), name="global-table")
        try:
            await asyncio.wait_for(self._loaded.wait(), wait_s)
            log.info("persons read", records=end, seconds=round(time.monotonic() - began, 1))
        except TimeoutError:
            log.warning("persons are still being read: events are answered without some of them", waited_s=wait_s, records=end)

    async def stop(self) -> None:
        """Disconnect; at most about two seconds."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,), timeout=1.0)
        if self._consumer is not None:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(self._consumer.stop(), 1.0)

    async def _read(self, consumer: AIOKafkaConsumer, place: TopicPartition, end: int) -> None:
        while True:
            try:
                found = await consumer.getmany(place, timeout_ms=POLL_MS, max_records=AT_ONCE)
                for record in found.get(place, ()):
                    if record.key is not None:
                        self._take(record.key, record.value, record.timestamp)
                if not self._loaded.is_set() and await consumer.position(place) >= end:
                    self._loaded.set()
            except KafkaError as error:
                log.warning("persons could not be read, trying again", error=repr(error))
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(0)
