"""Live tests of several workers on one broker: partitions are shared and handed over as planned, sessions keep their order, and nothing is asked twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.handover import RestartableBroker, rehearse
from bench.harness import WorkerProcess
from schemas.settings import App, Kafka, Settings
from streams.broker.process import BrokerOptions
from streams.topic_admin import ensure_topics
from tests.live_support import Wire, fresh, running_worker, worker_toml
from tests.support import run

pytestmark = pytest.mark.live

QUICK = {"session_timeout_ms": 3000, "commit_ms": 200}
ALL = {0, 1, 2, 3}


def await_that(holds: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
    """Look until it is so."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def held(worker: WorkerProcess) -> set[int]:
    """The partitions of a worker that is ready, none of one that is not."""
    body = worker.readiness()
    return set(body["partitions"]) if body.get("ready") else set()


def message(session: str, **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session, "text": "one two three", "deadline_ms": 20_000, "answer": {"max_tokens": 5}, **more}


def test_a_planned_hand_over_answers_in_time(broker: str, tmp_path: Path) -> None:
    """One of two workers leaves by SIGTERM and comes back, under 30 events a second: nothing lost, and of those with 3 s hardly any late."""
    name = fresh("bounced")
    config = worker_toml(broker, name, worker=QUICK)
    with running_worker(tmp_path, config, name="one") as one, running_worker(tmp_path, config, name="two") as two:
        await_that(lambda: held(one) | held(two) == ALL and bool(held(one)), "both have partitions")
        report = run(rehearse([one, two], broker, rate=30, seconds=12, every_s=5, prefix=f"{name}-"), timeout_s=110)
    assert report["bounces"] >= 1
    assert (report["lost"], report["contradictory"]) == (0, 0)
    met, asked = (int(number) for number in report["in_time_during_hand_overs"]["3000 ms"].split(" ")[0].split("/"))
    assert asked > 0
    assert met >= 0.9 * asked  # a busy machine may cost one or two; the benchmark holds it to 99 %


def test_consumption_resumes_by_itself_when_the_broker_comes_back(tmp_path: Path) -> None:
    """The broker is restarted twice under a worker that is left alone: each time its next event is answered, with the session as it was."""
    name = fresh("restarted")
    broker = RestartableBroker(BrokerOptions(data_dir=tmp_path / "broker"))
    broker.start()
    try:
        with running_worker(tmp_path, worker_toml(broker.bootstrap, name, worker=QUICK)) as worker:
            pid, session = worker.pid, fresh("s")
            with Wire(broker.bootstrap, name) as wire:
                tokens = wire.ask(message(session))["usage"]["prompt_tokens"]
            for turns in (1, 2):
                broker.restart()
                with Wire(broker.bootstrap, name) as wire:
                    assert wire.ask(message(session, deadline_ms=60_000))["usage"]["prompt_tokens"] == tokens + 8 * turns
                    wire.await_no_lag()
            assert worker.pid == pid
            assert worker.running
    finally:
        broker.stop()


def test_a_worker_whose_broker_has_gone_still_stops(tmp_path: Path) -> None:
    """SIGTERM while nothing can be written or committed: the worker ends by itself, in the time that its bounds add up to."""
    name = fresh("gone")
    broker = RestartableBroker(BrokerOptions(data_dir=tmp_path / "broker"))
    broker.start()
    try:
        with running_worker(tmp_path, worker_toml(broker.bootstrap, name, worker={**QUICK, "stop_ms": 4000})) as worker:
            with Wire(broker.bootstrap, name) as wire:
                wire.ask(message(fresh("s")))
                wire.send(message(fresh("s"), text="[[delay=3500]] slow"))
                wire.await_that(lambda: worker.metric_sum("answerby_in_flight_events") >= 1, "an event in flight")
            broker.stop()
            assert worker.stop(seconds=40.0) == 0
    finally:
        broker.stop()


def test_a_worker_that_took_over_with_copies_of_the_tables_has_little_to_read(broker: str, tmp_path: Path) -> None:
    """With `worker.standby` the other worker holds every session already: after a kill it answers with their turns, and from its own copy."""
    name = fresh("standby")

    def config(number: int) -> str:
        return worker_toml(broker, name, worker={**QUICK, "store": "rocksdb", "standby": 1, "data_dir": str(tmp_path / f"data-{number}")})

    sessions = [fresh("s") for _ in range(30)]
    with running_worker(tmp_path, config(1), name="one") as one, running_worker(tmp_path, config(2), name="two") as two, Wire(broker, name) as wire:
        await_that(lambda: held(one) | held(two) == ALL and bool(held(one)), "both have partitions")
        first = {session: wire.ask(message(session))["usage"]["prompt_tokens"] for session in sessions}
        wire.await_no_lag()
        one.kill()
        await_that(lambda: held(two) == ALL, "the other one has everything")
        for session in sessions:
            assert wire.ask(message(session))["usage"]["prompt_tokens"] == first[session] + 8


def test_a_session_on_two_partitions_is_counted_and_said(broker: str, tmp_path: Path) -> None:
    """A producer that partitions otherwise splits a session's state: the metric rises and one line names the session; a steady one is not counted."""
    name, split, steady = fresh("split"), fresh("s"), fresh("s")
    with running_worker(tmp_path, worker_toml(broker, name)) as worker, Wire(broker, name) as wire:
        for partition in (0, 1, 1, 0):
            wire.send(message(split), partition=partition)
            wire.send(message(steady), partition=2)
        last = message(steady)
        wire.send(last, partition=2)
        wire.answer(last["event_id"])
        wire.await_no_lag()
        assert worker.metric_sum("answerby_split_sessions_total") >= 1
        lines = [line for line in worker.log_text().splitlines() if "came on another partition" in line]
        assert len(lines) == 1
        assert split in lines[0]


def test_a_worker_does_not_start_on_topics_that_do_not_meet(broker: str, tmp_path: Path) -> None:
    """Another partition count of a table's changelog than of the events is refused with the command that mends it."""
    name = fresh("counts")
    made = Settings(app=App(id=name), kafka=Kafka(bootstrap=broker, topic_prefix=f"{name}-", partitions=3))
    assert run(ensure_topics(made)).is_fit
    with WorkerProcess(tmp_path, worker_toml(broker, name)) as worker:
        worker.start(ready=False)
        assert worker.await_end(30.0) == 1
        assert "partitions" in worker.log_tail(1)
        assert "--partitions 4" in worker.log_tail(1) or "kafka.partitions" in worker.log_tail(1)
