"""A real engine process can be killed, stopped, hung and replaced, and the worker's side always ends in a value, in time, with nothing left."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import psutil
import pytest
import uvloop

from agents.runtime.ask import Ask, EngineFailed, Finished
from agents.runtime.dispatch import Wanted
from agents.runtime.frames import MAX_FRAME
from schemas.inference import Constraint
from tests.agents.runtime.engines import Recorder, finished, open_descriptors, pid_of, prompt, running, scripted_spec, send_signal, until
from tests.support import run

SLOW: dict[str, Any] = {"token_ms": 20.0}


def test_answer_comes_back_with_its_figures() -> None:
    """Text, reason, usage and times of a plain request."""

    async def scenario() -> None:
        async with running(scripted_spec(text="one two three", **SLOW)) as engine:
            outcome = await engine.ask(prompt("hello there", 4)).done()
            assert isinstance(outcome, Finished)
            assert (outcome.text, outcome.finish_reason) == ("one two three one", "length")
            assert (outcome.prompt_tokens, outcome.cached_tokens, outcome.completion_tokens) == (4, 0, 4)
            assert outcome.generate_ms >= 50
            status = engine.status()[0]
            assert (status.name, status.model, status.version, status.state, status.restarts) == ("main", "scripted", "1", "ready", 0)
            assert status.rss_bytes > 0

    run(scenario())


def test_same_under_uvloop() -> None:
    """The worker's loop is uvloop: answer, death, restart and stop work there too."""

    async def scenario() -> None:
        async with asyncio.timeout(30), running(scripted_spec(**SLOW)) as engine:
            assert isinstance(await engine.ask(prompt("hello", 2)).done(), Finished)
            open_ask = engine.ask(prompt("hello", 500))
            send_signal(engine, signal.SIGKILL)
            assert isinstance(await open_ask.done(), EngineFailed)
            await until(lambda: engine.ready)
            assert isinstance(await engine.ask(prompt("hello", 2)).done(), Finished)

    uvloop.run(scenario())


def test_text_arrives_word_by_word() -> None:
    """Iteration gives the words as they come, and together they are the text; the text so far can be read at any moment."""

    async def scenario() -> None:
        async with running(scripted_spec(text="a b c d", **SLOW)) as engine:
            ask = engine.ask(prompt("go", 4))
            seen = [(piece, ask.text, ask.tokens) async for piece in ask]
            assert seen == [("a", "a", 1), (" b", "a b", 2), (" c", "a b c", 3), (" d", "a b c d", 4)]
            assert isinstance(ask.outcome, Finished)

    run(scenario())


def test_due_cuts_by_itself() -> None:
    """An answer that never ends is cut at its due with what there is, and so is one that waits for a place."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=1, token_ms=10)) as engine:
            first = engine.ask(prompt("go", 100_000, seconds=0.3))
            second = engine.ask(prompt("go", 5, seconds=0.1))
            cut = await second.done()
            assert isinstance(cut, Finished)
            assert (cut.finish_reason, cut.text) == ("deadline", "")
            done = await first.done()
            assert isinstance(done, Finished)
            assert done.finish_reason == "deadline"
            assert done.text.startswith("This is a scripted answer.")
            assert done.completion_tokens == len(done.text.split())

    run(scenario())


def test_cancel_ends_one_request_and_no_other() -> None:
    """The cancelled one says so; its neighbour's text is what it would have been alone."""

    async def scenario() -> None:
        async with running(scripted_spec(text="a b c d e f", **SLOW)) as engine:
            first, second = engine.ask(prompt("go", 1000)), engine.ask(prompt("go", 6))
            await anext(aiter(first))
            first.cancel()
            cancelled = await first.done()
            assert isinstance(cancelled, Finished)
            assert cancelled.finish_reason == "cancelled"
            assert finished(await second.done()).text == "a b c d e f"
            first.cancel()

    run(scenario())


