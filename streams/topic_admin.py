"""Makes and checks the topics on a live cluster; what they should be is `streams.topics`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from schemas.errors import SetupError
from schemas.settings import Settings
from streams.security import bootstrap_servers, client_options
from streams.topics import FoundTopic, TopicReport, TopicSpec, compare_topics, specs

WAIT_S = 60.0
"""A broker that starts with the machine takes up to half a minute; one that is not there should be said soon."""

_ATTEMPT_S = 10.0
"""One attempt to connect: an address that swallows packets must not use up the whole wait."""

_RETRY_S = 0.5
_LEADERS_S = 30.0
"""New partitions have leaders within milliseconds; a cluster that needs longer is being repaired."""

_EXISTS, _UNKNOWN, _BAD_REPLICATION = 36, 3, 38
"""Kafka's error codes: TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICATION_FACTOR."""

Found = TypeVar("Found")

Waiting = Callable[[float, str], None]
"""Told about once a second how long (seconds) we have waited, and for which address."""


async def ensure_topics(settings: Settings, wait_s: float = WAIT_S, waiting: Waiting | None = None) -> TopicReport:
    """Create what is missing and report on the rest; two callers at once both succeed. Creates nothing while existing topics do not fit.

    Returns when the created topics have leaders, so that a consumer started next is assigned them.

    Raises:
        SetupError: no broker after `wait_s` seconds, or it refused to create a topic.
    """

    async def work(admin: AIOKafkaAdminClient) -> TopicReport:
        wanted = specs(settings)
        before = compare_topics(wanted, await _find_topics(admin, wanted), settings.kafka.bootstrap)
        if before.mismatches or not before.missing:
            return before
        missing = [spec for spec in wanted if spec.name in before.missing]
        created = await _create(admin, missing, settings.kafka.replication)
        await _await_leaders(admin, wanted)
        after = compare_topics(wanted, await _find_topics(admin, wanted), settings.kafka.bootstrap)
        return replace(after, created=created)

    return await _with_admin(settings, wait_s, waiting, work)


async def check_topics(settings: Settings, wait_s: float = WAIT_S, waiting: Waiting | None = None) -> TopicReport:
    """Report on the topics and change nothing.

    Raises:
        SetupError: no broker after `wait_s` seconds.
    """

    async def work(admin: AIOKafkaAdminClient) -> TopicReport:
        wanted = specs(settings)
        return compare_topics(wanted, await _find_topics(admin, wanted), settings.kafka.bootstrap)

    return await _with_admin(settings, wait_s, waiting, work)


async def read_retention(settings: Settings, names: Sequence[str], wait_s: float = WAIT_S) -> dict[str, int | None]:
    """For each topic that is there, after how many ms its cluster has deleted a record written now: None for never, or when we may not ask.

    Kafka deletes closed segments whose newest record is too old, so a record may stay for `segment.ms` and `retention.ms` together.

    Raises:
        SetupError: no broker after `wait_s` seconds.
    """

    async def work(admin: AIOKafkaAdminClient) -> dict[str, int | None]:
        described = await admin.describe_topics(list(names))
        there = [topic["topic"] for topic in described if topic["error_code"] != _UNKNOWN]
        configs = await _read_configs(admin, there, ("retention.ms", "segment.ms"))
        kept: dict[str, int | None] = {}
        for name in there:
            config = configs.get(name, {})
            retention = int(config.get("retention.ms", -1))
            kept[name] = None if retention < 0 else retention + int(config.get("segment.ms", 0))
        return kept

    return await _with_admin(settings, wait_s, None, work)


async def _with_admin(settings: Settings, wait_s: float, waiting: Waiting | None, work: Callable[[AIOKafkaAdminClient], Awaitable[Found]]) -> Found:
    admin = await _connect(settings, wait_s, waiting)
    try:
        async with asyncio.timeout(_LEADERS_S + WAIT_S):
            return await work(admin)
    except (KafkaError, TimeoutError) as error:
        msg = f"the broker at {settings.kafka.bootstrap} failed while topics were checked ({type(error).__name__} {error}): see its log and try again"
        raise SetupError(" ".join(msg.split())) from error
    finally:
        await admin.close()


