"""Faust's Kafka consumer with our offsets in it: what is read, sought and committed follows `streams.partitions`, not Faust's acks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from faust.transport.drivers.aiokafka import Consumer, Transport
from faust.types import TP

from streams.consumer_thread import FETCH_WAIT_MS, ISOLATION, AnswerConsumerThread
from streams.offsets import NOT_COMMITTED
from streams.record_batches import install_tolerant_reader

if TYPE_CHECKING:
    from streams.app import WorkerApp

log = structlog.get_logger(__name__)

install_tolerant_reader()

FIND_S = 10.0
"""For one look at a partition from outside: without a bound a broker that hangs would stop the watch over all the others."""

IDLE_S = 0.25
"""How long the consumer waits for a partition to read when it has none; it is woken when one is resumed, and at worst looks so much later."""

FETCH_S = 1.0
"""How long one look for fetched records may take: a stop is noticed so much later at worst."""

FETCHES_AHEAD = 2
"""Fetches handed over and not yet taken: one being taken and one behind it. What waits longer stays with the broker's client, bounded there."""


class Record(msgspec.Struct, frozen=True):
    """One record of the source topic, as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: float | None
    """Unix seconds; None when the record has none."""
    time_in: float
    """Monotonic seconds when the consumer handed it over."""


class Delivered:
    """A record on its way; stands in for Faust's event, which tables look their partition up in."""

    __slots__ = ("__weakref__", "message")

    def __init__(self, message: Record) -> None:
        self.message = message


class _BlindReadOffsets(dict[TP, int | None]):
    """Read offsets that Faust may use for changelogs only.

    For the source topic it always finds None: so Faust neither drops a record it believes read nor marks a hole as
    acknowledged, both of which lose events after a seek.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def __getitem__(self, tp: TP) -> int | None:
        return None if tp.topic == self._source else self.get(tp)


class Handover:
    """Fetches of the source topic on their way from the consumer to the agent, whole: Faust's own way starts four tasks a record."""

    def __init__(self) -> None:
        self._fetches: asyncio.Queue[list[Delivered]] = asyncio.Queue(FETCHES_AHEAD)

    @property
    def full(self) -> bool:
        """Whether `put` would wait."""
        return self._fetches.full()

    async def put(self, fetch: list[Delivered]) -> None:
        """Hand one fetch over; waits while the agent is behind."""
        await self._fetches.put(fetch)

    async def records(self) -> AsyncGenerator[Delivered, None]:
        """Every record, in the order of its partition; ends only by cancellation."""
        while True:
            for delivered in await self._fetches.get():
                yield delivered


