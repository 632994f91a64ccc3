"""What the tables hold of a session or a person, read from their changelogs, and erasing it through the workers; `agents.cli.sessions` shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from agents.cache.shared import RedisStore, SharedStoreError
from agents.memory.persons import forgotten_key, read_key
from schemas.errors import SetupError
from schemas.session import KeptAnswer, KeptIndex, load_stored
from schemas.settings import Settings
from streams.changelogs import LatestValues, delete_keys
from streams.clients import EventSender
from streams.codecs import FORGET_HEADER, TENANT_HEADER, encoding_of
from streams.topic_admin import read_retention
from streams.topics import ERASED_WITHIN_MS, Topics

LOOK_S = 0.2
"""Between looks at whether the workers have erased: each reads only what is new."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A session of a tenant, or a person with all their sessions: one of the two is None."""

    tenant: str
    session_id: str | None = None
    subject: str | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"session {self.session_id!r}" if self.subject is None else f"subject {self.subject!r}"


class Held(msgspec.Struct, frozen=True):
    """A topic that may still hold what people said."""

    topic: str
    until_ms: int | None
    """Unix ms by which the cluster has deleted it; None: its settings never do."""


class Forgotten(msgspec.Struct, frozen=True):
    """What was erased; every figure is of records read before and found deleted after."""

    tenant: str
    subject: str | None
    sessions: tuple[str, ...]
    answers: int
    person_records: int
    shared_answers: int
    """Deleted from `cache.shared`: kept answers are not told apart by person, so all of them."""
    left: int
    """Records that are still there: 0, or no worker has taken the request yet."""
    compacted_by_ms: int
    """Unix ms by which the changelogs' files have lost the bytes too, at the latest and but for a run of the broker's cleaner."""
    held: tuple[Held, ...]

    @property
    def is_something(self) -> bool:
        """Whether anything of it was kept, and so may have been erased."""
        return bool(self.sessions or self.answers or self.person_records)


async def find(settings: Settings, wanted: Wanted) -> LatestValues:
    """Everything that is kept of `wanted`, read and closed again.

    Raises:
        SetupError: no broker, or a topic is missing.
    """
    names = await _session_names(settings, wanted)
    async with _opened(settings, wanted, names) as values:
        return values


def as_tree(settings: Settings, wanted: Wanted, values: LatestValues) -> dict[str, Any]:
    """What `find` found, as plain data: people's texts included."""
    topics = Topics.of(settings)
    sessions: dict[str, dict[str, Any]] = {}
    persons = []
    for one in sorted(values.present, key=lambda latest: (latest.timestamp_ms, latest.key)):
        parts, value = read_key(one.key), one.value or b""
        if one.topic == topics.persons:
            persons.append({"subject": parts[1], "session_id": parts[2], "written_at_ms": one.timestamp_ms, **_plain(value)})
            continue
        session = sessions.setdefault(parts[1], {"session_id": parts[1], "partition": one.partition, "session": None, "answers": []})
        if one.topic == topics.sessions_changelog:
            session["session"] = _plain(value)
        elif len(parts) == _ANSWER_PARTS:
            session["answers"].append(_answer(value))
        else:
            index = load_stored(value, KeptIndex)
            session |= {"subjects": list(index.subjects), "last_used_ms": index.touched_ms or one.timestamp_ms}
    return {"tenant": wanted.tenant, "subject": wanted.subject, "persons": persons, "sessions": list(sessions.values())}


