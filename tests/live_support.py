"""What the live tests of a worker share: its settings, and a client that sends any bytes and sees everything a worker writes; fixtures are in `conftest`."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.harness import WorkerProcess
from bench.load import decode
from schemas.settings import App, Kafka, Settings
from streams.topics import Topics

WAIT_S = 20.0
"""Generous: says only that something does not hang."""

LATE_MS = 250
"""How late a busy machine may make a record without it being called late."""

PARTITIONS = 4

RawHeaders = Sequence[tuple[str, bytes | None]]

_numbers = itertools.count(1)


def now_ms() -> int:
    """This machine's time, Unix ms."""
    return round(time.time() * 1000)


def fresh(prefix: str) -> str:
    """A name nothing else in this run uses."""
    return f"{prefix}-{next(_numbers)}"


def worker_toml(bootstrap: str, name: str, models: Sequence[Mapping[str, Any]] = ({},), **sections: Mapping[str, Any]) -> str:
    """Settings of a worker with topics and a group of its own, scripted engines and a free port."""
    kafka = {"bootstrap": bootstrap, "topic_prefix": f"{name}-", **sections.pop("kafka", {})}
    worker = {"metrics_port": 0, **sections.pop("worker", {})}
    lines = _section("app", {"id": name}) + _section("kafka", kafka) + _section("worker", worker)
    for title, keys in sections.items():
        lines += _section(title, keys)
    for model in models:
        lines += ["[[models]]", *_keys({"name": "main", "engine": "scripted", **model})]
    return "\n".join(lines) + "\n"


def _section(title: str, keys: Mapping[str, Any]) -> list[str]:
    return [f"[{title}]", *_keys(keys)]


