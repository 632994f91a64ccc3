"""Live tests of a worker that is told to stop while its broker is gone, or does not answer: it ends by itself, soon, and says so with its exit code."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness import WorkerProcess, signal_process
from streams.broker.process import EmbeddedBroker
from tests.live_support import WAIT_S, Wire, fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

ENDS_S = 35.0
"""What the worker allows itself: 5 s for events, 10 for Faust, 1 for its tasks, 10 for the producers; the rest is for a busy machine."""

LOST = pytest.mark.parametrize("loss", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "hangs"])


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker that a test may lose."""
    broker = EmbeddedBroker()
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def lose(broker: EmbeddedBroker, loss: signal.Signals) -> None:
    """The JVM dies, or stops answering on open connections."""
    assert broker.pid is not None
    signal_process(broker.pid, loss)


def message(session: str, **more: Any) -> dict[str, Any]:
    """A message that takes the engine two seconds."""
    return {"event_id": fresh("e"), "session_id": session, "text": "one two three", "deadline_ms": 3000, "answer": {"max_tokens": 100}, **more}


def await_port(worker: WorkerProcess) -> None:
    """Wait until the worker has begun to start: from then on a signal is its own to handle."""
    until = time.monotonic() + WAIT_S
    while not worker.port:
        assert time.monotonic() < until, worker.log_tail()
        time.sleep(0.05)


@LOST
def test_a_worker_whose_broker_is_lost_ends_when_it_is_told_to(own_broker: EmbeddedBroker, tmp_path: Path, loss: signal.Signals) -> None:
    """With events in the engine, offsets to commit and a group to leave: exit code 0 within the bounds, and no thread or task that keeps the process."""
    name = fresh("lost")
    models = [{"token_ms": 20, "max_tokens": 1000}]
    settings = {"store": "rocksdb", "data_dir": str(tmp_path / "data")}
    with running_worker(tmp_path, worker_toml(own_broker.bootstrap, name, models, worker=settings)) as worker:
        with Wire(own_broker.bootstrap, name) as wire:
            wire.ask(message(fresh("s"), answer={"max_tokens": 2}))
            for _ in range(10):
                wire.send(message(fresh("s")))
            wire.await_that(lambda: worker.metric_sum("answerby_running_requests") > 0, "requests in the engine")
            lose(own_broker, loss)
            assert worker.stop(ENDS_S) == 0
    assert "worker stopped" in worker.log_text()


@LOST
def test_a_worker_that_waits_for_its_broker_ends_when_it_is_told_to(own_broker: EmbeddedBroker, tmp_path: Path, loss: signal.Signals) -> None:
    """Stopped before it could start: exit code 0 as well, without waiting for the broker to come."""
    lose(own_broker, loss)
    with WorkerProcess(tmp_path, worker_toml(own_broker.bootstrap, fresh("early"))) as worker:
        worker.start(ready=False)
        await_port(worker)
        assert worker.stop(ENDS_S) == 0
