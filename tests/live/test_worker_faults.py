"""Live tests of an engine that dies, hangs or fails while it answers: every event has its answer in time, once, and a new engine serves."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.harness import WorkerProcess, signal_process
from tests.live_support import Wire, assert_in_time, fresh, wired

pytestmark = pytest.mark.live

MODEL = {"max_batch": 4, "token_ms": 20, "max_tokens": 1000}
BUDGET_MS = 1500
BACK_S = 15.0
"""Generous: the scripted engine is back within a second."""


def message(text: str, *, ms: float = BUDGET_MS, tokens: int = 1000) -> dict[str, Any]:
    """A message that needs more time than it has, unless told otherwise."""
    return {"event_id": fresh("e"), "session_id": fresh("s"), "text": text, "deadline_ms": ms, "answer": {"max_tokens": tokens}}


def engine(worker: WorkerProcess) -> dict[str, Any]:
    """What `/readyz` says of the one engine."""
    (found,) = worker.readiness()["engines"]
    return dict(found)


def kill(_: Wire, pid: int) -> None:
    """The engine is gone at once."""
    signal_process(pid, signal.SIGKILL)


def freeze(_: Wire, pid: int) -> None:
    """The engine neither answers nor dies."""
    signal_process(pid, signal.SIGSTOP)


def scripted(command: str) -> Callable[[Wire, int], None]:
    """The engine does it itself, within a step."""

    def act(wire: Wire, _: int) -> None:
        wire.send(message(f"[[{command}]]"))

    act.__name__ = command
    return act


def lose(worker: WorkerProcess, wire: Wire, fault: Callable[[Wire, int], None]) -> None:
    """One fault while three requests are in the engine and three more come: all are answered in time, and a new engine serves."""
    before = engine(worker)
    caught = [message(f"caught {number}") for number in range(3)]
    for event in caught:
        wire.send(event)
    wire.await_that(lambda: worker.metric_sum("answerby_running_requests") >= 3, "three requests in the engine")
    fault(wire, before["pid"])
    worker.await_ready(BACK_S, ready=False)
    meanwhile = [message(f"meanwhile {number}", ms=400) for number in range(3)]
    for event in meanwhile:
        wire.send(event)
    worker.await_ready(BACK_S)
    for event in (*caught, *meanwhile):
        seen = wire.answer(event["event_id"])
        assert_in_time(seen)
        assert seen.body["outcome"] in ("default", "partial", "model")
        if seen.body["outcome"] == "default":
            assert seen.body["reason"] in ("engine_unavailable", "deadline", "overload")
    assert wire.ask(message("after", tokens=2, ms=5000))["outcome"] == "model"
    after = engine(worker)
    assert after["pid"] != before["pid"]
    assert (after["restarts"], after["state"]) == (before["restarts"] + 1, "ready")


def test_an_engine_lost_in_mid_generation_costs_no_answer(broker: str, tmp_path: Path) -> None:
    """Killed, stopped, gone by itself, stuck: events in its hands and those that come meanwhile are answered by their due, once, and readiness follows."""
    with wired(tmp_path, broker, fresh("faults"), models=[MODEL]) as (worker, wire):
        assert wire.ask(message("warm", tokens=2))["outcome"] == "model"
        pid = worker.pid
        faults = (kill, freeze, scripted("exit"), scripted("hang"))
        for fault in faults:
            lose(worker, wire, fault)
        assert worker.pid == pid
        assert worker.metric_sum("answerby_engine_restarts_total") == len(faults)
        assert worker.metric_sum("answerby_engine_up") == 1
        wire.await_no_lag()
        assert all(len(seen) == 1 for seen in wire.answers.values())
        assert not wire.dead


def test_a_fallback_answers_what_the_main_engine_loses(broker: str, tmp_path: Path) -> None:
    """A request that hangs with the main engine is answered by the next rung, says so, and says why the one above did not."""
    models = [MODEL, {"name": "fallback", "text": "From the second one."}]
    with wired(tmp_path, broker, fresh("fallback"), models=models) as (worker, wire):
        main, second = worker.readiness()["engines"]
        assert (main["name"], second["name"]) == ("main", "fallback")
        freeze(wire, main["pid"])
        body = wire.ask(message("slow", ms=15_000, tokens=4))
        assert (body["outcome"], body["degraded"], body["reason"]) == ("fallback_model", True, "engine_unavailable")
        assert body["model"]["name"] == "fallback"
        assert body["text"] == "From the second one."
        assert [rung["rung"] for rung in body["rungs"]] == ["main", "fallback"]
        assert body["rungs"][0]["verdict"] in ("failed", "skipped")  # left when it fell silent, or known to be silent when the event came