def _keys(keys: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in keys.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


@contextmanager
def running_worker(folder: Path, config: str, name: str = "worker") -> Iterator[WorkerProcess]:
    """A worker that is ready; stopped at the end."""
    with WorkerProcess(folder, config, name=name) as worker:
        worker.start()
        yield worker


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that a worker wrote."""

    partition: int
    offset: int
    written_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    body: dict[str, Any]

    def header(self, name: str) -> bytes | None:
        """The last value of a header."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(slots=True)
class Wire:
    """A plain Kafka client of one worker's topics. Everything is synchronous: `await_…` polls until it is there."""

    bootstrap: str
    name: str
    answers: dict[str, list[Seen]] = field(default_factory=dict)
    in_order: list[Seen] = field(default_factory=list)
    """All responses; those of one partition in their order."""
    dead: dict[tuple[int, int], list[Seen]] = field(default_factory=dict)
    """Dead letters by the place they came from."""
    audits: list[Seen] = field(default_factory=list)
    sent: int = 0
    _producer: Any = None
    _consumer: Any = None

    @property
    def topics(self) -> Topics:
        """The names."""
        return Topics.of(Settings(app=App(id=self.name), kafka=Kafka(topic_prefix=f"{self.name}-")))

    def __enter__(self) -> Wire:
        common = {"bootstrap.servers": self.bootstrap}
        self._producer = Producer({**common, "linger.ms": 0, "message.max.bytes": 2_000_000})
        self._consumer = Consumer({**common, "group.id": "wire", "enable.auto.commit": False, "fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 50})
        topics = self.topics
        places = [TopicPartition(topic, number, 0) for topic in (topics.responses, topics.dead_letters, topics.audit) for number in range(PARTITIONS)]
        self._consumer.assign(places)
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(WAIT_S)
        self._consumer.close()

    def send_raw(
        self, value: bytes | None, key: bytes | None, *, partition: int | None = None, headers: RawHeaders = (), timestamp_ms: int = 0
    ) -> tuple[int, int]:
        """Send a record to `interactions`; returns its partition and offset."""
        done: list[Any] = []
        more = {} if partition is None else {"partition": partition}
        self._producer.produce(
            self.topics.interactions,
            value=value,
            key=key,
            headers=list(headers),
            timestamp=timestamp_ms,
            on_delivery=lambda error, message: done.append(error or message),
            **more,
        )
        self._producer.flush(WAIT_S)
        self.sent += 1
        return done[0].partition(), done[0].offset()

    def send_many(self, records: Sequence[tuple[bytes | None, bytes | None]], partition: int) -> list[tuple[int, int]]:
        """Send values and keys in one burst; returns their places."""
        done: list[Any] = []
        for value, key in records:
            self._producer.produce(
                self.topics.interactions, value=value, key=key, partition=partition, on_delivery=lambda error, message: done.append(error or message)
            )
        self._producer.flush(WAIT_S)
        self.sent += len(records)
        return [(message.partition(), message.offset()) for message in done]

    def send(self, event: Mapping[str, Any], *, encoding: str = "msgpack", partition: int | None = None, headers: RawHeaders = ()) -> tuple[int, int]:
        """Send an event stamped now unless it has a stamp, under its session's key."""
        full = {"occurred_at_ms": now_ms(), **event}
        value = json.dumps(full).encode() if encoding == "json" else msgpack.packb(full)
        return self.send_raw(value, str(event["session_id"]).encode(), partition=partition, headers=headers)

    def ask(self, event: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Send an event and wait for its response's body."""
        self.send(event, **options)
        return self.answer(event["event_id"]).body

    def answer(self, event_id: str, count: int = 1) -> Seen:
        """The newest of at least `count` responses to an event."""
        self.await_that(lambda: len(self.answers.get(event_id, ())) >= count, f"{count} responses to {event_id}")
        return self.answers[event_id][-1]

    def dead_letter(self, place: tuple[int, int]) -> Seen:
        """The one dead letter of the record at `place`."""
        self.await_that(lambda: place in self.dead, f"a dead letter for {place}")
        (found,) = self.dead[place]
        return found

    def await_that(self, holds: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
        """Read what the worker writes until `holds`."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"not within {seconds} s: {what}"
            self._poll(0.05)

    def read_for(self, seconds: float) -> None:
        """Read what comes for a while: to see that nothing does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._poll(0.05)

    def lags(self) -> dict[int, int]:
        """By partition: end offset less the group's committed offset; the whole log where nothing is committed."""
        asked = [TopicPartition(self.topics.interactions, number) for number in range(PARTITIONS)]
        probe = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name, "enable.auto.commit": False})
        try:
            found = {}
            for place in probe.committed(asked, timeout=10):
                low, high = probe.get_watermark_offsets(place, timeout=10)
                found[place.partition] = high - max(place.offset, low)
            return found
        finally:
            probe.close()

    def await_no_lag(self) -> None:
        """Wait until the group has committed everything."""
        until = time.monotonic() + WAIT_S
        while any((lags := self.lags()).values()):
            assert time.monotonic() < until, f"the lag stays at {lags}"
            time.sleep(0.1)

    def _poll(self, seconds: float) -> None:
        message = self._consumer.poll(seconds)
        if message is None:
            return
        assert message.error() is None, message.error()
        headers = tuple(message.headers() or ())
        if message.topic() == self.topics.responses:
            seen = _seen(message, headers, decode(message.value()))
            self.answers.setdefault(seen.body["event_id"], []).append(seen)
            self.in_order.append(seen)
        elif message.topic() == self.topics.audit:
            self.audits.append(_seen(message, headers, decode(message.value())))
        else:
            seen = _seen(message, headers, {})
            place = int(seen.header("answerby.partition") or b"-1"), int(seen.header("answerby.offset") or b"-1")
            self.dead.setdefault(place, []).append(seen)


def _seen(message: Message, headers: tuple[tuple[str, bytes | None], ...], body: dict[str, Any]) -> Seen:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Seen(partition, offset, message.timestamp()[1], message.key(), message.value(), headers, body)


def late_ms(seen: Seen) -> int:
    """How long after its due a response was written; negative is early."""
    return seen.written_ms - int(seen.body["deadline"]["due_at_ms"])


def assert_in_time(seen: Seen) -> None:
    """A response left by its due, give or take what a busy machine costs."""
    assert late_ms(seen) <= LATE_MS, f"{seen.body['event_id']} is {late_ms(seen)} ms late: {seen.body}"


@contextmanager
def wired(worker_folder: Path, bootstrap: str, name: str, **options: Any) -> Iterator[tuple[WorkerProcess, Wire]]:
    """A ready worker and a client of its topics."""
    with running_worker(worker_folder, worker_toml(bootstrap, name, **options)) as worker, Wire(bootstrap, name) as wire:
        yield worker, wire
