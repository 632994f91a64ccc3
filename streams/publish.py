"""Everything a worker writes to Kafka: changelog, then response, then dead letters and audit, each acknowledged; the one place where a response leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import msgspec
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas.audit import AuditRecord
from schemas.dead_letters import HEADER_PREFIX, Undecodable
from schemas.errors import AnswerbyError, StoreError
from schemas.settings import Settings
from streams.codecs import CONTENT_TYPES, Headers
from streams.partitions import Partition, PartitionBoard
from streams.security import client_options
from streams.tables import ChangelogRecord, TableSet
from streams.topics import Topics

log = structlog.get_logger(__name__)

MAX_REQUEST_BYTES = 1_048_576
"""Above it the client refuses the record. Every value we write is capped below it (limits.*), so a refusal is a bug."""

REQUEST_TIMEOUT_MS = 30_000
"""How long a write may take before it counts as failed and the worker ends: the broker is gone and its restart is our retry."""

BATCH_BYTES = 262_144
"""Records of one partition that leave together. With the client's 16 KiB a burst of long sessions waits for one round trip after another; a partition
and topic may hold so much memory while the broker is slow."""

DEAD_LETTER_BYTES = 950_000
"""Key and value of a dead letter together: with the headers it fits our producer and a broker's default of 1 MiB. A record that came compressed, or
through a broker that allows more, may be larger; a write that is refused would end the worker, and every one after it."""

DEAD_LETTER_KEY_BYTES = 65_536
"""A key keeps at least this much of itself beside a large value: no session id and hardly any other key is longer."""

MAX_HEADER_BYTES = 65_536
"""A producer's own headers on a dead letter are kept up to this in total, for the same reason."""


class WriteError(AnswerbyError):
    """Raised when Kafka did not take a record in time; the worker ends, and what it had not committed is answered after a restart."""


class KeptRecord(msgspec.Struct, frozen=True):
    """The bytes of a final response, fixed once and written twice: to the changelog and to `responses`."""

    key: bytes
    value: bytes
    headers: Headers


class Publisher:
    """One idempotent producer: per partition, records leave in the order in which they were handed over."""

    def __init__(self, settings: Settings, topics: Topics, board: PartitionBoard) -> None:
        self._settings = settings
        self._topics = topics
        self._board = board
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect. Raises KafkaError when no broker answers."""
        self._producer = AIOKafkaProducer(
            **client_options(self._settings.kafka),
            client_id=f"{self._settings.app.id}-worker",
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        await self._producer.start()
        topics = self._topics
        for topic in (topics.responses, topics.dead_letters, topics.audit, topics.sessions_changelog, topics.answers_changelog, topics.persons):
            await self._producer.partitions_for(topic)  # the first event must not wait for metadata

    async def stop(self) -> None:
        """Flush what was handed over and disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def may_publish(self, partition: Partition) -> bool:
        """Whether anything may still be written for `partition`; waits while its ownership is in doubt (law 6)."""
        return await self._board.may_publish(partition)

    async def write_ahead(self, records: Sequence[ChangelogRecord], tables: TableSet, partition: Partition) -> Awaitable[None]:
        """Hand staged table values over in order; the returned future ends when the broker has all of them."""
        handed = [await self._hand_over(record.topic, record.value, record.key, record.partition) for record in records]

        def note(index: int, offset: int) -> None:
            if partition.owned:
                tables.note_written(records[index], offset)

        return _when_acknowledged(handed, note)

    async def respond(self, record: KeptRecord, partition: Partition) -> Awaitable[None] | None:
        """Hand a final response over, on the event's own partition number; None when the partition is no longer ours."""
        if not await self._board.may_publish(partition):
            return None
        future = await self._hand_over(self._topics.responses, record.value, record.key, partition.number, record.headers)
        return _when_acknowledged([future])

    async def dead_letter(self, message: Any, verdict: Undecodable) -> None:
        """Write a record that cannot be answered as it came, with the reason in its headers; awaited to its acknowledgement."""
        value: bytes | None = message.value
        size = 0 if value is None else len(value)
        notes: list[tuple[str, bytes]] = [
            ("reason", verdict.reason.encode()),
            ("detail", verdict.detail.encode("utf-8", "replace")),
            ("topic", message.topic.encode()),
            ("partition", str(message.partition).encode()),
            ("offset", str(message.offset).encode()),
            ("timestamp", str(round(message.timestamp * 1000) if message.timestamp is not None else -1).encode()),
            ("size", str(size).encode()),
        ]
        headers = (*_bounded_headers(message.headers), *((HEADER_PREFIX + name, text) for name, text in notes))
        key, kept = _cut_to_fit(message.key, value)
        if kept is None and key is None:
            kept = b""  # the client cannot send a record of two nulls; `size` 0 and the empty value say what it was
        await _when_acknowledged([await self._hand_over(self._topics.dead_letters, kept, key, None, headers)])

    async def audit(self, record: AuditRecord, carried: Headers = ()) -> Awaitable[None]:
        """Hand an audit record over with the headers `carried` from its event; the returned future ends with its acknowledgement."""
        headers: Headers = (("content-type", CONTENT_TYPES["msgpack"]), *carried)
        return _when_acknowledged([await self._hand_over(self._topics.audit, msgspec.msgpack.encode(record), record.tenant.encode(), None, headers)])

    async def _hand_over(self, topic: str, value: bytes | None, key: bytes | None, partition: int | None, headers: Headers = ()) -> asyncio.Future[Any]:
        if self._producer is None:
            msg = "the publisher is not started"
            raise RuntimeError(msg)
        try:
            future = await self._producer.send(topic, value=value, key=key, partition=partition, headers=list(headers))
        except KafkaError as error:
            raise _write_error(topic, error) from error
        return cast("asyncio.Future[Any]", future)