async def forget(settings: Settings, wanted: Wanted, *, wait_s: float, tell: Callable[[str], None] = lambda _text: None) -> Forgotten:
    """Erase it in every table, changelog and cache, and read back that it is gone; at most about `wait_s` seconds beside the reading.

    The session's own worker erases, in the order of its events, so that an event that is just being answered cannot write it back.

    Raises:
        SetupError: no broker, a topic is missing, or the shared cache does not answer.
    """
    topics = Topics.of(settings)
    names = await _session_names(settings, wanted)
    async with _opened(settings, wanted, names) as values:
        before = values.present
        tell(f"{len(before)} records of {len(names)} sessions")
        places = {(read_key(one.key)[1], one.partition) for one in before if one.topic != topics.persons}
        async with EventSender(settings) as sender:
            for session_id, partition in sorted(places):
                await sender.send_raw(None, session_id.encode(), ((TENANT_HEADER, wanted.tenant.encode()), (FORGET_HEADER, b"1")), partition)
        tables = {topics.sessions_changelog, topics.answers_changelog}
        await _until_gone(values, tables, wait_s)
        await delete_keys(settings, topics.persons, [*(one.key for one in values.present if one.topic == topics.persons), _broadcast(wanted)])
        await values.catch_up()
        left = len(values.present)
    return Forgotten(
        tenant=wanted.tenant,
        subject=wanted.subject,
        sessions=tuple(sorted({session_id for session_id, _ in places})),
        answers=sum(len(read_key(one.key)) == _ANSWER_PARTS and one.topic == topics.answers_changelog for one in before),
        person_records=sum(one.topic == topics.persons for one in before),
        shared_answers=await _clear_shared(settings),
        left=left,
        compacted_by_ms=_now_ms() + ERASED_WITHIN_MS,
        held=await _held(settings, topics),
    )


_ANSWER_PARTS = 3


def _now_ms() -> int:
    return round(time.time() * 1000)


def _broadcast(wanted: Wanted) -> bytes:
    """Every worker reads it and empties its caches; the person's facts go only when the person is meant."""
    return forgotten_key(wanted.tenant, wanted.subject or "")


async def _session_names(settings: Settings, wanted: Wanted) -> frozenset[str]:
    """The sessions that are meant; a person's are found in the indexes of kept answers, which a session keeps until it is erased."""
    if wanted.session_id is not None:
        return frozenset((wanted.session_id,))
    topics = Topics.of(settings)

    def is_persons(topic: str, key: bytes, value: bytes | None) -> bool:
        parts = read_key(key)
        if value is None or not parts or parts[0] != wanted.tenant:
            return False
        if topic == topics.persons:
            return len(parts) > 1 and parts[1] == wanted.subject
        return len(parts) == _ANSWER_PARTS - 1 and wanted.subject in load_stored(value, KeptIndex).subjects

    async with LatestValues(settings, (topics.answers_changelog, topics.persons), is_persons) as found:
        return frozenset(read_key(one.key)[-1 if one.topic == topics.persons else 1] for one in found.present)


def _opened(settings: Settings, wanted: Wanted, names: frozenset[str]) -> LatestValues:
    topics = Topics.of(settings)

    def is_meant(topic: str, key: bytes, _value: bytes | None) -> bool:
        parts = read_key(key)
        if len(parts) < _ANSWER_PARTS - 1 or parts[0] != wanted.tenant:
            return False
        if topic != topics.persons:
            return parts[1] in names
        return len(parts) == _ANSWER_PARTS and (parts[1] == wanted.subject if wanted.subject is not None else parts[2] in names)

    return LatestValues(settings, (topics.sessions_changelog, topics.answers_changelog, topics.persons), is_meant)


async def _until_gone(values: LatestValues, topics: set[str], wait_s: float) -> None:
    ends = time.monotonic() + wait_s
    while any(one.topic in topics for one in values.present) and time.monotonic() < ends:
        await asyncio.sleep(LOOK_S)
        await values.catch_up()


async def _clear_shared(settings: Settings) -> int:
    if not settings.cache.shared:
        return 0
    store = RedisStore(settings.cache.shared)
    try:
        return await store.clear()
    except SharedStoreError as error:
        msg = f"{error}; its answers end after cache.ttl_s, or run the command again when it is back"
        raise SetupError(msg) from error
    finally:
        await store.close()


async def _held(settings: Settings, topics: Topics) -> tuple[Held, ...]:
    names = [topics.interactions, topics.responses, topics.chunks, topics.dead_letters, *([topics.reviews] if topics.reviews else [])]
    kept_ms = await read_retention(settings, names)
    now_ms = _now_ms()
    return tuple(Held(name, None if kept is None else now_ms + kept) for name, kept in kept_ms.items())


def _plain(value: bytes) -> dict[str, Any]:
    return msgspec.msgpack.decode(value, type=dict[str, Any])


def _answer(value: bytes) -> dict[str, Any]:
    """The response as its consumers had it."""
    kept = load_stored(value, KeptAnswer)
    is_json = encoding_of(kept.value, kept.headers) == "json"
    return msgspec.json.decode(kept.value, type=dict[str, Any]) if is_json else _plain(kept.value)
