"""The thread that owns Kafka's consumer: two settings that Faust does not offer, and a stop with a bound; what is read and committed: `streams.transport`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import structlog
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP
from mode.threads import WorkerThread

from streams.partitions import boot_clock

if TYPE_CHECKING:
    from streams.app import WorkerApp

log = structlog.get_logger(__name__)

FETCH_WAIT_MS = 250
"""How long the broker may hold an empty fetch. It answers one request of a connection at a time, so whatever else we ask waits behind it: with
Faust's 1500 ms every rebalance stood still for seconds. At worst four empty fetches a second and broker."""

ISOLATION = "read_committed"
"""What a producer's transaction took back was never said; with producers that use no transactions it changes nothing."""

COMMIT_S = 5.0
"""One commit. Without a bound the client asks for a coordinator that is away for ever, and a stop with it; the next commit says the same again."""

LEAVE_S = 3.0
"""Leaving the group and closing connections when a worker stops. A broker that does not answer within it gives the partitions away after the session
time-out instead."""

THREAD_S = 1.0
"""For the consumer's thread to end once it has said that it is done. It holds the loop, which has nothing left to do but to end."""


class ConsumerWorkerThread(WorkerThread):
    """A thread that no exit waits for: Faust's own is joined without a bound, whatever its client waits for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.daemon = True

    def stop(self) -> None:
        """Wait a moment for its end."""
        if not self.is_stopped.wait(THREAD_S):
            log.warning("the consumer's thread is left behind", waited_s=THREAD_S)


class AnswerConsumerThread(AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer; also notes when the coordinator last accepted us."""

    Worker = ConsumerWorkerThread

    def _create_worker_consumer(self, transport: Any) -> Any:
        """Faust's consumer, with two settings it does not offer."""
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        consumer._isolation_level = ISOLATION
        return consumer

    async def on_start(self) -> None:
        """Start the consumer, then listen in on its heartbeats."""
        await super().on_start()
        coordinator = cast("Any", self._consumer)._coordinator
        app = cast("WorkerApp", self.app)
        send = coordinator._do_heartbeat

        async def heartbeat() -> bool:
            # The coordinator spoke after this moment and no later is certain: an answer may lie unread while the process is stopped.
            asked = boot_clock()
            accepted = bool(await send())
            if accepted:
                app.loop.call_soon_threadsafe(app.board.confirm, asked)
            return accepted

        coordinator._do_heartbeat = heartbeat

    async def on_thread_stop(self) -> None:
        """As Faust does, for LEAVE_S at most."""
        leaving = asyncio.ensure_future(super().on_thread_stop())
        await asyncio.wait((leaving,), timeout=LEAVE_S)
        if not leaving.done():
            log.warning("the group was not left, the broker does not answer: partitions move after the session time-out", waited_s=LEAVE_S)
            leaving.cancel()

    def set_fetched(self, tps: set[TP], *, fetched: bool) -> None:
        """Let aiokafka fetch these partitions or not; done on the thread's own loop, which waits on what this changes."""
        if tps:
            self.thread_loop.call_soon_threadsafe(self._set_fetched, tps, fetched)

    def _set_fetched(self, tps: set[TP], fetched: bool) -> None:
        consumer = self._ensure_consumer()
        held = consumer.assignment()
        wanted = [place for tp in tps if (place := TopicPartition(tp.topic, tp.partition)) in held]
        try:
            (consumer.resume if fetched else consumer.pause)(*wanted)
        except IllegalStateError:
            log.info("partitions moved while they were being paused", partitions=len(wanted))

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit, and treat a broker that cannot be reached as "not yet": Faust would crash the worker."""
        held = self.assignment()
        wanted = {TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "") for tp, offset in offsets.items() if tp in held}
        if not wanted:
            return False
        try:
            async with asyncio.timeout(COMMIT_S):
                await self._ensure_consumer().commit(wanted)
        except (CommitFailedError, IllegalStateError):
            return False
        except (KafkaError, TimeoutError) as error:
            log.warning("offsets not committed, will try again", error=type(error).__name__)
            return False
        now = time.monotonic()
        self.tp_last_committed_at.update(dict.fromkeys(offsets, now))
        return True
