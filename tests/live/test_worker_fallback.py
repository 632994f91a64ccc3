"""Live tests of a main model with a fallback behind it: hung and killed again and again, both failing, and errors that another try would not mend."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.fallback import SCRIPTED, suffer
from bench.harness import signal_process
from tests.live_support import LATE_MS, WAIT_S, assert_in_time, fresh, wired

pytestmark = pytest.mark.live

LOAD_S = 100.0
"""A load beside another engine's work, on a machine that does other things too; alone it takes eight."""

MODELS: list[dict[str, Any]] = [{"name": name, **keys} for name, keys in SCRIPTED.items()]


def message(text: str, *, ms: float = 1000, tokens: int = 4) -> dict[str, Any]:
    """An event of its own session."""
    return {"event_id": fresh("e"), "session_id": fresh("s"), "text": text, "deadline_ms": ms, "answer": {"max_tokens": tokens}}


def way(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The rungs with their verdicts."""
    return [(rung["rung"], rung["verdict"]) for rung in body["rungs"]]


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_main_engine_hurt_again_and_again_costs_no_answer(broker: str, tmp_path: Path, number: signal.Signals) -> None:
    """Every event is answered in time, at least a third by the fallback model; the breaker opens, and closes by itself when the engine is back."""
    name = fresh("torment")
    with wired(tmp_path, broker, name, models=MODELS) as (worker, _):
        seen = asyncio.run(suffer(worker, broker, number, rate=8, seconds=4, budget_ms=800, prefix=f"{name}-", after_s=2.5))
    assert (seen["lost"], seen["repeats"]) == (0, 0)
    assert seen["lateness_max_ms"] <= LATE_MS
    assert seen["fallback_share"] >= 0.3, seen
    assert seen["engines_struck"] >= 1
    assert seen["breaker_open_after_s"] is not None
    assert seen["breaker_closed_after_ready_s"] is not None
    assert seen["outcomes_after"]["model"] > 0, seen


def test_both_models_failing_is_one_attempt_each_and_one_answer_in_time(broker: str, tmp_path: Path) -> None:
    """With 200 ms left and an error that another try would not mend: two attempts at most, the default, once; and the models stay there for others."""
    with wired(tmp_path, broker, fresh("both"), models=MODELS) as (worker, wire):
        wire.ask(message("warm"))
        ways = []
        for event in [message("[[raise]]", ms=200) for _ in range(8)]:
            wire.send(event)
            seen = wire.answer(event["event_id"])
            assert_in_time(seen)
            assert seen.body["outcome"] == "default"
            assert len(seen.body["rungs"]) <= 3
            ways.append(way(seen.body))
        assert [("main", "failed"), ("fallback", "failed"), ("default", "answered")] in ways  # a busy machine may leave some no time at all
        assert worker.metric_sum("answerby_breaker_opened_total") == 0
        assert wire.ask(message("fine"))["outcome"] == "model"
        assert all(len(seen) == 1 for seen in wire.answers.values())


def test_both_engines_hung_is_the_default_in_time(broker: str, tmp_path: Path) -> None:
    """Nothing is left but the default: each event gets it by its due, once, before and after the hang is noticed."""
    with wired(tmp_path, broker, fresh("hung"), models=MODELS) as (worker, wire):
        wire.ask(message("warm"))
        for engine in worker.readiness()["engines"]:
            signal_process(engine["pid"], signal.SIGSTOP)
        events = [message(f"question {number}", ms=400) for number in range(6)]
        for event in events:
            wire.send(event)
        for event in events:
            seen = wire.answer(event["event_id"])
            assert_in_time(seen)
            assert seen.body["outcome"] == "default"
            assert len(seen.body["rungs"]) == 3
        wire.await_that(lambda: all(engine["restarts"] for engine in worker.readiness()["engines"]), "both engines replaced")
        worker.await_ready(WAIT_S)
        assert all(len(seen) == 1 for seen in wire.answers.values())


def test_a_refused_event_is_the_fallbacks_and_the_worker_is_ready_with_either_engine(broker: str, tmp_path: Path) -> None:
    """What the main model has no room for is answered by the other one, which has a length of its own; the loss of one engine is no loss of readiness."""
    full = {**MODELS[0], "max_batch": 1, "waiting": 0}
    with wired(tmp_path, broker, fresh("refused"), models=[full, MODELS[1]]) as (worker, wire):
        wire.send(message("[[tokens=200]]", ms=5000, tokens=200))
        wire.await_that(lambda: worker.metric_sum("answerby_running_requests") == 1, "a request in the engine")
        body = wire.ask(message("no room", ms=3000, tokens=40))
        assert (body["outcome"], body["usage"]["completion_tokens"], body["finish_reason"]) == ("fallback_model", 12, "length")
        assert way(body) == [("main", "skipped"), ("fallback", "answered")]
        signal_process(worker.readiness()["engines"][0]["pid"], signal.SIGKILL)
        give_up = time.monotonic() + WAIT_S
        while (engines := worker.readiness()["engines"])[0]["state"] == "ready":
            assert time.monotonic() < give_up
        assert (engines[1]["state"], worker.readiness()["ready"]) == ("ready", True)


@pytest.mark.timeout(300)
def test_the_real_model_twice_the_second_one_shorter(broker: str, tmp_path: Path) -> None:
    """Two engines with the default model: the main one answers, and when it is gone the other one does, at its own length, under the same budget.

    The one that comes for it has loaded modestly beside the other, and then serves as the first did.
    """
    small = {"engine": "openvino", "kv_cache_mb": 64}
    models = [{"name": "main", **small}, {"name": "fallback", "max_tokens": 8, **small}]
    with wired(tmp_path, broker, fresh("real"), models=models) as (worker, wire):
        assert wire.ask(message("What is the capital of France?", ms=30_000, tokens=12))["outcome"] == "model"
        signal_process(worker.readiness()["engines"][0]["pid"], signal.SIGKILL)
        wire.await_that(lambda: worker.readiness()["engines"][0]["state"] != "ready", "the loss is noticed")
        body = wire.ask(message("What is the capital of France?", ms=30_000, tokens=12))
        assert (body["outcome"], body["reason"]) == ("fallback_model", "engine_unavailable")
        assert 0 < body["usage"]["completion_tokens"] <= 8
        assert body["rungs"][0]["why"] == "no engine is ready"
        wire.await_that(lambda: all(engine["state"] == "ready" for engine in worker.readiness()["engines"]), "the main engine is back", LOAD_S)
        main, other = (psutil.Process(engine["pid"]) for engine in worker.readiness()["engines"])
        assert main.nice() == other.nice() == psutil.Process(worker.pid).nice()
        assert {frozenset(os.sched_getaffinity(thread.id)) for thread in main.threads()} == {frozenset(os.sched_getaffinity(main.pid))}
        wire.await_that(lambda: wire.ask(message("What is the capital of France?", ms=30_000, tokens=4))["outcome"] == "model", "the main model answers again")
