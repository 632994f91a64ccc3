"""Small Kafka clients for commands and tests: send events, wait for their answers, tail topics; the worker's own are `transport` and `publish`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from schemas.errors import SetupError
from schemas.events import InteractionEvent
from schemas.settings import Settings
from streams.codecs import CONTENT_TYPES, Encoding, Headers, encoding_of
from streams.security import client_options
from streams.topics import Topics

CONNECT_S = 15.0
"""How long to try for a broker: a cluster under load answers within seconds, and a person who mistyped an address waits no longer than this."""

_SEND_S = 30.0
"""A record that a healthy broker has not acknowledged by then will not be; at worst a lost leader holds a command this long."""

_UNCLAIMED = 10_000
"""Answers kept for events that nobody asked about yet; more than a test or a command sends, and bounded on a busy cluster."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer saw it. `received_at` is in monotonic seconds, `timestamp_ms` the broker's or the producer's in Unix milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    received_at: float

    def decode(self) -> dict[str, Any]:
        """The value as a plain map, in whichever of the two encodings it is; empty for a null value.

        Raises:
            msgspec.DecodeError: it is neither.
        """
        if self.value is None:
            return {}
        kind = dict[str, Any]
        return msgspec.json.decode(self.value, type=kind) if encoding_of(self.value, self.headers) == "json" else msgspec.msgpack.decode(self.value, type=kind)


@dataclass(frozen=True, slots=True)
class Sent:
    """Where an event went; `sent_at` is just before it was handed to the client, in monotonic seconds."""

    event_id: str
    session_id: str
    partition: int
    offset: int
    sent_at: float


