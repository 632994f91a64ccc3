"""Live tests of what is remembered for how long: age, size, persons across sessions, and a person who is to be forgotten."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rocksdict
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import Producer

from bench.harness import WorkerProcess
from schemas.session import answer_key, session_key
from schemas.settings import App, Kafka, Settings
from streams.broker.process import BrokerOptions
from streams.broker.testing import running_broker
from streams.changelogs import LatestValues
from tests.live_support import Wire, fresh, running_worker, wired, worker_toml

pytestmark = pytest.mark.live

LONG_MS = 10_000
"""A budget that is no part of what is tested."""

COMPACTED_S = 60.0
"""The broker's cleaner looks every 15 s."""

ANN_SAID = "Xylophonic-Quagga"
"""Told by the person who is forgotten."""

BOB_SAID = "Zirconium-Wombat"
"""Told by the person who is not."""

CONSENT = {"ai_reply": True, "store_history": True}


def message(session: str, text: str, **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session, "text": text, "deadline_ms": LONG_MS, "answer": {"max_tokens": 5}, **more}


def settings_of(wire: Wire) -> Settings:
    """What commands would read."""
    return Settings(app=App(id=wire.name), kafka=Kafka(bootstrap=wire.bootstrap, topic_prefix=f"{wire.name}-"))


def read_tables(wire: Wire) -> dict[bytes, bytes]:
    """All that the changelogs of sessions and answers hold now, by key; an index and its session differ by their topic."""
    topics = wire.topics

    async def read() -> dict[bytes, bytes]:
        async with LatestValues(settings_of(wire), (topics.sessions_changelog, topics.answers_changelog), lambda *_: True) as values:
            return {one.topic.encode() + one.key: one.value for one in values.present if one.value is not None}

    return asyncio.run(read())


def await_tables(wire: Wire, keys: set[bytes], seconds: float = 20.0) -> None:
    """Wait until the changelogs hold these keys and no others."""
    until = time.monotonic() + seconds
    while (found := set(read_tables(wire))) != keys:
        assert time.monotonic() < until, f"too many {found - keys}, missing {keys - found}"
        time.sleep(0.2)


def command(folder: Path, config: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `answerby sessions …`."""
    file = folder / "command.toml"
    file.write_text(config)
    return subprocess.run([sys.executable, "-m", "agents.cli", "sessions", *words, "-c", str(file)], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest) -> str:
    """Where tables live."""
    return str(request.param)


def test_sessions_end_with_age_and_the_changelog_says_so(broker: str, tmp_path: Path, store: str) -> None:
    """A session that had no event for `memory.session_ttl_s` is erased with its kept answers, whatever its events' own times say; also one from before."""
    name = fresh(f"age-{store}")
    where = {"store": store, "data_dir": str(tmp_path / "data")}
    with running_worker(tmp_path, worker_toml(broker, name, worker=where)) as worker, Wire(broker, name) as wire:
        wire.ask(message("old", "hello", occurred_at_ms=4_070_908_800_000))
        assert len(read_tables(wire)) == 3  # the session, its index, one kept answer
        assert worker.metric_sum("answerby_sessions") <= 1
    short = worker_toml(broker, name, worker=where, memory={"session_ttl_s": 3.0})
    with running_worker(tmp_path, short) as worker, Wire(broker, name) as wire:
        wire.ask(message("replayed", "hello again", occurred_at_ms=1_000))
        kept = read_tables(wire)
        assert any(b"replayed" in key for key in kept), "an old stamp must not expire anybody"
        await_tables(wire, set())
        assert worker.metric_sum("answerby_erased_total", why="age") == 2
        assert wire.ask(message("old", "I am back"))["outcome"] == "model"


def test_the_longest_unused_goes_first_when_there_are_too_many(broker: str, tmp_path: Path) -> None:
    """Above `memory.max_sessions` the sessions used longest ago are erased, and the figures say what is left."""
    with wired(tmp_path, broker, fresh("many"), memory={"max_sessions": 16}) as (worker, wire):
        for number in range(24):
            wire.ask(message(f"s{number}", "hello"))
        topics = wire.topics
        until = time.monotonic() + 20
        while len(held := [key for key in read_tables(wire) if key.startswith(topics.sessions_changelog.encode())]) > 16:
            assert time.monotonic() < until, len(held)
            time.sleep(0.2)
        assert topics.sessions_changelog.encode() + session_key("default", "s23") in held
        wire.await_that(lambda: worker.metric_sum("answerby_sessions") == 16, "the gauge")
        assert worker.metric_sum("answerby_table_entries", table="answers") == 32
        assert worker.metric_sum("answerby_erased_total", why="size") == 8


def _settle_compaction(bootstrap: str, topics: list[str]) -> None:
    """Let the cleaner do at once what it otherwise does within a day."""

    async def alter() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            config = {
                "cleanup.policy": "compact",
                "segment.ms": "100",
                "min.cleanable.dirty.ratio": "0.0",
                "delete.retention.ms": "0",
                "max.compaction.lag.ms": "1",
            }
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config) for topic in topics])
        finally:
            await admin.close()

    asyncio.run(alter())


