"""Live tests of delivery: workers are killed, stopped, frozen and started again under load, and no event is lost or answered in two ways."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bench.harness import WorkerProcess, signal_process
from bench.load import LoadClient, LoadResult
from tests.live_support import Wire, fresh, now_ms, running_worker, worker_toml
from tests.support import run

pytestmark = pytest.mark.live

SESSION_MS = 2000
"""The least a worker may be silent before its partitions move: the gaps of these tests."""

SESSIONS = 20
QUICK = {"session_timeout_ms": SESSION_MS, "commit_ms": 200}


async def under_load(broker: str, name: str, *, rate: float, disturb: Callable[[], Coroutine[Any, Any, None]]) -> LoadResult:
    """Send at `rate` until `disturb` is done, then wait for every answer."""
    async with LoadClient(broker, prefix=f"{name}-") as client:
        disturbing = asyncio.create_task(disturb())
        number = 0
        while not disturbing.done():
            await client.send(
                {"event_id": f"e{number}", "session_id": f"s{number % SESSIONS}", "text": f"turn {number}", "deadline_ms": 2000, "answer": {"max_tokens": 6}}
            )
            number += 1
            await asyncio.sleep(1 / rate)
        await disturbing
        await client.await_all(40)
        await asyncio.sleep(1.0)  # a second answer, if anybody is about to give one
        return client.result


def assert_whole(result: LoadResult) -> None:
    """Every event has its response, repeats are the same bytes, and first responses of a session are in the order of its events."""
    assert result.lost == []
    assert result.contradictory == []
    firsts = sorted((min(seen, key=lambda item: item.offset) for seen in result.received.values()), key=lambda item: (item.partition, item.offset))
    last: dict[str, int] = {}
    for item in firsts:
        session, number = item.response["session_id"], int(item.response["event_id"].removeprefix("e"))
        assert number > last.get(session, -1), f"{item.response['event_id']} left after a later one of {session}"
        last[session] = number


async def restart_killed(worker: WorkerProcess) -> None:
    """Kill -9, and a new start that becomes ready."""
    await asyncio.to_thread(worker.kill)
    await asyncio.to_thread(worker.start)


def test_kill_9_of_the_only_worker_loses_nothing(broker: str, tmp_path: Path) -> None:
    """Two kills under 30 events a second: all are answered, repeats are byte-identical, sessions stay in order."""
    name = fresh("killed")
    with running_worker(tmp_path, worker_toml(broker, name, worker=QUICK)) as worker:

        async def disturb() -> None:
            for _ in range(2):
                await asyncio.sleep(1.5)
                await restart_killed(worker)
            await asyncio.sleep(1.0)

        result = run(under_load(broker, name, rate=30, disturb=disturb), timeout_s=110)
    assert_whole(result)
    assert result.outcomes().get("model", 0) > 50


def test_whatever_happens_to_one_of_two_workers_nothing_is_lost_or_contradicted(broker: str, tmp_path: Path) -> None:
    """One leaves by SIGTERM (exit 0) and comes back; then it is frozen for longer than its session, the other takes over, and it wakes up."""
    name = fresh("two")
    config = worker_toml(broker, name, worker=QUICK)
    with running_worker(tmp_path, config, name="one") as one, running_worker(tmp_path, config, name="two") as two:

        async def disturb() -> None:
            await asyncio.sleep(1.0)
            assert await asyncio.to_thread(one.stop) == 0
            await asyncio.to_thread(one.start)
            await asyncio.sleep(1.0)
            signal_process(one.pid, signal.SIGSTOP)
            try:
                await asyncio.to_thread(_await_partitions, two, 4)
                await asyncio.sleep(1.0)
            finally:
                signal_process(one.pid, signal.SIGCONT)
            await asyncio.to_thread(_await_shared, one, two)

        result = run(under_load(broker, name, rate=30, disturb=disturb), timeout_s=110)
    assert_whole(result)


def _await_partitions(worker: WorkerProcess, count: int) -> None:
    until = time.monotonic() + 30
    while len(worker.readiness().get("partitions", ())) != count or not worker.readiness()["ready"]:
        assert time.monotonic() < until, worker.readiness()
        time.sleep(0.1)


def _await_shared(one: WorkerProcess, two: WorkerProcess) -> None:
    until = time.monotonic() + 30
    while {*one.readiness().get("partitions", ())} | {*two.readiness().get("partitions", ())} != {0, 1, 2, 3} or not one.readiness().get("partitions"):
        assert time.monotonic() < until, (one.readiness(), two.readiness())
        time.sleep(0.1)


def message(session: str, text: str = "one two three", **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session, "text": text, "deadline_ms": 20_000, "answer": {"max_tokens": 5}, **more}


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_sessions_and_kept_answers_outlive_a_restart(broker: str, tmp_path: Path, store: str) -> None:
    """After SIGTERM and after kill -9 a session still has its turns, an old event still gets its old bytes, and what was forgotten stays so."""
    name, session, ended = fresh(store), fresh("s"), fresh("s")
    config = worker_toml(broker, name, worker={**QUICK, "store": store, "data_dir": str(tmp_path / "data")})
    with running_worker(tmp_path, config) as worker, Wire(broker, name) as wire:
        event = message(session)
        tokens = wire.ask(event)["usage"]["prompt_tokens"]
        wire.ask(message(ended))
        wire.send_raw(None, ended.encode())
        wire.await_no_lag()
        for turns, how in enumerate(("SIGTERM", "kill -9"), 1):
            if how == "SIGTERM":
                assert worker.stop() == 0
            else:
                worker.kill()
            worker.start()
            assert wire.ask(message(session))["usage"]["prompt_tokens"] == tokens + 8 * turns, how
            wire.send(event)
            wire.answer(event["event_id"], turns + 1)
            assert len({(seen.value, seen.headers) for seen in wire.answers[event["event_id"]]}) == 1
        assert wire.ask(message(ended))["usage"]["prompt_tokens"] == tokens


def test_sigterm_finishes_what_it_can_and_leaves_the_rest(broker: str, tmp_path: Path) -> None:
    """What is due within the grace is answered before the exit; what is not, by the next worker; nothing in two ways, nothing never."""
    name = fresh("sigterm")
    with running_worker(tmp_path, worker_toml(broker, name, worker={**QUICK, "stop_ms": 3000})) as worker, Wire(broker, name) as wire:
        wire.ask(message("warm"))
        soon = [message(fresh("s"), "[[delay=500]] soon", deadline_ms=2000) for _ in range(5)]
        later = [message(fresh("s"), "[[delay=60000]] later", deadline_ms=15_000) for _ in range(5)]
        expired = [message(fresh("s"), "late", occurred_at_ms=now_ms() - 60_000, deadline_ms=100) for _ in range(5)]
        for event in (*soon, *later, *expired):
            wire.send(event)
        wire.await_that(lambda: worker.metric_sum("answerby_in_flight_events") >= 10, "ten events in flight")
        assert worker.stop(seconds=15) == 0
        wire.read_for(0.5)
        assert all(event["event_id"] in wire.answers for event in (*soon, *expired))
        assert not any(event["event_id"] in wire.answers for event in later)
        worker.start()
        for event in later:
            body = wire.answer(event["event_id"]).body
            assert (body["outcome"], body["reason"]) == ("default", "deadline")
        wire.await_no_lag()
        assert all(len({(item.value, item.headers) for item in seen}) == 1 for seen in wire.answers.values())