class Tail:
    """Reads topics from their end (their start, or given offsets) on, all partitions, in no consumer group; what is sent after `start` returned is seen."""

    def __init__(self, settings: Settings, topics: Iterable[str], *, offsets: Mapping[TopicPartition, int] | None = None, from_start: bool = False) -> None:
        self._settings, self._topics, self._offsets, self._from_start = settings, tuple(topics), offsets or {}, from_start
        self._consumer: AIOKafkaConsumer | None = None

    async def __aenter__(self) -> Self:
        """Connect and fix where reading begins.

        Raises:
            SetupError: no broker, or a topic is missing; the text says what to run.
        """
        self._consumer = consumer = AIOKafkaConsumer(**client_options(self._settings.kafka), enable_auto_commit=False, auto_offset_reset="earliest")
        try:
            await _start(consumer, self._settings)
            async with asyncio.timeout(CONNECT_S):
                await self._assign(consumer)
        except BaseException as error:
            await self._close()
            if isinstance(error, KafkaError | TimeoutError):
                raise _no_broker(self._settings) from error
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._close()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        """The next record of any topic, whenever it comes."""
        record = await self._reader.getone()
        return Record(
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.value,
            tuple(record.headers or ()),
            record.timestamp,
            time.monotonic(),
        )

    @property
    def _reader(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            msg = "this tail is not open"
            raise RuntimeError(msg)
        return self._consumer

    async def _assign(self, consumer: AIOKafkaConsumer) -> None:
        known = await consumer.topics()
        missing = [name for name in self._topics if name not in known]
        if missing:
            msg = f"no topic {missing[0]} at {self._settings.kafka.bootstrap}: run `answerby topics create`"
            raise SetupError(msg)
        first = [TopicPartition(name, 0) for name in self._topics]
        consumer.assign(first)
        await consumer.end_offsets(first)  # only of topics that it has asked about does the client know the partitions
        places = [TopicPartition(name, number) for name in self._topics for number in consumer.partitions_for_topic(name) or ()]
        consumer.assign(places)
        edges = await (consumer.beginning_offsets(places) if self._from_start else consumer.end_offsets(places))
        for place in places:
            consumer.seek(place, self._offsets.get(place, edges[place]))

    async def _close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            await consumer.stop()


class EventSender:
    """Produces events as any team's producer would: the key is the session, the header names the encoding."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._topic = settings, Topics.of(settings).interactions
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            SetupError: no broker.
        """
        self._producer = producer = AIOKafkaProducer(
            **client_options(self._settings.kafka), acks="all", enable_idempotence=True, request_timeout_ms=round(_SEND_S * 1000), max_request_size=1_048_576
        )
        try:
            await _start(producer, self._settings)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._close()

    async def send(
        self, event: InteractionEvent | Mapping[str, Any], encoding: Encoding = "msgpack", headers: Headers = (), partition: int | None = None
    ) -> Sent:
        """Produce one event and wait for the broker's acknowledgement.

        Raises:
            SetupError: the broker did not take it.
        """
        tree = msgspec.to_builtins(event) if isinstance(event, InteractionEvent) else event
        value = msgspec.json.encode(tree) if encoding == "json" else msgspec.msgpack.encode(tree)
        session = str(tree.get("session_id", ""))
        sent = await self.send_raw(value, session.encode() or None, (("content-type", CONTENT_TYPES[encoding]), *headers), partition)
        return Sent(str(tree.get("event_id", "")), session, sent.partition, sent.offset, sent.sent_at)

    async def send_raw(self, value: bytes | None, key: bytes | None = None, headers: Headers = (), partition: int | None = None) -> Sent:
        """Produce bytes exactly as they are; for tests and for showing what becomes of bad ones.

        Raises:
            SetupError: the broker did not take it.
        """
        if self._producer is None:
            msg = "this sender is not open"
            raise RuntimeError(msg)
        sent_at = time.monotonic()
        try:
            async with asyncio.timeout(_SEND_S):
                done = await self._producer.send_and_wait(self._topic, value, key=key, partition=partition, headers=list(headers))
        except (KafkaError, TimeoutError) as error:
            msg = f"{self._settings.kafka.bootstrap} did not take the record ({type(error).__name__}): check the broker and `answerby topics check`"
            raise SetupError(msg) from error
        return Sent("", "", done.partition, done.offset, sent_at)

    async def _close(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.stop()


class AnswerClient:
    """Sends events and waits for their answers, many at once; an answer is never missed, for reading begins before anything is sent."""

    def __init__(self, settings: Settings) -> None:
        self._sender, self._tail = EventSender(settings), Tail(settings, [Topics.of(settings).responses])
        self._waiting: dict[tuple[str, str], asyncio.Future[Record]] = {}
        self._unclaimed: dict[tuple[str, str], Record] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Connect; reading comes first.

        Raises:
            SetupError: no broker, or a topic is missing.
        """
        await self._tail.__aenter__()
        try:
            await self._sender.__aenter__()
        except BaseException:
            await self._tail.__aexit__()
            raise
        self._reading = asyncio.create_task(self._read(), name="answer-client")
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        await self._sender.__aexit__()
        await self._tail.__aexit__()

    async def send(
        self, event: InteractionEvent | Mapping[str, Any], encoding: Encoding = "msgpack", headers: Headers = (), partition: int | None = None
    ) -> Sent:
        """As `EventSender.send`."""
        return await self._sender.send(event, encoding, headers, partition)

    async def answer_to(self, sent: Sent, timeout_s: float) -> Record | None:
        """The answer to one event, the first when there are several; None when none came within `timeout_s` seconds of now.

        Raises:
            KafkaError: the broker was lost meanwhile.
        """
        name = (sent.session_id, sent.event_id)
        if name in self._unclaimed:
            return self._unclaimed.pop(name)
        future = self._waiting.setdefault(name, asyncio.get_running_loop().create_future())
        reading = self._reading
        if reading is None:
            msg = "this client is not open"
            raise RuntimeError(msg)
        await asyncio.wait((future, reading), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._waiting.pop(name, None)
        if future.done():
            return future.result()
        if reading.done():
            reading.result()
        return None

    async def answers_to(self, sent: Iterable[Sent], timeout_s: float) -> list[Record | None]:
        """The answers to many events, in their order, None where none came within `timeout_s` seconds of now."""
        return list(await asyncio.gather(*(self.answer_to(one, timeout_s) for one in sent)))

    async def _read(self) -> None:
        async for record in self._tail:
            try:
                answer = record.decode()
            except msgspec.DecodeError:  # somebody else wrote to the topic; nobody waits for that
                continue
            name = (str(answer.get("session_id")), str(answer.get("event_id")))
            future = self._waiting.get(name)
            if future is not None and not future.done():
                future.set_result(record)
                continue
            if len(self._unclaimed) >= _UNCLAIMED:
                self._unclaimed.pop(next(iter(self._unclaimed)))
            self._unclaimed.setdefault(name, record)


async def _start(client: AIOKafkaConsumer | AIOKafkaProducer, settings: Settings) -> None:
    try:
        async with asyncio.timeout(CONNECT_S):
            await client.start()
    except (KafkaError, TimeoutError, OSError) as error:
        raise _no_broker(settings) from error


def _no_broker(settings: Settings) -> SetupError:
    return SetupError(f"no broker answers at {settings.kafka.bootstrap}: start one with `answerby broker`, or set kafka.bootstrap to yours")
