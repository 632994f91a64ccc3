"""The Faust app: built by a function from settings, with our transport, our tables and one agent installed by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, cast

import faust
import structlog
from aiokafka.errors import IllegalStateError, KafkaError
from faust.exceptions import ConsistencyError
from faust.types import TP
from yarl import URL

from schemas.errors import ConfigError, SetupError
from schemas.settings import Settings
from streams.data_dir import WAY_OUT
from streams.home import answerby_home
from streams.partitions import Partition, PartitionBoard
from streams.recovery import AnswerTables, BatchRecovery
from streams.security import bootstrap_servers, client_options, tls_context
from streams.topics import Topics
from streams.transport import AnswerConsumer, AnswerTransport, Handover, find_next

log = structlog.get_logger(__name__)

HEARTBEATS_PER_SESSION = 6
"""A missed heartbeat or two must not look like a death, and freshness (law 6) needs a young one at any moment."""

REQUEST_TIMEOUT_S = 40.0
"""Of one request to the broker; Faust refuses one below the session time-out, so long session time-outs raise it."""

STREAM_BUFFER = 4096
"""Records between Faust's consumer and our agent: we take each within a fraction of a millisecond, so it only holds a burst."""


class Ownership(Protocol):
    """Who must know when partitions come and go."""

    async def give_up(self, partitions: frozenset[int]) -> None:
        """Called before partitions are handed back; bounded."""

    def take_over(self, partitions: frozenset[int]) -> None:
        """Called when partitions were assigned, before their tables are recovered."""


class WorkerApp(faust.App):
    """Faust's app, with our consumer and our view of who owns what."""

    board: PartitionBoard
    source_topic: str
    offset_reset: str
    client: Mapping[str, Any]
    ownership: Ownership | None = None
    handover: Handover
    """What was read and not yet taken."""
    assigned = False

    def _new_transport(self) -> AnswerTransport:
        return AnswerTransport(self.conf.broker_consumer, self)

    async def _on_partitions_revoked(self, revoked: set[TP]) -> None:
        numbers = frozenset(tp.partition for tp in revoked if tp.topic == self.source_topic)
        if self.ownership is not None:
            await self.ownership.give_up(numbers)
        if self._consumer is not None:
            await cast("AnswerConsumer", self.consumer).force_commit()
        self.board.end(numbers)
        self.assigned = False
        await super()._on_partitions_revoked(revoked)

    async def _on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self.board.end(self.board.numbers())
        self.board.confirm()
        numbers = frozenset(tp.partition for tp in assigned if tp.topic == self.source_topic)
        if self.ownership is not None:
            self.ownership.take_over(numbers)
        await super()._on_partitions_assigned(assigned, generation_id)
        self.assigned = True

    @property
    def recovered(self) -> bool:
        """Whether partitions are assigned and their tables complete."""
        return self.assigned and not self.rebalancing and not self.in_recovery

    @property
    def why_stopped(self) -> BaseException:
        """Why Faust ended, when it was not asked to."""
        reason = self._crash_reason
        if isinstance(reason, ConsistencyError):
            return SetupError(f"the tables in {self.conf.datadir} are ahead of their changelogs, which were made anew meanwhile: {WAY_OUT}")
        return reason or SetupError("Faust stopped by itself: see the log, then start the worker again")

    @property
    def recovery(self) -> BatchRecovery:
        """What reads the tables back."""
        return cast("AnswerTables", self.tables).recovery

    def recovery_place(self) -> tuple[int, int]:
        """Changes while a recovery moves: the group's generation, and how far the changelogs have been read."""
        return self.consumer_generation_id, sum(offset or 0 for offset in self.recovery.active_offsets.values())

    def recovery_left(self) -> int:
        """Records of the changelogs still to be read; 0 while it is not known yet how many."""
        return sum(left for left in self.recovery.active_remaining().values() if left > 0)

    def restart_recovery(self) -> None:
        """Let Faust recover again from where it stands: it can lose a changelog's last record, or its own sign that it is done, and then waits for ever."""
        self.recovery.signal_recovery_start.set()

    def unread(self, partition: int, expected: int) -> int:
        """Records of `partition` that the broker has and we have not taken; 0 while unknown."""
        try:
            highwater = self.consumer.highwater(TP(self.source_topic, partition))
        except (KeyError, AssertionError, IllegalStateError):
            return 0
        return 0 if highwater is None else int(highwater) - expected

    async def mend(self, partition: Partition) -> bool:
        """Look into a partition that gives nothing though the broker has more; True when records must be read again.

        Delivery that dropped the last records leaves nothing behind them that would show the hole; but a transaction's
        mark at the end of the log looks the same, and is passed over.
        """
        expected = partition.tracker.expected
        tp = TP(self.source_topic, partition.number)
        try:
            if (await self.consumer.position(tp) or 0) <= expected:
                return False
            found, is_record = await find_next(self.client, tp, expected)
        except (KafkaError, TimeoutError, IllegalStateError) as error:
            log.warning("a quiet partition could not be looked into, will try again", partition=partition.number, error=type(error).__name__)
            return False
        if not partition.owned or partition.tracker.expected != expected:
            return False
        if not is_record:
            partition.tracker.skip_to(found)
            return False
        await self.seek_back(partition.number, expected)
        return True

    async def seek_back(self, partition: int, offset: int) -> None:
        """Read `partition` of the source topic again from `offset`; one that has just been taken from us is its next owner's to read."""
        try:
            await self.consumer.seek(TP(self.source_topic, partition), offset)
        except IllegalStateError:
            log.warning("a partition went before it could be read again", partition=partition, offset=offset)


