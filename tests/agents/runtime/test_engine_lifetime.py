"""An engine process from its start to its end: it stops in time, dies with its worker, and is begun again with patience."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psutil
import pytest

from agents.runtime.ask import Ask, EngineFailed, Finished
from agents.runtime.cpus import available_cores
from agents.runtime.dispatch import Wanted
from agents.runtime.engine_process import LOADING_NICE, Replacement, step_back
from agents.runtime.spec import EngineSpec, ResolvedModel
from agents.runtime.supervisor import BACKOFF_LONGEST_S, SERVED_S, Backoff, Engine
from schemas.errors import SetupError
from schemas.settings import Model
from tests.agents.runtime.engines import pid_of, prompt, running, scripted_spec, send_signal, until
from tests.support import run

SLOW: dict[str, Any] = {"token_ms": 20.0}


def test_stop_ends_requests_and_process_in_time() -> None:
    """Stop with work in flight, on a stopped process, and twice: bounded, everything ended."""

    async def scenario() -> None:
        for number in (None, signal.SIGSTOP):
            engine = Engine([scripted_spec(**SLOW)])
            await engine.start()
            ask = engine.ask(prompt("go", 10_000))
            pid = pid_of(engine)
            if number is not None:
                send_signal(engine, number)
            began = time.monotonic()
            await engine.stop()
            await engine.stop()
            assert time.monotonic() - began < 3.0
            assert isinstance(ask.outcome, EngineFailed)
            assert not psutil.pid_exists(pid)
            assert engine.state == "stopped"
            assert isinstance(engine.ask(prompt("go")).outcome, EngineFailed)

    run(scenario())


def test_stop_ends_what_waits_for_a_place() -> None:
    """A request that was admitted and has reached no engine yet ends as well."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=1, **SLOW)) as engine:
            asks = [engine.offer(prompt("go", 20), Wanted(need=2, tenant="t")) for _ in range(2)]
            assert all(isinstance(ask, Ask) for ask in asks)
        outcomes = [ask.outcome for ask in asks if isinstance(ask, Ask)]
        assert [type(outcome) for outcome in outcomes] == [EngineFailed, EngineFailed]

    run(scenario())


def test_stop_during_start_and_during_backoff() -> None:
    """An engine that is not up can be stopped as well."""

    async def scenario() -> None:
        engine = Engine([scripted_spec()])
        starting = asyncio.create_task(engine.start())
        await until(lambda: engine.status()[0].pid is not None)
        await engine.stop()
        with pytest.raises(SetupError, match="stopped"):
            await starting
        async with running(scripted_spec()) as other:
            for _ in range(2):
                await until(lambda: other.ready)
                send_signal(other, signal.SIGKILL)
                await until(lambda: not other.ready)

    run(scenario())


def test_model_that_cannot_load_is_one_line() -> None:
    """The first start fails with the reason and the way out; no process is left."""

    async def scenario() -> None:
        files = ResolvedModel("gone", "/nowhere/model", "1")
        engine = Engine([EngineSpec(Model(path="/nowhere/model"), files)])
        with pytest.raises(SetupError, match="model 'main' cannot start: no model at /nowhere/model; run `answerby models") as caught:
            await engine.start()
        assert "\n" not in str(caught.value)
        assert engine.status()[0].pid is None

    run(scenario())


def test_a_process_that_cannot_be_spawned_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory or no descriptors for a moment: the replacement comes when there are; at a start it is one line."""

    async def scenario() -> None:
        async with running(scripted_spec(**SLOW)) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(sys, "executable", "/nowhere/python")
                send_signal(engine, signal.SIGKILL)
                await until(lambda: engine.status()[0].restarts >= 2)
                other = Engine([scripted_spec()])
                with pytest.raises(SetupError, match="cannot be spawned"):
                    await other.start()
            await until(lambda: engine.ready)
            assert isinstance(await engine.ask(prompt("go", 2)).done(), Finished)

    run(scenario())


def test_engine_dies_with_its_worker() -> None:
    """A worker killed with SIGKILL takes even a stopped engine along, which would never see the pipe's end."""
    script = """
import asyncio, sys
from tests.agents.runtime.engines import pid_of, running, scripted_spec
async def main():
    async with running(scripted_spec()) as engine:
        print(pid_of(engine), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        engine = psutil.Process(int(worker.stdout.readline()))
        engine.suspend()
        worker.kill()
        worker.wait(10)
        assert psutil.wait_procs([engine], timeout=10)[1] == []


def test_pipe_does_not_reach_other_children() -> None:
    """A program that the worker starts later holds no end of the pipe, so the engine's death is seen at once."""

    async def scenario() -> None:
        async with running(scripted_spec()) as engine:
            other = await asyncio.create_subprocess_exec("sleep", "30", close_fds=False)
            try:
                began = time.monotonic()
                send_signal(engine, signal.SIGKILL)
                await until(lambda: not engine.ready)
                assert time.monotonic() - began < 1.0
            finally:
                other.kill()
                await other.wait()

    run(scenario())


