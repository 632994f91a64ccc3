"""The commands' Kafka clients on the real broker: nothing sent after opening is missed, and what is missing outside is told in one line."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from schemas.errors import SetupError
from schemas.settings import Kafka, Settings
from streams.broker.probe import free_port
from streams.clients import AnswerClient, EventSender, Record, Sent, Tail
from streams.security import client_options
from streams.topic_admin import ensure_topics
from streams.topics import Topics
from tests.support import run

pytestmark = pytest.mark.live

SENT = Sent("e-1", "s-1", 0, 0, 0.0)


def event(number: int, session: str = "s-1") -> dict[str, Any]:
    """A good event."""
    return {"event_id": f"e-{number}", "session_id": session, "text": "hello"}


async def respond(settings: Settings, *answers: dict[str, Any] | bytes | None) -> None:
    """Write records to `responses`, as a worker would."""
    async with AIOKafkaProducer(**client_options(settings.kafka)) as producer:
        for answer in answers:
            value = msgspec.msgpack.encode(answer) if isinstance(answer, dict) else answer
            await producer.send_and_wait(Topics.of(settings).responses, value, key=b"k")


async def take(tail: Tail, count: int) -> list[Record]:
    """The next records, within the test's bound."""
    return [await anext(tail) for _ in range(count)]


def test_a_tail_sees_what_is_sent_after_it_opened_and_nothing_older(kafka_settings: Settings) -> None:
    """Reading begins at the end of every partition, fixed before `async with` is entered."""

    async def scenario() -> list[Record]:
        await ensure_topics(kafka_settings)
        async with EventSender(kafka_settings) as sender:
            for number in range(8):
                await sender.send(event(number, f"old-{number}"))
            async with Tail(kafka_settings, [Topics.of(kafka_settings).interactions]) as tail:
                sent = [await sender.send(event(number, f"new-{number}")) for number in range(8)]
                records = await take(tail, 8)
        assert {one.partition for one in sent} == {record.partition for record in records}
        return records

    records = run(scenario())
    assert sorted(record.decode()["session_id"] for record in records) == [f"new-{number}" for number in range(8)]
    assert len({record.partition for record in records}) > 1


def test_a_tail_from_the_start_sees_older_records_too(kafka_settings: Settings) -> None:
    """Reading begins with the oldest record of every partition, and goes on with what comes."""

    async def scenario() -> list[Record]:
        await ensure_topics(kafka_settings)
        async with EventSender(kafka_settings) as sender:
            await sender.send(event(1, "old"))
            async with Tail(kafka_settings, [Topics.of(kafka_settings).interactions], from_start=True) as tail:
                await sender.send(event(2, "new"))
                return await take(tail, 2)

    assert {record.decode()["session_id"] for record in run(scenario())} == {"old", "new"}


def test_a_tail_can_begin_earlier(kafka_settings: Settings) -> None:
    """Given offsets win over the end."""

    async def scenario() -> Record:
        await ensure_topics(kafka_settings)
        async with EventSender(kafka_settings) as sender:
            sent = [await sender.send(event(number), partition=2) for number in range(3)]
        topic = Topics.of(kafka_settings).interactions
        async with Tail(kafka_settings, [topic], offsets={TopicPartition(topic, 2): sent[1].offset}) as tail:
            return await anext(tail)

    assert run(scenario()).decode()["event_id"] == "e-1"


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_an_event_is_sent_as_any_producer_would(kafka_settings: Settings, encoding: Any) -> None:
    """Key is the session, the header names the encoding, other headers go along, and the value is the event."""

    async def scenario() -> tuple[Sent, Record]:
        await ensure_topics(kafka_settings)
        async with Tail(kafka_settings, [Topics.of(kafka_settings).interactions]) as tail, EventSender(kafka_settings) as sender:
            sent = await sender.send(event(1, "会话"), encoding, headers=(("traceparent", b"00-1"),), partition=3)
            return sent, await anext(tail)

    sent, record = run(scenario())
    assert (sent.event_id, sent.session_id, sent.partition) == ("e-1", "会话", 3)
    assert (record.partition, record.offset, record.key) == (3, sent.offset, "会话".encode())
    assert record.headers == (("content-type", f"application/{encoding}".encode()), ("traceparent", b"00-1"))
    assert record.decode() == event(1, "会话")
    assert (record.value or b"")[:1] == b"{" if encoding == "json" else (record.value or b"")[:1] != b"{"
    assert record.received_at >= sent.sent_at


@pytest.mark.parametrize("value", [b"\xc1", b"", None], ids=["garbage", "empty", "null"])
def test_raw_bytes_arrive_as_they_are(kafka_settings: Settings, value: bytes | None) -> None:
    """`send_raw` adds and changes nothing."""

    async def scenario() -> Record:
        await ensure_topics(kafka_settings)
        async with Tail(kafka_settings, [Topics.of(kafka_settings).interactions]) as tail, EventSender(kafka_settings) as sender:
            await sender.send_raw(value, b"\xff\x00")
            return await anext(tail)

    record = run(scenario())
    assert (record.value, record.key, record.headers) == (value, b"\xff\x00", ())


def test_many_answers_find_their_events(kafka_settings: Settings) -> None:
    """Answers in any order, with strangers' and unreadable records between them, reach those who wait; who gets none is told after the time-out."""

    async def scenario() -> list[Record | None]:
        await ensure_topics(kafka_settings)
        async with AnswerClient(kafka_settings) as client:
            sent = [await client.send(event(number, f"s-{number % 3}")) for number in range(20)]
            waiting = asyncio.create_task(client.answers_to([*sent, dataclasses.replace(SENT, event_id="never")], 4.0))
            answers = [event(number, f"s-{number % 3}") for number in reversed(range(20))]
            await respond(kafka_settings, b"\xc1", None, {"event_id": 7}, *answers)
            return await waiting

    found = run(scenario())
    assert [record.decode()["event_id"] for record in found[:-1] if record is not None] == [f"e-{number}" for number in range(20)]
    assert found[-1] is None


def test_an_answer_that_came_before_it_was_asked_for_is_kept(kafka_settings: Settings) -> None:
    """Between sending and waiting nothing is lost; the first of several answers counts."""

    async def scenario() -> tuple[Record | None, Record | None]:
        await ensure_topics(kafka_settings)
        async with AnswerClient(kafka_settings) as client:
            await respond(kafka_settings, {**event(1), "n": 1}, {**event(1), "n": 2}, event(2))
            marker = await client.answer_to(dataclasses.replace(SENT, event_id="e-2"), 10.0)
            return marker, await client.answer_to(SENT, 0.0)

    marker, first = run(scenario())
    assert marker is not None
    assert first is not None
    assert first.decode()["n"] == 1


@pytest.mark.parametrize("client", [AnswerClient, EventSender], ids=lambda client: client.__name__)
def test_no_broker_is_one_line(client: Any) -> None:
    """Nothing listening: a SetupError that says what to do, soon, and nothing left open."""
    settings = Settings(kafka=Kafka(bootstrap=f"127.0.0.1:{free_port()}"))

    async def scenario() -> None:
        async with client(settings):
            pass

    with pytest.raises(SetupError, match="answerby broker"):
        run(scenario(), timeout_s=30)


def test_missing_topics_are_one_line(kafka_settings: Settings) -> None:
    """A topic that does not exist is told with the command that makes it, and is not made by asking."""

    async def scenario() -> None:
        async with Tail(kafka_settings, [Topics.of(kafka_settings).responses]):
            pass

    for _ in range(2):
        with pytest.raises(SetupError, match="answerby topics create"):
            run(scenario())
