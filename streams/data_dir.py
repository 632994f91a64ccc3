"""The directory of a worker's persistent tables: claimed by one worker, checked against its changelogs, made anew on demand; reading them is `streams.tables`.

A store that belongs to another application or cluster, or to a changelog that was deleted and made again, would be answered from as if it were
true. Faust notices one case of these, and only while it recovers.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from rocksdict import AccessType, Options, Rdict

from schemas.errors import SetupError
from schemas.session import TableName

log = structlog.get_logger(__name__)

TABLES = Path("v1", "tables")
"""Where Faust keeps the stores of an application of version 1."""

OFFSET_KEY = b"__faust\0offset__"
"""Under this key Faust's store keeps the changelog's offset that it holds."""

MARK, LOCK = "answerby.json", "answerby.lock"

CHECK_S = 20.0
"""For all questions to the broker together: one that hangs must end the start with a line, not hold it. At worst so much later."""

_CLOCKS_S = 60.0
"""A record's stamp and a file's may come from two clocks; changelogs that were made anew are younger than the store by more than that, or are caught by
their length."""

WAY_OUT = "run `answerby worker --rebuild-state` once, which reads the tables anew from their changelogs, or name another worker.data_dir"


class Owner(msgspec.Struct, frozen=True):
    """Whose tables a directory holds."""

    app: str
    topic_prefix: str
    cluster: str


class Store(NamedTuple):
    """One partition of one table as it was left: what of the changelog it holds, and when it was last written (Unix seconds)."""

    place: TopicPartition
    offset: int
    written: float


class DataDir:
    """One worker's hold on its directory; `release` gives it up, and so does the end of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    def claim(self) -> None:
        """Keep other workers out. Raises SetupError when one is in."""
        lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            msg = f"{self.folder} is in use by another worker: give each worker its own worker.data_dir"
            raise SetupError(msg) from None
        self._lock = lock

    def release(self) -> None:
        """Let others in. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def clear(self) -> None:
        """Remove the tables; they are read anew from their changelogs, which hold everything that was ever answered from."""
        shutil.rmtree(self.folder / TABLES, ignore_errors=True)
        with suppress(FileNotFoundError):
            (self.folder / MARK).unlink()
        log.warning("the tables were removed and are read anew from their changelogs", data_dir=str(self.folder))

    def read_owner(self) -> Owner | None:
        """Whose tables these are; None when nobody has said so yet."""
        try:
            return msgspec.json.decode((self.folder / MARK).read_bytes(), type=Owner)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def write_owner(self, owner: Owner) -> None:
        """Note whose tables these are."""
        (self.folder / MARK).write_bytes(msgspec.json.encode(owner))

    def stores(self, changelogs: Mapping[TableName, str]) -> list[Store]:
        """What each store holds, by the name of its table and that table's changelog.

        Raises:
            SetupError: a store cannot be read.
        """
        found = []
        for table, topic in changelogs.items():
            for path in sorted((self.folder / TABLES).glob(f"{table}-*.db")):
                number = path.stem.removeprefix(f"{table}-")
                if number.isdecimal():
                    offset = _read_offset(path)
                    if offset is not None:
                        found.append(Store(TopicPartition(topic, int(number)), offset, _written(path)))
        return found


async def check_data_dir(data: DataDir, client: Mapping[str, Any], changelogs: Mapping[TableName, str], *, app: str, topic_prefix: str) -> None:
    """Refuse tables that these changelogs did not make; note the owner of a directory that has none.

    Raises:
        SetupError: the tables are another's, or older or younger than their changelogs can explain, or cannot be read; the text has the way out.
    """
    stores = await asyncio.to_thread(data.stores, changelogs)
    try:
        async with asyncio.timeout(CHECK_S):
            mine = Owner(app, topic_prefix, await _read_cluster(client))
            ends, stamps = await _read_changelogs(client, stores) if stores else ({}, {})
    except (KafkaError, TimeoutError) as error:
        msg = f"the tables' changelogs could not be read ({type(error).__name__}): see the broker's log, then start the worker again"
        raise SetupError(msg) from error
    problem = find_problem(data.read_owner(), mine, stores, ends, stamps)
    if problem:
        msg = f"{data.folder} {problem}: {WAY_OUT}"
        raise SetupError(msg)
    data.write_owner(mine)


def find_problem(
    owner: Owner | None, mine: Owner, stores: list[Store], ends: Mapping[TopicPartition, int], stamps: Mapping[TopicPartition, tuple[int, float]]
) -> str | None:
    """Why tables cannot be these changelogs'; None when they can.

    `ends` are the offsets after the last record; `stamps` the offset and Unix seconds of the first record that is left from each store's offset on.
    """
    if owner is not None and owner != mine and stores:
        differing = [name for name in Owner.__struct_fields__ if getattr(owner, name) != getattr(mine, name)]
        return "holds the tables of another " + " and ".join(f"{name} ({getattr(owner, name)!r}, not {getattr(mine, name)!r})" for name in differing)
    for place, offset, written in stores:
        end = ends.get(place)
        if end is None or offset >= end:
            return f"is ahead of {place.topic}, partition {place.partition} (holds offset {offset}, the log ends at {end or 0}): the topic was made anew"
        found = stamps.get(place)
        if found is not None and found[0] == offset and found[1] > written + _CLOCKS_S:
            return f"holds an offset of {place.topic}, partition {place.partition}, that was written after it was left: the topic was made anew"
    return None


def _read_offset(path: Path) -> int | None:
    try:
        store = Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            raw = store.get(OFFSET_KEY)
        finally:
            store.close()
        return None if raw is None else int(raw)
    except Exception as error:  # rocksdict raises bare exceptions for everything
        msg = f"{path} cannot be read ({' '.join(str(error).split())[:200]}): {WAY_OUT}"
        raise SetupError(msg) from error


def _written(path: Path) -> float:
    """When records last went into a store: its log's last change, since opening it alone writes other files."""
    times = [file.stat().st_mtime for file in path.iterdir() if file.suffix in (".log", ".sst") and file.stat().st_size]
    return max(times, default=path.stat().st_mtime)


async def _read_cluster(client: Mapping[str, Any]) -> str:
    admin = AIOKafkaAdminClient(**client)
    try:
        await admin.start()
        return str((await admin.describe_cluster()).get("cluster_id") or "")
    finally:
        await admin.close()


async def _read_changelogs(client: Mapping[str, Any], stores: list[Store]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, tuple[int, float]]]:
    """Each changelog's end, and the first record from each store's offset on."""
    consumer = AIOKafkaConsumer(**client, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        places = [store.place for store in stores]
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        wanted = {store.place for store in stores if store.offset < ends.get(store.place, 0)}
        consumer.assign(sorted(wanted))
        for store in stores:
            if store.place in wanted:
                consumer.seek(store.place, store.offset)
        stamps: dict[TopicPartition, tuple[int, float]] = {}
        while wanted:
            for place, records in (await consumer.getmany(timeout_ms=250, max_records=len(wanted))).items():
                if records and place in wanted:
                    stamps[place] = records[0].offset, records[0].timestamp / 1000
                    wanted.discard(place)
                    consumer.pause(place)
            wanted -= {place for place in wanted if await consumer.position(place) >= ends[place]}
        return ends, stamps
    finally:
        await consumer.stop()
