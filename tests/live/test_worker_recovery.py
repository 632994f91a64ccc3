"""Live tests of tables that come back: kept on disk, lost, stale, another's, or in use; and of what a session looks like after its worker was killed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from bench.harness import WorkerProcess
from bench.load import LoadResult
from bench.recovery import hash_tables
from bench.survival import read_aftermath, survive
from schemas.settings import App, Kafka, Settings
from streams.topic_admin import ensure_topics
from streams.topics import Topics
from tests.live_support import Wire, fresh, running_worker, worker_toml
from tests.support import run

pytestmark = pytest.mark.live

QUICK = {"session_timeout_ms": 2000, "commit_ms": 200}
ENDS_S = 30.0
"""A worker that refuses its tables ends by itself within this."""


def on_disk(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of a worker whose tables are in `folder`."""
    return {**QUICK, "store": "rocksdb", "data_dir": str(folder), **more}


def message(session: str, text: str = "one two three") -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session, "text": text, "deadline_ms": 20_000, "answer": {"max_tokens": 5}}


def prompt_tokens(wire: Wire, session: str) -> int:
    """Words of the prompt of one more message: they grow with what is remembered."""
    return int(wire.ask(message(session))["usage"]["prompt_tokens"])


def refused(worker: WorkerProcess) -> str:
    """The last line of a worker that does not start; it exits 1 and never was ready."""
    worker.start(ready=False)
    assert worker.await_end(ENDS_S) == 1
    return worker.log_tail(1)


async def make_anew(bootstrap: str, name: str, records: int) -> None:
    """Delete the tables' changelogs and make them again, with so many records in each partition."""
    settings = Settings(app=App(id=name), kafka=Kafka(bootstrap=bootstrap, topic_prefix=f"{name}-"))
    topics = Topics.of(settings)
    names = [topics.sessions_changelog, topics.answers_changelog]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.delete_topics(names)
        while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110  # Kafka deletes in the background and tells nobody
            await asyncio.sleep(0.1)
    finally:
        await admin.close()
    assert (await ensure_topics(settings)).is_fit
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for topic in names:
            for number in range(settings.kafka.partitions * records):
                await producer.send_and_wait(topic, value=b"x", key=f"k{number}".encode(), partition=number % settings.kafka.partitions)
    finally:
        await producer.stop()


def test_a_store_whose_changelog_was_made_anew_is_refused_and_rebuilt(broker: str, tmp_path: Path) -> None:
    """One line with the way out and exit code 1, no answer from stale state; after `--rebuild-state` the worker is ready and the session begins anew."""
    name, session = fresh("stale"), fresh("s")
    config = worker_toml(broker, name, worker=on_disk(tmp_path / "data"))
    with running_worker(tmp_path, config) as worker, Wire(broker, name) as wire:
        first = prompt_tokens(wire, session)
        assert prompt_tokens(wire, session) == first + 8
        assert worker.stop() == 0
        run(make_anew(broker, name, records=0))
        line = refused(worker)
        assert "was made anew" in line
        assert "--rebuild-state" in line
        worker.start(arguments=("--rebuild-state",))
        assert prompt_tokens(wire, session) == first
        assert worker.stop() == 0
        worker.start()
        assert prompt_tokens(wire, session) == first + 8


def test_a_store_of_another_application_is_refused(broker: str, tmp_path: Path) -> None:
    """Two applications with one data directory: the second is told whose it is, and starts with its own."""
    one, two = fresh("one"), fresh("two")
    with running_worker(tmp_path, worker_toml(broker, one, worker=on_disk(tmp_path / "data")), name="one") as worker, Wire(broker, one) as wire:
        prompt_tokens(wire, fresh("s"))
        with WorkerProcess(tmp_path, worker_toml(broker, one, worker=on_disk(tmp_path / "data")), name="same") as same:
            assert "in use by another worker" in refused(same)
        assert worker.stop() == 0
    with WorkerProcess(tmp_path, worker_toml(broker, two, worker=on_disk(tmp_path / "data")), name="two") as other:
        assert f"another app ('{one}', not '{two}')" in refused(other)