def test_prints_of_the_child_are_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """What a library prints goes to the log, bounded, and never into the pipe."""
    caplog.set_level("INFO", "answerby.engine")
    environment = os.environ.get("PYTHONVERBOSE")
    os.environ["PYTHONVERBOSE"] = "1"
    try:

        async def scenario() -> None:
            async with running(scripted_spec()) as engine:
                assert isinstance(await engine.ask(prompt("go")).done(), Finished)

        run(scenario())
    finally:
        if environment is None:
            del os.environ["PYTHONVERBOSE"]
        else:
            os.environ["PYTHONVERBOSE"] = environment
    lines = [record.getMessage() for record in caplog.records]
    assert any("main/0: import" in line for line in lines)
    assert len(lines) < 500


def test_backoff_is_none_then_doubles_to_its_bound_and_heals() -> None:
    """At once, then half a second doubling up to the longest; an engine that has served starts over."""
    backoff = Backoff()
    assert [backoff.next_delay(0.0) for _ in range(8)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, BACKOFF_LONGEST_S, BACKOFF_LONGEST_S]
    assert backoff.next_delay(SERVED_S) == 0.0
    assert backoff.next_delay(1.0) == 0.5


def test_an_engine_that_is_killed_again_and_again_while_it_serves_is_replaced_at_once() -> None:
    """Every one of the generations that served; one that died while it loaded is the only one to be waited for."""
    backoff = Backoff()
    assert [backoff.next_delay(ready_s) for ready_s in (SERVED_S, 6.5, 40.0, 0.0, 7.0)] == [0.0, 0.0, 0.0, 0.5, 0.0]


def test_an_engine_that_hangs_as_soon_as_it_is_ready_has_not_served() -> None:
    """However long it takes to notice: its silence is no service."""
    backoff = Backoff()
    assert [backoff.next_delay(ready_s, silent_s=ready_s - 0.1) for ready_s in (1.8, 10.0, 60.0)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("cores", [None, available_cores().ids])
def test_a_replacement_serves_where_and_as_urgently_as_the_first_process(cores: tuple[int, ...] | None) -> None:
    """It loads elsewhere and modestly, and then every thread is on the engine's own core and the one that serves is no less urgent than the worker."""

    async def scenario() -> None:
        own = available_cores().ids[-1:]
        engine = Engine([msgspec.structs.replace(scripted_spec(**SLOW), cpus=own)], loads_on=[cores])
        await engine.start()
        try:
            before = send_signal(engine, signal.SIGKILL)
            await until(lambda: engine.ready and pid_of(engine) != before)
            assert isinstance(await engine.ask(prompt("go", 2)).done(), Finished)
            pid = pid_of(engine)
            assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
            assert {tuple(os.sched_getaffinity(int(task))) for task in os.listdir(f"/proc/{pid}/task")} == {own}
        finally:
            await engine.stop()

    run(scenario())


def test_a_replacement_that_did_not_come_is_followed_by_one_that_takes_its_full_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modest loading may be too modest on a full machine; after one that served it is modest again."""

    async def scenario() -> None:
        engine = Engine([scripted_spec(**SLOW)], loads_on=[available_cores().ids])
        await engine.start()
        try:
            asked: list[tuple[int, ...] | None] = []
            for spawns in (False, True):
                with monkeypatch.context() as patch:
                    if not spawns:
                        patch.setattr(sys, "executable", "/nowhere/python")
                    before = engine.restarts
                    send_signal(engine, signal.SIGKILL)
                    await until(lambda least=before + (1 if spawns else 2): engine.restarts >= least)  # type: ignore[misc]
                await until(lambda: engine.ready)
                client = engine._replicas[0]._client
                assert client is not None
                assert isinstance(client._spec, Replacement)
                asked.append(client._spec.loads_on)
            assert asked == [None, available_cores().ids]
        finally:
            await engine.stop()

    run(scenario())


def test_what_loads_beside_others_steps_back_and_who_waits_for_it_does_not() -> None:
    """The loading thread and what it begins are less urgent and go anywhere they may; the thread that called keeps its right to the core."""
    ids = available_cores().ids
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def look() -> tuple[int, set[int]]:
        with ThreadPoolExecutor(1) as inner:
            return inner.submit(lambda: (os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), os.sched_getaffinity(0))).result()

    with ThreadPoolExecutor(1) as apart:
        apart.submit(step_back, ids[-1:]).result()
        assert apart.submit(look).result() == (min(19, before + LOADING_NICE), set(ids[-1:]))
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
    assert os.sched_getaffinity(0) == set(ids)