async def _connect(settings: Settings, wait_s: float, waiting: Waiting | None) -> AIOKafkaAdminClient:
    """Wait for a broker; a plain connection is tried first, because the client logs an error for each refusal."""
    bootstrap, options = settings.kafka.bootstrap, client_options(settings.kafka)
    began = told = time.monotonic()
    why = ""
    while True:
        try:
            async with asyncio.timeout(max(min(_ATTEMPT_S, began + wait_s - time.monotonic()), _RETRY_S)):
                if await _is_open(bootstrap_servers(settings.kafka)):
                    return await _start_admin(options)
        except (KafkaError, OSError, TimeoutError) as error:
            why = f" ({error or type(error).__name__})"
        now = time.monotonic()
        if now - began >= wait_s:
            msg = f"no broker at {bootstrap} after {wait_s:.0f} s{why}: start one with `answerby broker` or set kafka.bootstrap"
            raise SetupError(" ".join(msg.split()))
        if waiting is not None and (told == began or now - told >= 1.0):
            told = now
            waiting(now - began, bootstrap)
        await asyncio.sleep(_RETRY_S)


async def _is_open(servers: list[str]) -> bool:
    for server in servers:
        host, _, port = server.rpartition(":")
        with suppress(OSError):
            _reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return True
    return False


async def _start_admin(options: dict[str, Any]) -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(**options, request_timeout_ms=round(_ATTEMPT_S * 1000), client_id="answerby-topics")
    try:
        await admin.start()
    except BaseException:
        await admin.close()
        raise
    return admin


async def _find_topics(admin: AIOKafkaAdminClient, wanted: tuple[TopicSpec, ...]) -> dict[str, FoundTopic]:
    described = await admin.describe_topics([spec.name for spec in wanted])
    counts = {topic["topic"]: len(topic["partitions"]) for topic in described if topic["error_code"] != _UNKNOWN}
    configs = await _read_configs(admin, list(counts))
    return {name: FoundTopic(count, configs.get(name)) for name, count in counts.items()}


async def _read_configs(
    admin: AIOKafkaAdminClient, names: list[str], wanted: Sequence[str] = ("cleanup.policy", "max.message.bytes", "max.compaction.lag.ms")
) -> dict[str, dict[str, str]]:
    """What each topic's configuration says; a topic whose configuration we may not read is left out."""
    if not names:
        return {}
    keys = dict.fromkeys(wanted)
    configs = {}
    for response in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name, keys) for name in names]):
        for code, _message, _kind, name, entries in response.resources:
            if code == 0:
                configs[name] = {entry[0]: entry[1] for entry in entries}
    return configs


async def _create(admin: AIOKafkaAdminClient, missing: list[TopicSpec], replication: int) -> tuple[str, ...]:
    new = [NewTopic(spec.name, spec.partitions, replication, topic_configs=spec.settings) for spec in missing]
    response = await admin.create_topics(new)
    created = []
    for name, code, *message in response.topic_errors:
        if code == _BAD_REPLICATION:
            msg = f"{name}: the cluster has fewer brokers than kafka.replication = {replication}: set it to their number or less"
            raise SetupError(msg)
        if code not in (0, _EXISTS):
            msg = f"{name} could not be created ({message[0] if message and message[0] else f'Kafka error {code}'}): create it by hand or mend the rights"
            raise SetupError(" ".join(msg.split()))
        if code == 0:
            created.append(name)
    return tuple(created)


async def _await_leaders(admin: AIOKafkaAdminClient, wanted: tuple[TopicSpec, ...]) -> None:
    """Metadata is spread after the creation is answered: until then a consumer would be assigned nothing."""
    async with asyncio.timeout(_LEADERS_S):
        while True:
            described = await admin.describe_topics([spec.name for spec in wanted])
            led = {topic["topic"] for topic in described if topic["error_code"] == 0 and all(part["leader"] >= 0 for part in topic["partitions"])}
            if all(spec.name in led for spec in wanted):
                return
            await asyncio.sleep(0.05)