def test_delayed_request_waits_alone() -> None:
    """Its neighbour is answered meanwhile, and the engine is not taken for hung."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=1, hang_ms=400)) as engine:
            late = engine.ask(prompt("[[delay=1200]]", 2))
            assert isinstance(await engine.ask(prompt("go", 2)).done(), Finished)
            assert late.outcome is None
            assert isinstance(await late.done(), Finished)
            assert engine.status()[0].restarts == 0

    run(scenario())


def test_failing_request_fails_alone() -> None:
    """`[[raise]]` is an engine error of that request."""

    async def scenario() -> None:
        async with running(scripted_spec()) as engine:
            failed, fine = engine.ask(prompt("[[raise]]")), engine.ask(prompt("go"))
            outcome = await failed.done()
            assert isinstance(outcome, EngineFailed)
            assert outcome.reason == "engine_error"
            assert isinstance(await fine.done(), Finished)

    run(scenario())


@pytest.mark.parametrize("text", ["[[exit]]", "[[hang]]"])
def test_dead_or_hung_engine_ends_its_requests_and_comes_back(text: str) -> None:
    """Every open request ends as unavailable within 2 s; asking meanwhile fails at once; the next generation answers."""

    async def scenario() -> None:
        hooks = Recorder()
        async with running(scripted_spec(token_ms=5), hooks=hooks) as engine:
            old = pid_of(engine)
            open_ask = engine.ask(prompt("go", 10_000))
            await anext(aiter(open_ask))
            began = time.monotonic()
            bad = engine.ask(prompt(text))
            for ask in (bad, open_ask):
                outcome = await ask.done()
                assert isinstance(outcome, EngineFailed)
                assert outcome.reason == "engine_unavailable"
            assert time.monotonic() - began < 2.0
            assert open_ask.text
            assert not engine.ready
            refused = engine.ask(prompt("go")).outcome
            assert isinstance(refused, EngineFailed)
            await until(lambda: engine.ready)
            assert pid_of(engine) != old
            assert not psutil.pid_exists(old)
            assert isinstance(await engine.ask(prompt("go")).done(), Finished)
            assert engine.status()[0].restarts == len(hooks.restarts) == 1

    run(scenario())


@pytest.mark.parametrize("busy", [False, True])
def test_stopped_engine_is_killed_and_replaced(busy: bool) -> None:
    """SIGSTOP is a hang, idle or in mid-generation: found within 2 s, the stopped process is gone."""

    async def scenario() -> None:
        async with running(scripted_spec(**SLOW)) as engine:
            ask = engine.ask(prompt("go", 10_000)) if busy else None
            old = send_signal(engine, signal.SIGSTOP)
            began = time.monotonic()
            await until(lambda: not engine.ready)
            assert time.monotonic() - began < 2.0
            if ask is not None:
                assert isinstance(await ask.done(), EngineFailed)
            await until(lambda: engine.ready)
            assert not psutil.pid_exists(old)

    run(scenario())


def test_twenty_kills_leave_nothing_and_grow_nothing() -> None:
    """SIGKILL in mid-generation, twenty times: each request ends, each successor answers; descriptors and threads stay as they were."""

    async def scenario() -> None:
        hooks = Recorder()
        async with running(scripted_spec(token_ms=2), hooks=hooks) as engine:
            engine._replicas[0]._backoff.next_delay = lambda ready_s, silent_s=0.0: 0.0  # type: ignore[method-assign]  # twenty backoffs are minutes
            descriptors, threads = len(open_descriptors()), threading.active_count()
            for _ in range(20):
                ask = engine.ask(prompt("go", 10_000))
                await anext(aiter(ask))
                send_signal(engine, signal.SIGKILL)
                assert isinstance(await ask.done(), EngineFailed)
                await until(lambda: engine.ready)
                assert finished(await engine.ask(prompt("go", 3)).done()).text == "This is a"
            assert engine.status()[0].restarts == 20
            assert len(open_descriptors()) == descriptors
            assert threading.active_count() == threads

    run(scenario(), timeout_s=100)


def test_frame_cut_by_death_is_discarded() -> None:
    """Half of a 5 MB frame dies with its generation; the next one is read from its own first byte."""

    async def scenario() -> None:
        hooks = Recorder()
        async with running(scripted_spec(text="x" * 5_000_000), hooks=hooks) as engine:
            ask = engine.ask(prompt("go", 1))
            time.sleep(0.5)  # noqa: ASYNC251 -- the loop must stand still, so that the child fills the pipe and waits
            send_signal(engine, signal.SIGKILL)
            outcome = await ask.done()
            assert isinstance(outcome, EngineFailed)
            assert "inside a frame" in outcome.detail
            await until(lambda: engine.ready)
            assert len(finished(await engine.ask(prompt("go", 1)).done()).text) == 5_000_000

    run(scenario())


def test_full_pipe_is_a_hang_and_blocks_nobody() -> None:
    """A stopped engine that is sent more than its pipe holds is replaced; sending took no time."""

    async def scenario() -> None:
        async with running(scripted_spec()) as engine:
            send_signal(engine, signal.SIGSTOP)
            began = time.monotonic()
            asks = [engine.ask(prompt("x" * 1_000_000)) for _ in range(20)]
            assert time.monotonic() - began < 1.0
            for ask in asks:
                assert isinstance(await ask.done(), EngineFailed)
            await until(lambda: engine.ready)

    run(scenario())


def test_interrupt_and_terminate_are_the_workers_to_decide() -> None:
    """Ctrl-C and a service manager's stop reach the whole group; the engine goes on."""

    async def scenario() -> None:
        async with running(scripted_spec(**SLOW)) as engine:
            ask = engine.ask(prompt("go", 10))
            send_signal(engine, signal.SIGINT)
            send_signal(engine, signal.SIGTERM)
            assert isinstance(await ask.done(), Finished)
            assert engine.status()[0].restarts == 0

    run(scenario())