def _roll(bootstrap: str, topic: str, partitions: int) -> None:
    """The newest segment is never compacted: one more record closes it."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(partitions):
        producer.produce(topic, key=answer_key("none", "none", str(partition)), value=None, partition=partition)
    producer.flush(10)


def _files_with(folder: Path, text: str, *, under: str = "") -> list[str]:
    """Files that hold the bytes of a text, now."""
    found = []
    for file in sorted(folder.rglob("*")):
        if file.is_file() and under in str(file):
            try:
                held = text.encode() in file.read_bytes()
            except FileNotFoundError:  # compacted meanwhile
                continue
            found += [str(file)] if held else []
    return found


def _stored_values(data: Path) -> list[list[bytes]]:
    """All values of a stopped worker's store, by table and partition."""
    options = rocksdict.Options(raw_mode=True)
    return [list(rocksdict.Rdict(str(file.parent), options=options).values()) for file in sorted(data.rglob("CURRENT"))]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker whose files the test may read."""
    folder = tmp_path_factory.mktemp("kafka")
    with running_broker(BrokerOptions(data_dir=folder)) as bootstrap:
        yield bootstrap, folder


@pytest.mark.timeout(180)
def test_a_person_who_is_forgotten_leaves_no_byte(own_broker: tuple[str, Path], tmp_path: Path) -> None:
    """`sessions forget --subject`: no byte of the person's texts in tables, changelogs after compaction, and the data directory; others keep theirs."""
    bootstrap, logs = own_broker
    name, data = fresh("forget"), tmp_path / "data"
    config = worker_toml(bootstrap, name, worker={"store": "rocksdb", "data_dir": str(data)}, cache={"ttl_s": 600.0})
    with running_worker(tmp_path, config) as worker, Wire(bootstrap, name) as wire:
        ann, bob = {"subject": "ann", "consent": CONSENT}, {"subject": "bob", "consent": CONSENT}
        for session in ("a1", "a2"):
            for number in range(3):
                wire.ask(message(session, f"{ANN_SAID} {number} [[say=so {ANN_SAID} it is]]", **ann))
        wire.ask(message("b1", f"{BOB_SAID} [[say=so {BOB_SAID} it is]]", **bob))
        shown = command(tmp_path, config, "show", "a1", "--json")
        assert shown.returncode == 0, shown.stderr
        assert ANN_SAID in shown.stdout
        exported = json.loads(command(tmp_path, config, "export", "--subject", "ann").stdout)
        assert sorted(session["session_id"] for session in exported["sessions"]) == ["a1", "a2"]
        assert [len(session["answers"]) for session in exported["sessions"]] == [3, 3]
        topics = wire.topics
        kept = [topics.sessions_changelog, topics.answers_changelog, topics.persons]
        _settle_compaction(bootstrap, kept)
        assert _files_with(data, ANN_SAID), "the check must be able to find bytes"

        done = command(tmp_path, config, "forget", "--subject", "ann", "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["sessions"], told["answers"], told["left"]) == (["a1", "a2"], 6, 0)
        assert {held["topic"] for held in told["held"]} >= {topics.interactions, topics.responses}
        wire.await_that(lambda: not _files_with(data, ANN_SAID), "the data directory without it")
        assert worker.metric_sum("answerby_cache_entries") == 0
        assert all(ANN_SAID.encode() not in value for value in read_tables(wire).values())

        await_tables_of_bob = {key for key in read_tables(wire) if b"b1" in key}
        assert len(await_tables_of_bob) == 3
        until = time.monotonic() + COMPACTED_S
        while left := [file for topic in kept for file in _files_with(logs, ANN_SAID, under=f"/{topic}-")]:
            assert time.monotonic() < until, left
            for topic in kept:
                _roll(bootstrap, topic, 1 if topic == topics.persons else 4)
            time.sleep(1.0)
        assert _files_with(logs, BOB_SAID, under=f"/{topics.sessions_changelog}-"), "the check must be able to find bytes"
        assert _files_with(logs, ANN_SAID, under=f"/{topics.interactions}-"), "named in the report, with its end"
        assert wire.ask(message("a1", "hello [[say=yes]]", **ann))["outcome"] == "model"
    stored = [value for values in _stored_values(data) for value in values]
    assert any(BOB_SAID.encode() in value for value in stored)
    assert not any(ANN_SAID.encode() in value for value in stored), "also where the store's files are compressed"


def test_forget_says_when_no_worker_has_done_it(broker: str, tmp_path: Path) -> None:
    """Without a worker `forget` ends with exit 1 and what to do; the next worker does it before it answers anything newer."""
    name = fresh("later")
    config = worker_toml(broker, name)
    with Wire(broker, name) as wire:
        with running_worker(tmp_path, config):
            wire.ask(message("s1", "hello", subject="ann"))
        done = command(tmp_path, config, "forget", "--subject", "ann", "--wait", "1")
        assert done.returncode == 1
        assert "no worker" in done.stderr
        with WorkerProcess(tmp_path, config) as worker:
            worker.start()
            await_tables(wire, set())


def test_what_is_not_there_is_said(broker: str, tmp_path: Path) -> None:
    """`show`, `export` and `forget` of what is not kept are exit 1 and one sentence, two targets at once are exit 2, and nothing is sent."""
    name = fresh("nothing")
    config = worker_toml(broker, name)
    with wired(tmp_path, broker, name) as (_, wire):
        for words in (("show", "nobody"), ("export", "nobody"), ("export", "--subject", "ann"), ("forget", "nobody", "--json"), ("forget", "--subject", "ann")):
            done = command(tmp_path, config, *words)
            assert done.returncode == 1
            assert "error: nothing is kept of s" in done.stderr
        assert command(tmp_path, config, "forget", "s1", "--subject", "ann").returncode == 2
        assert wire.lags() == dict.fromkeys(range(4), 0)


def test_values_of_the_next_version_survive(broker: str, tmp_path: Path) -> None:
    """A worker of this release reads sessions, turns and indexes that the next one wrote, goes on with them, and keeps the fields it does not know."""
    name = fresh("next")
    with wired(tmp_path, broker, name) as (_, wire):
        wire.ask(message("s1", "first"))
        topics = wire.topics
    values = read_tables(wire)
    key = session_key("default", "s1")
    session = msgspec.msgpack.decode(values[topics.sessions_changelog.encode() + key])
    index = msgspec.msgpack.decode(values[topics.answers_changelog.encode() + key])
    session |= {"mood": "calm", "v": 2}
    session["turns"][0]["tone"] = {"warm": True}
    index["shelf"] = [1, 2]
    partition = _partition_of(wire, key)
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(topics.sessions_changelog, key=key, value=msgspec.msgpack.encode(session), partition=partition)
    producer.produce(topics.answers_changelog, key=key, value=msgspec.msgpack.encode(index), partition=partition)
    producer.flush(10)
    with wired(tmp_path, broker, name) as (_, wire):
        wire.ask(message("s1", "second"))
    values = read_tables(wire)
    after = msgspec.msgpack.decode(values[topics.sessions_changelog.encode() + key])
    assert [turn["user"] for turn in after["turns"]] == ["first", "second"]
    assert after["mood"] == "calm"
    assert after["turns"][0]["tone"] == {"warm": True}
    assert msgspec.msgpack.decode(values[topics.answers_changelog.encode() + key])["shelf"] == [1, 2]


def _partition_of(wire: Wire, key: bytes) -> int:
    async def read() -> int:
        async with LatestValues(settings_of(wire), (wire.topics.sessions_changelog,), lambda _topic, found, _value: found == key) as values:
            return next(one.partition for one in values.present)

    return asyncio.run(read())


def test_a_person_is_known_in_the_next_session(broker: str, tmp_path: Path) -> None:
    """What a person states with consent `store_history` is known in their other sessions, also after a restart; not without consent, nor of others."""
    with wired(tmp_path, broker, fresh("person")) as (worker, wire):
        ann = {"subject": "ann", "consent": CONSENT}
        wire.ask(message("p1", "My name is Quillon.", **ann))
        wire.ask(message("p2", "My name is Rosalba.", subject="bob"))
        wire.await_that(lambda: worker.metric_sum("answerby_table_entries", table="persons") == 1, "one person")
        new = {name: wire.ask(message(fresh("p"), "hello", subject=name, **more))["usage"]["prompt_tokens"] for name, more in _people().items()}
        assert new["ann"] > new["bob"]
        worker.stop()
        worker.start()
        again = wire.ask(message(fresh("p"), "hello", **ann))
        assert again["usage"]["prompt_tokens"] == new["ann"]


def _people() -> dict[str, dict[str, Any]]:
    """Ann agreed to be remembered, Bob did not."""
    return {"ann": {"consent": CONSENT}, "bob": {}}
