"""Faust's Kafka consumer with our offsets in it: what is read, sought and committed follows `streams.partitions`, not Faust's acks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, cast

import structlog
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from streams.record_batches import install_tolerant_reader

if TYPE_CHECKING:
    from streams.app import WorkerApp

log = structlog.get_logger(__name__)

install_tolerant_reader()


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


class AnswerConsumerThread(AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer; also notes when the coordinator last accepted us."""

    async def on_start(self) -> None:
        """Start the consumer, then listen in on its heartbeats."""
        await super().on_start()
        coordinator = cast("Any", self._consumer)._coordinator
        app = cast("WorkerApp", self.app)
        send = coordinator._do_heartbeat

        async def heartbeat() -> bool:
            accepted = bool(await send())
            if accepted:
                app.loop.call_soon_threadsafe(app.board.confirm)
            return accepted

        coordinator._do_heartbeat = heartbeat

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit, and treat a broker that cannot be reached as "not yet": Faust would crash the worker."""
        held = self.assignment()
        wanted = {TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "") for tp, offset in offsets.items() if tp in held}
        if not wanted:
            return False
        try:
            await self._ensure_consumer().commit(wanted)
        except (CommitFailedError, IllegalStateError):
            return False
        except KafkaError as error:
            log.warning("offsets not committed, will try again", error=type(error).__name__)
            return False
        now = time.monotonic()
        self.tp_last_committed_at.update(dict.fromkeys(offsets, now))
        return True


class AnswerConsumer(Consumer):
    """Starts partitions at their committed offset, and commits only what the trackers have released."""

    app: WorkerApp

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read_offset = _BlindReadOffsets(self.app.source_topic)

    def _new_consumer_thread(self) -> AnswerConsumerThread:
        return AnswerConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def _to_message(self, tp: TP, record: Any) -> Any:
        message = super()._to_message(tp, record)
        message.time_in = time.monotonic()
        return message

    async def perform_seek(self) -> None:
        """Called after recovery, before records flow: begin every partition that is new to us."""
        await super().perform_seek()
        board = self.app.board
        for tp in self.assignment():
            if tp.topic != self.app.source_topic:
                continue
            partition = board.get(tp.partition)
            if partition is None:
                partition = board.begin(tp.partition, await self._start_of(tp))
                log.info("partition begins", partition=tp.partition, offset=partition.tracker.expected)
            await self.seek(tp, partition.tracker.expected)

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

    async def _start_of(self, tp: TP) -> int:
        """The committed offset, else the log's start or end as `worker.offset_reset` says."""
        committed = self._committed_offset.get(tp)
        if committed is not None and committed >= 0:
            return int(committed)
        if self.app.offset_reset == "latest":
            ends = await self.highwaters(tp)
            return int(ends.get(tp) or 0)
        starts = await self.earliest_offsets(tp)
        return int(starts.get(tp) or 0)


class AnswerTransport(Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer: ClassVar[type[AnswerConsumer]] = AnswerConsumer
