"""Hands disputed answers to the topic that people read; everything that an answer depends on is written by `streams.publish`.

It has a producer of its own and nobody waits for it: a review topic that is missing, full or forbidden must neither
delay an event nor end a worker, as a changelog that cannot be written does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas.reviews import Review
from schemas.settings import Settings
from streams.codecs import CONTENT_TYPES
from streams.security import client_options
from streams.topics import Topics

log = structlog.get_logger(__name__)

WAITING = 1000
"""Reviews that wait for Kafka: people complain by the minute, so this is an outage of hours; beyond it they are counted as dropped."""

SEND_S = 10.0
"""One record: a broker that has not taken it by then gets the next one, and this one is counted as dropped."""

STOP_S = 2.0
"""What a stop waits for those that are still here; the process must leave within its grace."""


class ReviewWriter:
    """Takes reviews at once and sends them in order; started and stopped with the worker."""

    def __init__(self, settings: Settings, on_review: Callable[[bool], None]) -> None:
        """`on_review` hears of each review whether Kafka has it."""
        self._settings = settings
        self._topic = Topics.of(settings).reviews
        self._on_review = on_review
        self._queue: asyncio.Queue[Review] = asyncio.Queue(WAITING)
        self._producer: AIOKafkaProducer | None = None
        self._sending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect and begin sending; nothing at all without `feedback.topic`. Raises KafkaError when no broker answers."""
        if not self._topic:
            return
        self._producer = AIOKafkaProducer(**client_options(self._settings.kafka), client_id=f"{self._settings.app.id}-reviews", acks="all")
        await self._producer.start()
        self._sending = asyncio.create_task(self._send_all(), name="reviews")

    def offer(self, review: Review) -> bool:
        """Whether it was taken: not without `feedback.topic`, nor while too many wait."""
        if not self._topic:
            return False
        try:
            self._queue.put_nowait(review)
        except asyncio.QueueFull:
            self._on_review(False)
            return False
        return True

    async def stop(self) -> None:
        """Send what is here, within a bound, and disconnect."""
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._queue.join(), STOP_S)
            self._sending.cancel()
            await asyncio.wait((self._sending,), timeout=STOP_S)
        if self._producer is not None:
            with suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(self._producer.stop(), STOP_S)

    async def _send_all(self) -> None:
        while True:
            review = await self._queue.get()
            try:
                self._on_review(await self._send(review))
            finally:
                self._queue.task_done()

    async def _send(self, review: Review) -> bool:
        if self._producer is None:
            return False
        try:
            async with asyncio.timeout(SEND_S):
                await self._producer.send_and_wait(
                    self._topic,
                    value=msgspec.msgpack.encode(review),
                    key=review.session_id.encode(),
                    headers=[("content-type", CONTENT_TYPES["msgpack"])],
                )
        except (KafkaError, TimeoutError) as error:
            log.warning("a review was dropped: is feedback.topic there, and may we write to it?", topic=self._topic, error=repr(error))
            return False
        return True