def build_app(settings: Settings, topics: Topics, board: PartitionBoard) -> WorkerApp:
    """An app that reads `interactions` as raw bytes; nothing is connected yet."""
    session_s = settings.worker.session_timeout_ms / 1000
    app = WorkerApp(
        settings.app.id,
        broker=[URL(f"kafka://{address}") for address in bootstrap_servers(settings.kafka)],
        broker_credentials=_credentials(settings),
        store=_store_url(settings),
        TableManager=AnswerTables,
        datadir=str(make_data_dir(settings)),
        processing_guarantee="at_least_once",
        autodiscover=False,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=settings.kafka.partitions,
        topic_replication_factor=settings.kafka.replication,
        table_standby_replicas=settings.worker.standby if settings.worker.store == "rocksdb" else 0,
        stream_wait_empty=False,
        stream_buffer_maxsize=STREAM_BUFFER,
        stream_recovery_delay=0.0,
        broker_commit_interval=settings.worker.commit_ms / 1000,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=session_s / HEARTBEATS_PER_SESSION,
        broker_request_timeout=max(REQUEST_TIMEOUT_S, session_s + 10.0),
        consumer_auto_offset_reset="earliest",
        logging_config=None,
        key_serializer="raw",
        value_serializer="raw",
    )
    app.board = board
    app.handover = Handover()
    app.source_topic = topics.interactions
    app.client = client_options(settings.kafka)
    app.offset_reset = settings.worker.offset_reset
    return app


def install(app: WorkerApp, run: Callable[[AsyncIterator[Any]], Awaitable[None]], *, partitions: int) -> None:
    """Give the app its one agent, named by hand: raw bytes in, Faust's acknowledgements off (offsets are `streams.offsets`).

    The agent is why Faust subscribes to the topic and recovers the tables before anything is read. Its records come through `app.handover`, a fetch
    at a time; its stream stays empty.
    """
    source = app.topic(app.source_topic, key_type=bytes, value_type=bytes, partitions=partitions, acks=False, allow_empty=True)

    async def respond(_stream: Any) -> None:
        async with aclosing(app.handover.records()) as records:
            await run(records)

    app.agent(source, name="respond", concurrency=1)(respond)


def make_data_dir(settings: Settings) -> Path:
    """Where persistent stores are kept; made here, since Faust makes the last folder only."""
    named = settings.worker.data_dir
    folder = Path(named) if named else answerby_home() / "data" / settings.app.id
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        key = "worker.data_dir"
        raise ConfigError(key, f"{folder} cannot be made ({error.strerror})", "name a folder that this user may write") from None
    return folder


def _store_url(settings: Settings) -> str:
    return "rocksdb://" if settings.worker.store == "rocksdb" else "memory://"


def _credentials(settings: Settings) -> Any:
    """Faust's own form of `streams.security.client_options`."""
    security = settings.kafka.security
    if security.protocol == "PLAINTEXT":
        return None
    context = tls_context(security)
    if security.protocol == "SSL":
        return faust.SSLCredentials(context=context)
    return faust.SASLCredentials(username=security.username, password=security.password, mechanism=security.mechanism, ssl_context=context)
