"""An open-loop load: events leave at their own times whatever comes back, and answers are timed by the consumer's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgpack
import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.arrivals import even_moments, poisson_moments


@dataclass(frozen=True, slots=True)
class Received:
    """One record seen on `responses`."""

    at: float
    partition: int
    offset: int
    value: bytes
    response: dict[str, Any]


@dataclass(slots=True)
class LoadResult:
    """What was sent and what came back; times are `time.time()` seconds of the client."""

    sent: dict[str, float] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    received: dict[str, list[Received]] = field(default_factory=dict)

    @property
    def lost(self) -> list[str]:
        """Events without any response."""
        return [event_id for event_id in self.sent if event_id not in self.received]

    @property
    def contradictory(self) -> list[str]:
        """Events whose repeated responses differ in a byte."""
        return [event_id for event_id, seen in self.received.items() if len({item.value for item in seen}) > 1]

    @property
    def repeats(self) -> int:
        """Responses beyond the first of each event."""
        return sum(len(seen) - 1 for seen in self.received.values())

    def latencies_ms(self) -> list[float]:
        """From the producer's send to the consumer's receipt of the first response, sorted."""
        return sorted((seen[0].at - self.sent[event_id]) * 1000 for event_id, seen in self.received.items() if event_id in self.sent)

    def lateness_ms(self) -> list[float]:
        """Receipt minus due, sorted; negative is early. Due is the event's own stamp plus its budget."""
        late = []
        for event_id, seen in self.received.items():
            event = self.events.get(event_id)
            if event is not None and event.get("deadline_ms") is not None:
                late.append(seen[0].at * 1000 - event["occurred_at_ms"] - event["deadline_ms"])
        return sorted(late)

    def outcomes(self) -> dict[str, int]:
        """First responses by outcome and reason."""
        counts: dict[str, int] = {}
        for seen in self.received.values():
            first = seen[0].response
            name = first["outcome"] if first["reason"] is None else f"{first['outcome']}/{first['reason']}"
            counts[name] = counts.get(name, 0) + 1
        return counts


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile of sorted `values`; NaN when there are none."""
    return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


def decode(value: bytes) -> dict[str, Any]:
    """A response in either encoding."""
    decoded: dict[str, Any] = msgspec.json.decode(value) if value[:1] == b"{" else msgpack.unpackb(value)
    return decoded


class LoadClient:
    """A producer of `interactions` and a consumer of `responses` that sees every partition."""

    def __init__(self, bootstrap: str, *, prefix: str = "") -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self.result = LoadResult()

    async def __aenter__(self) -> LoadClient:
        self._producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, linger_ms=0, acks="all")
        self._consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, fetch_max_wait_ms=500, auto_offset_reset="earliest")
        await self._producer.start()
        await self._consumer.start()
        topic = f"{self._prefix}responses"
        partitions = await self._producer.partitions_for(topic)
        assigned = [TopicPartition(topic, number) for number in sorted(partitions)]
        self._consumer.assign(assigned)
        for partition, end in (await self._consumer.end_offsets(assigned)).items():
            self._consumer.seek(partition, end)
        await self._producer.partitions_for(f"{self._prefix}interactions")  # or the first event would wait for it
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._producer is not None:
            await self._producer.stop()
        if self._consumer is not None:
            await self._consumer.stop()

    async def send(self, event: dict[str, Any]) -> None:
        """Send one event now; its stamp and send time are this moment's."""
        assert self._producer is not None
        now = time.time()
        event = {"occurred_at_ms": round(now * 1000), **event}
        self.result.sent[event["event_id"]] = now
        self.result.events[event["event_id"]] = event
        await self._producer.send(f"{self._prefix}interactions", value=msgpack.packb(event), key=str(event["session_id"]).encode())

    async def send_open_loop(self, make: Callable[[int], dict[str, Any]], *, rate: float, seconds: float, poisson: bool = False, seed: int = 7) -> None:
        """Send `rate` events a second for `seconds`, evenly or as a Poisson process."""
        await self.send_at(poisson_moments(rate, seconds, seed) if poisson else even_moments(rate, seconds), make)

    async def send_at(self, moments: Sequence[float], make: Callable[[int], dict[str, Any]]) -> list[float]:
        """Send one event at each of `moments` (seconds from now, ascending); how late each left, in seconds, which is this client's own doing."""
        began = time.monotonic()
        lags: list[float] = []
        for index, moment in enumerate(moments):
            wait = began + moment - time.monotonic()
            await asyncio.sleep(max(0.0, wait))  # a client that is behind must yield too, or its records leave long after their stamp
            lags.append(time.monotonic() - began - moment)
            await self.send(make(index))
        return lags

    async def await_all(self, seconds: float) -> None:
        """Wait until every sent event has a response, at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.result.lost:
                    self._arrived.clear()
                    await self._arrived.wait()

    async def _read(self) -> None:
        assert self._consumer is not None
        async for message in self._consumer:
            response = decode(message.value)
            received = Received(time.time(), message.partition, message.offset, message.value, response)
            self.result.received.setdefault(response["event_id"], []).append(received)
            self._arrived.set()
