"""Finds the response to one event, or its dead letter, newest records first and bounded in time; waiting for one to come is `streams.clients`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from schemas.dead_letters import HEADER_PREFIX
from schemas.errors import SetupError
from schemas.events import DEFAULT_TENANT
from schemas.settings import Settings
from streams.clients import CONNECT_S, Record
from streams.security import client_options
from streams.topics import Topics

WINDOW = 4000
"""Records of a partition read at once, from its end backwards: what was just answered is found in one round, and memory stays flat."""

_POLL_MS = 500
"""A fetch that brings nothing (a hole that compaction or a transaction left) must not hold the search for longer."""

Progress = Callable[[int, int], None]
"""Told after each window how many records were read, and how many there are."""


@dataclass(frozen=True, slots=True)
class Found:
    """A response (of `find_dead_letter`: the event) and where it stands; `others` are further sessions (tenant, session) with an event of the same id."""

    record: Record
    response: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NotFound:
    """No such response: `read` of `total` records were looked at, fewer than all when time was up."""

    read: int
    total: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; without a session any session's event of that id."""

    event_id: str
    session_id: str | None = None
    tenant: str | None = None

    def matches(self, value: bytes | None) -> bool:
        """Whether a record can be it, without decoding: most are not."""
        if value is None:
            return False
        as_it_is = self.event_id.isprintable() and not {'"', "\\"} & set(self.event_id)  # JSON writes the others differently
        return not as_it_is or self.event_id.encode() in value

    def is_met(self, response: dict[str, Any]) -> bool:
        """Whether a response is it."""
        return (
            response.get("event_id") == self.event_id
            and self.session_id in (None, response.get("session_id"))
            and self.tenant in (None, response.get("tenant", DEFAULT_TENANT))
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why an event could not be answered, and where it stood; partition and offset are -1 where the record does not say."""

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int


def read_dead_letter(record: Record) -> DeadLetter:
    """What a record of the topic `dead-letters` says of itself; our headers come last, whatever a producer's own are called."""
    said = {name: value.decode("utf-8", "replace") for name, value in record.headers if name.startswith(HEADER_PREFIX) and value is not None}

    def text(name: str) -> str:
        return said.get(HEADER_PREFIX + name, "")

    def number(name: str) -> int:
        with suppress(ValueError):
            return int(text(name))
        return -1

    return DeadLetter(text("reason") or "?", text("detail"), text("topic"), number("partition"), number("offset"))


async def find_response(settings: Settings, wanted: Wanted, *, timeout_s: float, progress: Progress | None = None) -> Found | NotFound:
    """The newest response to an event. With its session known, the partition where most producers put that session is read first.

    Raises:
        SetupError: no broker, or the topic is missing.
    """
    return await _find(settings, Topics.of(settings).responses, wanted, timeout_s, progress)


async def find_dead_letter(settings: Settings, wanted: Wanted, *, timeout_s: float) -> Found | NotFound:
    """The newest dead letter of an event whose bytes can still be read as a map; `read_dead_letter` of its record says why.

    Raises:
        SetupError: no broker, or the topic is missing.
    """
    return await _find(settings, Topics.of(settings).dead_letters, wanted, timeout_s, None)


async def _find(settings: Settings, topic: str, wanted: Wanted, timeout_s: float, progress: Progress | None) -> Found | NotFound:
    consumer = AIOKafkaConsumer(**client_options(settings.kafka), enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        async with asyncio.timeout(CONNECT_S):
            await consumer.start()
            places = await _places(consumer, topic, settings)
        first = _likely(places, wanted.session_id)
        rest = [place for place in places if place not in first]
        return await _search(consumer, [group for group in (first, rest) if group], wanted, time.monotonic() + timeout_s, progress)
    except (KafkaError, TimeoutError, OSError) as error:
        msg = f"no broker answers at {settings.kafka.bootstrap}: start one with `answerby broker`, or set kafka.bootstrap to yours"
        raise SetupError(msg) from error
    finally:
        await consumer.stop()


async def _places(consumer: AIOKafkaConsumer, topic: str, settings: Settings) -> list[TopicPartition]:
    if topic not in await consumer.topics():
        msg = f"no topic {topic} at {settings.kafka.bootstrap}: run `answerby topics create`"
        raise SetupError(msg)
    first = [TopicPartition(topic, 0)]
    consumer.assign(first)
    await consumer.end_offsets(first)  # only of topics that it has asked about does the client know the partitions
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]


def _likely(places: Sequence[TopicPartition], session_id: str | None) -> list[TopicPartition]:
    """Where Kafka's own partitioner puts the session; producers of another library may put it elsewhere, so the others follow."""
    if session_id is None:
        return list(places)
    numbers = [place.partition for place in places]
    number = DefaultPartitioner()(session_id.encode(), numbers, numbers)
    return [place for place in places if place.partition == number]


async def _search(
    consumer: AIOKafkaConsumer, groups: Sequence[Sequence[TopicPartition]], wanted: Wanted, until: float, progress: Progress | None
) -> Found | NotFound:
    everywhere = [place for group in groups for place in group]
    begins, ends = await consumer.beginning_offsets(everywhere), await consumer.end_offsets(everywhere)
    total = sum(ends[place] - begins[place] for place in everywhere)
    read = 0
    for group in groups:
        tops = {place: ends[place] for place in group if ends[place] > begins[place]}
        while tops:
            if time.monotonic() >= until:
                return NotFound(read, total)
            lows = {place: max(begins[place], top - WINDOW) for place, top in tops.items()}
            found, complete = await _read_window(consumer, lows, tops, wanted, until)
            read += sum(tops[place] - lows[place] for place in tops) if complete else 0
            if progress is not None:
                progress(read, total)
            if found:
                return _newest(found)
            if not complete:
                return NotFound(read, total)
            tops = {place: low for place, low in lows.items() if low > begins[place]}
    return NotFound(read, total)


async def _read_window(
    consumer: AIOKafkaConsumer, lows: dict[TopicPartition, int], tops: dict[TopicPartition, int], wanted: Wanted, until: float
) -> tuple[list[tuple[Record, dict[str, Any]]], bool]:
    """What matches between `lows` and `tops`, and whether all of it was read before time was up."""
    consumer.assign(list(lows))
    for place, low in lows.items():
        consumer.seek(place, low)
    found: list[tuple[Record, dict[str, Any]]] = []
    open_places = set(lows)
    while open_places:
        batches = await consumer.getmany(*open_places, timeout_ms=_POLL_MS)
        for place, messages in batches.items():
            for message in messages:
                if message.offset < tops[place] and wanted.matches(message.value):
                    found += _decoded(message, wanted)
        for place in tuple(open_places):
            if await consumer.position(place) >= tops[place]:
                open_places.discard(place)
        if open_places and time.monotonic() >= until:  # not before a first read: the client does not survive being stopped between a seek and a fetch
            return found, False
    return found, True


def _decoded(message: Any, wanted: Wanted) -> list[tuple[Record, dict[str, Any]]]:
    record = Record(
        message.topic, message.partition, message.offset, message.key, message.value, tuple(message.headers or ()), message.timestamp, time.monotonic()
    )
    try:
        response = record.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):  # somebody else wrote to the topic, or a dead letter's bytes are why it is one
        return []
    return [(record, response)] if wanted.is_met(response) else []


def _newest(found: list[tuple[Record, dict[str, Any]]]) -> Found:
    record, response = max(found, key=lambda pair: (pair[0].timestamp_ms, pair[0].offset))
    others = {_whose(other) for _, other in found} - {_whose(response)}
    return Found(record, response, tuple(sorted(others)))


def _whose(response: dict[str, Any]) -> tuple[str, str]:
    return str(response.get("tenant", DEFAULT_TENANT)), str(response.get("session_id"))
