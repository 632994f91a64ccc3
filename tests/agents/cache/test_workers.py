"""Live tests of the cache in whole workers, over Kafka and a real Valkey: two workers share answers, and a store that hangs makes nobody late."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import WorkerProcess
from tests.agents.cache.conftest import Server
from tests.live_support import PARTITIONS, Wire, assert_in_time, fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

LONG_MS = 10_000
"""A budget that is no part of what is tested."""

SHARED_MS = 100
"""Far above what a store takes, so that a busy machine does not make it look slow; far below a budget."""


def message(text: str, deadline_ms: int = LONG_MS) -> dict[str, Any]:
    """A question of a session of its own."""
    return {"event_id": fresh("e"), "session_id": fresh("s"), "text": text, "deadline_ms": deadline_ms, "answer": {"max_tokens": 3}}


@pytest.fixture
def rig(broker: str, own_valkey: Server, tmp_path: Path) -> Iterator[tuple[list[WorkerProcess], Wire]]:
    """Two workers of one group with a slow model, a client, and a store that both know."""
    name = fresh("cache")
    cache = {"ttl_s": 60, "shared": own_valkey.url, "shared_ms": SHARED_MS}
    config = worker_toml(broker, name, models=({"text": "the answer is here", "token_ms": 100},), cache=cache)
    with running_worker(tmp_path, config, "one") as one, running_worker(tmp_path, config, "two") as two, Wire(broker, name) as wire:
        wire.await_that(lambda: all(len(worker.readiness()["partitions"]) == PARTITIONS // 2 for worker in (one, two)), "two partitions each")
        yield [one, two], wire


def test_two_workers_share_answers_and_a_hanging_store_makes_nobody_late(rig: tuple[list[WorkerProcess], Wire], own_valkey: Server) -> None:
    """One request a worker at most for a crowd, the other worker's answer for whoever asks there, and with the store stopped all is in time."""
    workers, wire = rig

    def total(**labels: str) -> float:
        return sum(worker.metric_sum("answerby_cache_total", **labels) for worker in workers)

    crowd = [message("What is it?") for _ in range(24)]
    for place, event in enumerate(crowd):
        wire.send(event, partition=place % PARTITIONS)
    outcomes = Counter(wire.answer(event["event_id"]).body["outcome"] for event in crowd)
    assert set(outcomes) == {"model", "cache"}
    assert outcomes["model"] <= len(workers)

    asked = message("And that?")
    wire.send(asked, partition=0)
    assert wire.answer(asked["event_id"]).body["outcome"] == "model"
    wire.await_that(lambda: _all_cached(wire, "And that?"), "every partition's worker has the answer")
    assert total(event="shared_hit") >= 1

    os.kill(own_valkey.process.pid, signal.SIGSTOP)
    try:
        late = [message(f"{number % 5} of what?", 2000) for number in range(20)]
        for place, event in enumerate(late):
            wire.send(event, partition=place % PARTITIONS)
        for event in late:
            seen = wire.answer(event["event_id"])
            assert_in_time(seen)
            assert seen.body["outcome"] in ("model", "cache")
    finally:
        os.kill(own_valkey.process.pid, signal.SIGCONT)


def _all_cached(wire: Wire, text: str) -> bool:
    events = [message(text) for _ in range(PARTITIONS)]
    for place, event in enumerate(events):
        wire.send(event, partition=place)
    return all(wire.answer(event["event_id"]).body["outcome"] == "cache" for event in events)
