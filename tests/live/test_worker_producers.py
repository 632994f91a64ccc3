"""Live tests of other programs' records: every client, codec and partitioner, and logs whose offsets have gaps."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from aiokafka import AIOKafkaProducer

from bench.harness import WorkerProcess
from tests.live_support import WAIT_S, Wire, fresh, now_ms, wired
from tests.support import run

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerProcess, Wire]]:
    """One worker for the whole module."""
    with wired(tmp_path_factory.mktemp("producers"), broker, "producers") as found:
        yield found


@pytest.fixture
def wire(rig: tuple[WorkerProcess, Wire]) -> Wire:
    """The client."""
    return rig[1]


def message(session: str) -> dict[str, Any]:
    """A message under a new id, stamped now."""
    return {
        "event_id": fresh("e"),
        "session_id": session,
        "text": "one two three",
        "occurred_at_ms": now_ms(),
        "deadline_ms": 10_000,
        "answer": {"max_tokens": 3},
    }


def send(broker: str, wire: Wire, events: list[dict[str, Any]], *, encoding: str = "msgpack", **options: Any) -> None:
    """Send events with aiokafka, in one batch where they fit into one."""

    async def sending() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker, linger_ms=20, **options)
        async with producer:
            values = [json.dumps(event).encode() if encoding == "json" else msgpack.packb(event) for event in events]
            sent = [
                await producer.send(wire.topics.interactions, value=value, key=event["session_id"].encode())
                for value, event in zip(values, events, strict=True)
            ]
            for future in sent:
                await future

    run(sending())


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_aiokafka_is_answered_in_its_encoding(broker: str, wire: Wire, encoding: str) -> None:
    """MessagePack and JSON from a plain producer, without headers."""
    event = message(fresh("s"))
    send(broker, wire, [event], encoding=encoding)
    seen = wire.answer(event["event_id"])
    assert seen.body["outcome"] == "model"
    assert ((seen.value or b"")[:1] == b"{") == (encoding == "json")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(broker: str, wire: Wire, codec: str) -> None:
    """Every codec that Kafka knows, twenty events in a batch."""
    events = [message(f"{codec}-{number % 5}") for number in range(20)]
    send(broker, wire, events, compression_type=codec)
    assert {wire.answer(event["event_id"]).body["outcome"] for event in events} == {"model"}


def test_a_librdkafka_producer_keeps_its_sessions_whole(wire: Wire) -> None:
    """Its default partitioner puts a session where it likes, and each message sees the ones before it."""
    sessions = [fresh("会话") for _ in range(8)]
    for turn in range(3):
        for session in sessions:
            event = message(session)
            partition, _ = wire.send(event)
            seen = wire.answer(event["event_id"])
            assert seen.partition == partition
            assert len(wire.answers[event["event_id"]]) == 1
            expected = seen.body["usage"]["prompt_tokens"] if turn == 0 else None
            assert expected is None or expected > 0
    tokens = [[seen.body["usage"]["prompt_tokens"] for seen in wire.in_order if seen.body["session_id"] == session] for session in sessions]
    assert all(later - earlier == 6 for turns in tokens for earlier, later in itertools.pairwise(turns))


def test_what_a_transaction_took_back_is_not_answered_and_leaves_no_lag(rig: tuple[WorkerProcess, Wire], broker: str) -> None:
    """Committed events are answered, aborted ones never were; the marks between them and at the log's end are no events, and the lag goes to 0."""
    worker, wire = rig
    session = fresh("s")
    good, aborted = [message(session) for _ in range(4)], [message(session) for _ in range(2)]
    counted = worker.metric_sum("answerby_events_total")

    async def sending() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=fresh("t"))
        async with producer:
            for number, events in enumerate((good[:2], aborted[:1], good[2:], aborted[1:])):
                await producer.begin_transaction()
                for event in events:
                    await producer.send_and_wait(wire.topics.interactions, value=msgpack.packb(event), key=session.encode())
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())

    run(sending())
    assert {wire.answer(event["event_id"]).body["outcome"] for event in good} == {"model"}
    wire.await_no_lag()
    assert not any(event["event_id"] in wire.answers for event in aborted)
    assert worker.metric_sum("answerby_events_total") == counted + len(good)
    after = message(session)
    wire.send(after)
    assert wire.answer(after["event_id"]).body["outcome"] == "model"
    wire.await_no_lag()
    assert worker.metric_sum("answerby_seek_backs_total") <= 2 * (len(good) + len(aborted))


def test_an_open_transaction_holds_back_and_its_end_lets_go(rig: tuple[WorkerProcess, Wire], broker: str) -> None:
    """An event within a transaction is answered when that is committed, and not before."""
    _, wire = rig
    event = message(fresh("s"))

    async def sending() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker, transactional_id=fresh("t"))
        async with producer, producer.transaction():
            await producer.send_and_wait(wire.topics.interactions, value=msgpack.packb(event), key=event["session_id"].encode())
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                wire.read_for(0.1)
            assert event["event_id"] not in wire.answers

    run(sending(), timeout_s=WAIT_S)
    assert wire.answer(event["event_id"]).body["outcome"] == "model"


def test_nothing_lags_and_nobody_restarted_at_the_end(rig: tuple[WorkerProcess, Wire]) -> None:
    """Every record of the module is released."""
    worker, wire = rig
    wire.await_no_lag()
    assert "Traceback" not in worker.log_text()
    assert worker.readiness()["ready"]