class AnswerConsumer(Consumer):
    """Starts partitions at their committed offset, and commits only what the trackers have released."""

    app: WorkerApp

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = _BlindReadOffsets(self.app.source_topic)
        self._told: dict[TP, int] = {}
        self._resumed = asyncio.Event()

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: Faust would complain every second of changelogs that we keep from being fetched, and of topics that nobody writes to.

        Partitions that have more and give nothing are found by the worker, which reads them again.
        """

    def _new_consumer_thread(self) -> AnswerConsumerThread:
        return AnswerConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _drain_messages(self, fetcher: Any) -> None:
        """As Faust does, but what was fetched goes on at once and whole: of the source topic to the agent, of a changelog to its table."""
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self._take_fetch()
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _take_fetch(self) -> None:
        if self.flow_active and not self._get_active_partitions():
            await self._await_partitions()
            return
        records, active = await self._wait_next_records(FETCH_S)
        generation = self.app.consumer_generation_id
        if not records or self.should_stop:
            return
        if not self.flow_active:
            await self.perform_seek()
            return
        arrived = time.monotonic()
        wanted = {tp: found for tp, found in records.items() if active is None or tp in active or tp in self._buffered_partitions}
        ours = {tp: found for tp, found in wanted.items() if tp.topic == self.app.source_topic}
        if ours:
            await self._hand_over([Delivered(_as_record(record, arrived)) for _, record in self.scheduler.iterate(ours)])
        for tp, found in wanted.items():
            if tp not in ours:
                await self.app.recovery.take(tp, found, lambda: self.flow_active and self.app.consumer_generation_id == generation)

    async def _await_partitions(self) -> None:
        self._resumed.clear()
        try:
            await asyncio.wait_for(self._resumed.wait(), IDLE_S)
        except TimeoutError:
            return

    async def _hand_over(self, fetch: list[Delivered]) -> None:
        """To the agent, or nowhere when the partitions are being taken away meanwhile: whoever has them next reads them again."""
        handover = self.app.handover
        if not handover.full and self.app.flow_control.is_active():
            await handover.put(fetch)
            return

        async def when_it_flows() -> None:
            await self.app.flow_control.acquire()
            await handover.put(fetch)

        await self.wait_first(when_it_flows(), self.suspend_flow.wait())

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """As Faust does; what the broker said is kept as it was, for Faust takes a committed 0 for none."""
        found = await super().seek_to_committed()
        self._told = {tp: offset for tp, offset in found.items() if offset is not None and offset >= 0}
        return found

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """As Faust does, and not fetched either.

        A record of ours that comes back from a changelog and that nobody takes holds up every other partition of its broker for a tenth of a
        second: once for each changelog partition, just after a start or a rebalance.
        """
        paused = set(tps)
        super().pause_partitions(paused)
        cast("AnswerConsumerThread", self._thread).set_fetched(self._changelogs(paused), fetched=False)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """As Faust does, and fetched again: a recovery reads the changelogs."""
        resumed = set(tps)
        super().resume_partitions(resumed)
        self._resumed.set()
        cast("AnswerConsumerThread", self._thread).set_fetched(self._changelogs(resumed), fetched=True)

    def _changelogs(self, tps: set[TP]) -> set[TP]:
        return {tp for tp in tps if tp.topic != self.app.source_topic}

    async def perform_seek(self) -> None:
        """Called after recovery, before records flow: begin every partition that is new to us."""
        await super().perform_seek()
        board = self.app.board
        held = sorted(tp for tp in self.assignment() if tp.topic == self.app.source_topic)
        starts = await self._starts_of([tp for tp in held if board.get(tp.partition) is None])
        for tp in held:
            partition = board.get(tp.partition)
            if partition is None:
                partition = board.begin(tp.partition, starts[tp], self._told.get(tp, NOT_COMMITTED))
                log.info("partition begins", partition=tp.partition, offset=partition.tracker.expected)
            await self.seek(tp, partition.tracker.expected)
        if starts:
            await self.force_commit()  # a group that starts at the end and dies before its first commit would start at a later end

    async def maybe_wait_for_commit_to_finish(self) -> bool:
        """As Faust does, but whoever is cancelled meanwhile ends, instead of beginning a commit of its own that no stop waits for."""
        running = self._commit_fut
        if running is None:
            return False
        await asyncio.wait((running,))
        return not running.cancelled()

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Commit what the trackers have released; Faust's own acks play no part."""
        board = self.app.board
        offsets = {TP(self.app.source_topic, partition.number): offset for partition in board if (offset := partition.tracker.committable()) is not None}
        if not offsets or not await self._commit(offsets):
            return False
        for tp, offset in offsets.items():
            partition = board.get(tp.partition)
            if partition is not None:
                partition.tracker.note_committed(offset)
        self.app.tables.on_commit(offsets)
        return True

    async def _starts_of(self, partitions: Collection[TP]) -> dict[TP, int]:
        """Where each begins: its committed offset, else the log's start or end as `worker.offset_reset` says. One question for all of them."""
        if not partitions:
            return {}
        earliest, ends = await self.earliest_offsets(*partitions), await self.highwaters(*partitions)
        found: dict[TP, int] = {}
        for tp in partitions:
            first, end = int(earliest.get(tp) or 0), int(ends.get(tp) or 0)
            committed = self._told.get(tp)
            if committed is None:
                found[tp] = end if self.app.offset_reset == "latest" else first
            elif committed > end:
                log.warning("the log ends before the committed offset: the topic was made anew, reading it from its start", partition=tp.partition)
                found[tp] = first
            else:
                found[tp] = max(committed, first)
        return found


def _as_record(record: Any, arrived: float) -> Record:
    """What aiokafka read, its time in seconds."""
    milliseconds = record.timestamp
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.key,
        record.value,
        tuple(record.headers or ()),
        None if milliseconds is None else milliseconds / 1000,
        arrived,
    )


async def find_next(options: Mapping[str, Any], tp: TP, offset: int) -> tuple[int, bool]:
    """The first offset at or after `offset` that has a record, as a consumer with no history sees it, and True; with none, the end and False.

    Raises:
        KafkaError, TimeoutError: the broker did not tell within FIND_S.
    """
    consumer = AIOKafkaConsumer(**options, isolation_level=ISOLATION, auto_offset_reset="earliest", fetch_max_wait_ms=FETCH_WAIT_MS)
    place = TopicPartition(tp.topic, tp.partition)
    async with asyncio.timeout(FIND_S):
        await consumer.start()
        try:
            consumer.assign([place])
            consumer.seek(place, offset)
            while True:
                records = (await consumer.getmany(place, timeout_ms=FETCH_WAIT_MS)).get(place)
                if records:
                    return int(records[0].offset), True
                position, end = await consumer.position(place), consumer.last_stable_offset(place)
                if end is not None and 0 <= end <= position:
                    return int(position), False
        finally:
            await consumer.stop()


class AnswerTransport(Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer: ClassVar[type[AnswerConsumer]] = AnswerConsumer