def _when_acknowledged(handed: Sequence[asyncio.Future[Any]], note: Callable[[int, int], None] | None = None) -> asyncio.Future[None]:
    """Done when the broker has all of `handed`, failed with WriteError when it does not take one; `note` hears each one's index and offset.

    A future of its own: records handed over cannot be taken back, so whoever waits may be cancelled and they may not. Mostly all of an event's records
    are acknowledged at once, so that looking from the last one on costs a single call instead of a task or a shield for each.
    """
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = list(handed)

    def look(_: Any = None) -> None:
        while left:
            future = left[-1]
            if not future.done():
                future.add_done_callback(look)
                return
            left.pop()
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            if error is not None:
                if not done.done():
                    done.set_exception(_as_failure(error))
            elif note is not None:
                _noted(note, len(left), int(future.result().offset), done)
        if not done.done():
            done.set_result(None)

    look()
    return done


def _noted(note: Callable[[int, int], None], index: int, offset: int, done: asyncio.Future[None]) -> None:
    """In a callback nobody would hear of an error: whoever waits for `done` must, or they wait for ever."""
    try:
        note(index, offset)
    except StoreError as error:
        if not done.done():
            done.set_exception(error)


def _as_failure(error: BaseException) -> BaseException:
    if isinstance(error, KafkaError | asyncio.CancelledError):
        return _write_error("a record", error)
    return error


def _write_error(what: str, error: BaseException) -> WriteError:
    return WriteError(f"Kafka did not take {what} ({type(error).__name__}): check the broker and kafka.bootstrap, then start the worker again")


def _cut_to_fit(key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Key and value as they came when they fit together; else the value gives way, and the key only where it alone is too large."""
    if len(key or b"") + len(value or b"") <= DEAD_LETTER_BYTES:
        return key, value
    room_for_key = max(DEAD_LETTER_KEY_BYTES, DEAD_LETTER_BYTES - len(value or b""))
    key = None if key is None else key[:room_for_key]
    return key, None if value is None else value[: DEAD_LETTER_BYTES - len(key or b"")]


def _bounded_headers(headers: Any) -> Headers:
    """A producer's own headers as they came, in order, up to the bound; null values stay null."""
    kept: list[tuple[str, bytes]] = []
    total = 0
    for name, value in headers or ():
        total += len(name.encode("utf-8", "surrogatepass")) + len(value or b"")
        if total > MAX_HEADER_BYTES:
            break
        kept.append((name, value))
    return tuple(kept)