def test_tables_are_the_same_with_and_without_the_data_directory(broker: str, tmp_path: Path) -> None:
    """After a kill, after a restart and after the directory was lost, the stores hold the same bytes, and `/readyz` says how long that took."""
    name = fresh("same")
    data = tmp_path / "data"
    with running_worker(tmp_path, worker_toml(broker, name, worker=on_disk(data))) as worker, Wire(broker, name) as wire:
        sessions = [fresh("s") for _ in range(40)]
        for event in [message(session) for _ in range(3) for session in sessions]:
            wire.send(event)
        wire.await_no_lag()
        worker.kill()
        worker.start()
        assert worker.stop() == 0
        kept = hash_tables(data)
        shutil.rmtree(data)
        worker.start()
        status = worker.readiness()
        assert (status["recovery"], status["recovery_records_left"]) == ("done", 0)
        assert status["recovery_seconds"] > 0
        assert worker.metric_sum("answerby_recovery_seconds") == pytest.approx(status["recovery_seconds"], abs=0.01)
        assert worker.stop() == 0
        assert hash_tables(data) == kept
        assert kept.entries > len(sessions)


async def write_in_transaction(bootstrap: str, topic: str) -> None:
    """One record in each partition, and behind it the transaction's mark, which no reader is given."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=fresh("transaction"))
    await producer.start()
    try:
        async with producer.transaction():
            for number in range(4):
                await producer.send_and_wait(topic, value=b"v", key=b"k%d" % number, partition=number)
    finally:
        await producer.stop()


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_a_changelog_whose_last_offsets_hold_no_record_is_complete(broker: str, tmp_path: Path, store: str) -> None:
    """A transaction's mark at the end, or what compaction leaves of deletions, is not waited for until the worker gives up."""
    name = fresh("marks")
    settings = Settings(app=App(id=name), kafka=Kafka(bootstrap=broker, topic_prefix=f"{name}-"))
    assert run(ensure_topics(settings)).is_fit
    run(write_in_transaction(broker, Topics.of(settings).sessions_changelog))
    worker = on_disk(tmp_path / "data", store=store)
    with running_worker(tmp_path, worker_toml(broker, name, worker=worker)) as process, Wire(broker, name) as wire:
        assert prompt_tokens(wire, fresh("s")) > 0
        assert "a changelog ends without records" in process.log_text()
        assert process.metric_sum("answerby_recovery_records_left") == 0


def test_turns_are_what_was_sent_however_often_the_only_worker_is_killed(broker: str, tmp_path: Path) -> None:
    """Two kills at 20 events a second over 60 sessions: one answer each, byte-identical repeats, each session's turns in order, everything committed."""
    name = fresh("turns")
    with running_worker(tmp_path, worker_toml(broker, name, worker=QUICK, session={"turns": 40})) as worker:
        report = run(survive([worker], broker, rate=20, seconds=12, kills=2, prefix=f"{name}-", app=name, budget_ms=60_000), timeout_s=110)
    assert (report["lost"], report["contradictory"], report["out_of_order"]) == (0, 0, 0)
    assert (report["sessions"], report["sessions_with_wrong_turns"], report["records_not_committed"]) == (60, 0, 0)


def test_the_look_at_the_tables_sees_a_missing_turn(broker: str, tmp_path: Path) -> None:
    """A turn that was sent and is not in the table is counted: the test above could fail."""
    name = fresh("seen")
    with running_worker(tmp_path, worker_toml(broker, name, worker=QUICK)), Wire(broker, name) as wire:
        event = message("s0")
        wire.ask(event)
        result = LoadResult(events={event["event_id"]: event})
        whole = run(read_aftermath(broker, result, prefix=f"{name}-", app=name))
        result.events["e-never"] = {**event, "event_id": "e-never"}
        short = run(read_aftermath(broker, result, prefix=f"{name}-", app=name))
    assert (whole["sessions_with_wrong_turns"], short["sessions_with_wrong_turns"]) == (0, 1)
