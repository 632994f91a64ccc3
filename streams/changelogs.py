"""Reads compacted topics from outside a worker: the newest value under each wanted key, and again when there is more; a worker's own reading is Faust's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from schemas.errors import SetupError
from schemas.settings import Settings
from streams.clients import CONNECT_S
from streams.security import client_options

POLL_MS = 500
"""The longest wait inside one fetch: compaction leaves holes at which a fetch brings nothing."""

SILENCE_S = 30.0
"""A broker that gives nothing for so long though there is more is not well, and a command must say so and end."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest record under a key; `value` None: it was deleted."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    timestamp_ms: int


class LatestValues:
    """Bounded by what is wanted, not by what the topics hold; in no consumer group."""

    def __init__(self, settings: Settings, topics: Sequence[str], wanted: Callable[[str, bytes, bytes | None], bool]) -> None:
        """`wanted` is asked with topic, key and value; a key that was wanted once is followed to its end."""
        self._settings = settings
        self._topics = tuple(topics)
        self._wanted = wanted
        self._consumer: AIOKafkaConsumer | None = None
        self.found: dict[tuple[str, bytes], Latest] = {}

    @property
    def present(self) -> list[Latest]:
        """Those that are not deleted."""
        return [one for one in self.found.values() if one.value is not None]

    async def __aenter__(self) -> Self:
        """Connect and read all there is.

        Raises:
            SetupError: no broker, a topic is missing, or the broker fell silent.
        """
        self._consumer = AIOKafkaConsumer(**client_options(self._settings.kafka), enable_auto_commit=False, auto_offset_reset="earliest")
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._consumer.start()
                await self._assign(self._consumer)
        except (KafkaError, TimeoutError, OSError) as error:
            await self._consumer.stop()
            msg = f"no broker answers at {self._settings.kafka.bootstrap}: start one with `answerby broker`, or set kafka.bootstrap to yours"
            raise SetupError(msg) from error
        except BaseException:
            await self._consumer.stop()
            raise
        await self.catch_up()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def catch_up(self) -> None:
        """Read to where the topics end now.

        Raises:
            SetupError: the broker fell silent.
        """
        consumer = self._consumer
        if consumer is None:
            msg = "these topics are not open"
            raise RuntimeError(msg)
        try:
            ends = await consumer.end_offsets(list(consumer.assignment()))
            for place, end in ends.items():
                await self._read(consumer, place, end)
        except (KafkaError, TimeoutError) as error:
            msg = f"the broker at {self._settings.kafka.bootstrap} failed while tables were read ({type(error).__name__}): see its log and try again"
            raise SetupError(msg) from error

    async def _read(self, consumer: AIOKafkaConsumer, place: TopicPartition, end: int) -> None:
        while (position := await consumer.position(place)) < end:
            async with asyncio.timeout(SILENCE_S):
                while await consumer.position(place) == position and not await self._take(consumer, place):
                    pass

    async def _take(self, consumer: AIOKafkaConsumer, place: TopicPartition) -> bool:
        records = (await consumer.getmany(place, timeout_ms=POLL_MS)).get(place, ())
        for record in records:
            name = (place.topic, record.key or b"")
            if name in self.found or self._wanted(place.topic, name[1], record.value):
                self.found[name] = Latest(place.topic, place.partition, name[1], record.value, record.timestamp)
        return bool(records)

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        known = await consumer.topics()
        missing = [name for name in self._topics if name not in known]
        if missing:
            raise SetupError(f"no topic {missing[0]} at {self._settings.kafka.bootstrap}: run `answerby topics create`")
        first = [TopicPartition(name, 0) for name in self._topics]
        consumer.assign(first)
        await consumer.end_offsets(first)  # only of topics that it has asked about does the client know the partitions
        consumer.assign([TopicPartition(name, number) for name in self._topics for number in consumer.partitions_for_topic(name) or ()])
        await consumer.seek_to_beginning()


async def delete_keys(settings: Settings, topic: str, keys: Sequence[bytes]) -> None:
    """Write a null record under each key of partition 0, acknowledged.

    Raises:
        SetupError: the broker did not take them.
    """
    producer = AIOKafkaProducer(**client_options(settings.kafka), acks="all", enable_idempotence=True)
    try:
        async with asyncio.timeout(CONNECT_S):
            await producer.start()
            for key in keys:
                await producer.send_and_wait(topic, None, key=key, partition=0)
    except (KafkaError, TimeoutError, OSError) as error:
        msg = f"{settings.kafka.bootstrap} did not take what deletes from {topic} ({type(error).__name__}): check the broker and run the command again"
        raise SetupError(msg) from error
    finally:
        await producer.stop()