def test_replicas_share_the_load_and_fail_apart() -> None:
    """Requests go to the replica with the fewest; the death of one leaves the other's requests alone."""

    async def scenario() -> None:
        async with running(scripted_spec(0, **SLOW), scripted_spec(1, **SLOW)) as engine:
            asks = [engine.ask(prompt("go", 50)) for _ in range(4)]
            assert [status.running for status in engine.status()] == [2, 2]
            assert engine.open_requests == 4
            send_signal(engine, signal.SIGKILL)
            outcomes = [await ask.done() for ask in asks]
            assert [isinstance(outcome, Finished) for outcome in outcomes] == [False, True, False, True]
            assert engine.ready
            await until(lambda: all(status.state == "ready" for status in engine.status()))

    run(scenario())


def test_what_runs_and_what_waits_are_told_apart() -> None:
    """Requests in the batch, and those admitted that wait for a place in it; none are left when all have ended."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=2, waiting=3, **SLOW)) as engine:
            asks = [engine.offer(prompt("go", 5), Wanted(need=2, tenant="t")) for _ in range(4)]
            assert (engine.running_requests, engine.waiting_requests) == (2, 2)
            for ask in asks:
                assert isinstance(ask, Ask)
                await ask.done()
            await until(lambda: (engine.running_requests, engine.waiting_requests) == (0, 0))

    run(scenario())


def test_a_request_that_cannot_be_sent_takes_no_place() -> None:
    """One above the pipe's largest frame fails, and the batch of one is free for the next."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=1, waiting=0)) as engine:
            huge = engine.offer(prompt("go", 5, constraint=Constraint(json_schema=" " * (MAX_FRAME + 1))), Wanted(need=2, tenant="t"))
            assert isinstance(huge, Ask)
            assert isinstance(await huge.done(), EngineFailed)
            small = engine.offer(prompt("go", 5), Wanted(need=2, tenant="t"))
            assert isinstance(small, Ask)
            assert isinstance(await small.done(), Finished)

    run(scenario())


def test_what_waited_when_the_engine_died_had_no_engine() -> None:
    """It was not for want of a place: the reason is the same for the request that ran."""

    async def scenario() -> None:
        async with running(scripted_spec(max_batch=1, **SLOW)) as engine:
            asks = [engine.offer(prompt("go", 50), Wanted(need=2, tenant="t")) for _ in range(2)]
            assert (engine.running_requests, engine.waiting_requests) == (1, 1)
            send_signal(engine, signal.SIGKILL)
            outcomes = [await ask.done() for ask in asks if isinstance(ask, Ask)]
            assert [outcome.reason for outcome in outcomes if isinstance(outcome, EngineFailed)] == ["engine_unavailable"] * 2

    run(scenario())
