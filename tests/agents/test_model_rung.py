"""Model rungs on real scripted engines: what a silent, lost, failing or late one costs the event, the rung below, and the events after it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from agents.engines import ModelRungs
from agents.ladder import Ladder, Question, Walk
from agents.runtime.supervisor import Engine
from schemas.events import InteractionEvent
from schemas.inference import Constraint, Message
from schemas.session import SessionState
from schemas.settings import Model, Settings
from schemas.settings_ladder import Breaker, Scenario
from schemas.settings_ladder import Ladder as LadderSettings
from tests.agents.runtime.engines import pid_of, running, scripted_spec, send_signal, until
from tests.support import run

MAIN = {"max_batch": 8, "token_ms": 10, "max_tokens": 1000}
FALLBACK = {"name": "fallback", "text": "From the second one.", "max_tokens": 8}
ENTRIES = (Model(engine="scripted", name="main"), Model(engine="scripted", name="fallback"))
BREAKER = Breaker(failures=2, window=4, cooldown_ms=50, max_cooldown_ms=100)


def question(text: str, *, max_tokens: int = 4, constraint: Constraint | None = None, scenario: Scenario | None = None) -> Question:
    """One that needs nothing but a model."""
    event = InteractionEvent(event_id="e", session_id="s", text=text, scenario="shop")
    return Question(event, SessionState(), (Message("user", text),), max_tokens, 0.0, (), constraint, "en", scenario=scenario or Scenario())


class Time:
    """A budget of so many seconds, with the timer that ends it."""

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[Any] = loop.create_future()
        self.stop_at = time.monotonic() + seconds
        self._timer = loop.call_later(seconds, self.end)

    def end(self) -> None:
        """The time is up."""
        self._timer.cancel()
        if not self.stop.done():
            self.stop.set_result("deadline")


class Pair:
    """A main model and its fallback as a ladder, and what their breakers said."""

    def __init__(self, main: Engine, fallback: Engine) -> None:
        self.main, self.fallback = main, fallback
        self.told: list[tuple[str, str]] = []
        self.settings = Settings(models=ENTRIES, breaker=BREAKER, ladder=LadderSettings(rungs=("main", "fallback", "default")))
        rungs = ModelRungs(self.settings, (main, fallback), lambda name, state: self.told.append((name, state)))
        self.rungs = tuple(rungs.of(self.settings.ladder.rungs).values())
        self.ladder = Ladder(self.rungs)

    async def ask(self, text: str, seconds: float, **options: Any) -> Walk:
        """One event down the ladder; its time is over when it is answered."""
        budget = Time(seconds)
        try:
            return await self.ladder.walk(question(text, **options), budget, "Sorry.")
        finally:
            budget.end()

    def main_states(self) -> list[str]:
        """What the main model's breaker went through."""
        return [state for name, state in self.told if name == "main"]


@asynccontextmanager
async def pair(main: dict[str, Any] | None = None, fallback: dict[str, Any] | None = None) -> AsyncIterator[Pair]:
    """Both engines, started."""
    async with running(scripted_spec(**{**MAIN, **(main or {})})) as first, running(scripted_spec(**{**FALLBACK, **(fallback or {})})) as second:
        yield Pair(first, second)


def way(walk: Walk) -> list[tuple[str, str]]:
    """The rungs with their verdicts."""
    return [(rung.rung, rung.verdict) for rung in walk.rungs]


def test_a_silent_engine_does_not_eat_the_fallbacks_time() -> None:
    """An admitted event leaves a stopped engine while the other one still makes it, and events after it do not wait for it at all."""

    async def scenario() -> None:
        async with pair() as both:
            send_signal(both.main, signal.SIGSTOP)
            walk = await both.ask("one", 1.5)
            assert (walk.given.outcome, walk.given.text) == ("fallback_model", "From the second one.")
            assert way(walk) == [("main", "failed"), ("fallback", "answered")]
            assert (walk.rungs[0].why, walk.rungs[0].ms < 1200) == ("the engine gives no sign of life", True)
            walk = await both.ask("two", 1.5)
            assert (walk.given.outcome, walk.rungs[0].verdict) == ("fallback_model", "skipped")
            assert both.main_states() == ["closed", "open"]
            walk = await both.ask("three", 1.5)
            assert walk.rungs[0].why.startswith("breaker open for ")
            send_signal(both.main, signal.SIGKILL)
            await until(lambda: both.main.restarts == 1 and both.main.ready)
            walk = await both.ask("four", 1.5)
            assert walk.given.outcome == "model"
            assert both.main_states() == ["closed", "open", "half_open", "closed"]

    run(scenario())


def test_a_silent_engine_is_waited_for_when_nothing_else_would_make_it() -> None:
    """The other model is too slow for what is left: the event keeps its place and takes what the first one has by its due."""

    async def scenario() -> None:
        async with pair(fallback={"token_ms": 1000}) as both:
            send_signal(both.main, signal.SIGSTOP)
            walk = await both.ask("one", 0.8)
            assert way(walk) == [("main", "cut"), ("fallback", "skipped"), ("default", "answered")]
            assert walk.given.reason == "deadline"

    run(scenario())


def test_finding_out_that_a_model_is_too_slow_leaves_the_fallback_its_time() -> None:
    """An event that tries a main model which cannot make it is still answered by the other one, and the next try comes later and later."""

    async def scenario() -> None:
        async with pair(main={"token_ms": 100, "min_tokens": 40, "max_tokens": 64}) as both:
            ways = []
            for number in range(3):
                await asyncio.sleep(1.05)
                walk = await both.ask(f"question {number}", 0.9, max_tokens=64)
                assert walk.given.outcome == "fallback_model"
                ways.append(walk.rungs[0].verdict)
            assert ways == ["cut", "skipped", "cut"]

    run(scenario())


def test_a_usable_part_is_kept() -> None:
    """Who has enough of an answer when the engine falls silent is given that, by the main model."""

    async def scenario() -> None:
        async with pair({"hang_ms": 5000}) as both:
            asking = asyncio.ensure_future(both.ask("one", 1.2, max_tokens=1000))
            await until(lambda: both.main.running_requests == 1)
            began = time.monotonic()
            await until(lambda: time.monotonic() - began > 0.3)
            send_signal(both.main, signal.SIGSTOP)
            walk = await asking
            assert (walk.given.outcome, walk.given.usage.completion_tokens >= 6) == ("partial", True)
            assert way(walk) == [("main", "answered")]

    run(scenario())


def test_a_lost_engine_opens_the_breaker_until_a_new_one_is_there() -> None:
    """No event waits for it, and the first one after the restart is answered by it."""

    async def scenario() -> None:
        async with pair() as both:
            before = pid_of(both.main)
            send_signal(both.main, signal.SIGKILL)
            await until(lambda: not both.main.ready)
            walk = await both.ask("one", 1.0)
            assert (walk.given.outcome, walk.rungs[0].why) == ("fallback_model", "no engine is ready")
            await until(lambda: both.main.ready)
            assert pid_of(both.main) != before
            assert (await both.ask("two", 1.0)).given.outcome == "model"
            assert both.main_states() == ["closed", "open", "half_open", "closed"]

    run(scenario())


def test_an_error_of_one_prompt_is_tried_once_a_model_and_says_nothing_about_it() -> None:
    """However often a person sends it, it costs one attempt a rung, and the model stays there for others."""

    async def scenario() -> None:
        async with pair() as both:
            for _ in range(8):
                walk = await both.ask("[[raise]]", 0.2)
                assert way(walk) == [("main", "failed"), ("fallback", "failed"), ("default", "answered")]
                assert (walk.given.outcome, walk.given.reason) == ("default", "engine_error")
            assert both.told == [("main", "closed"), ("fallback", "closed")]
            assert (await both.ask("fine", 1.0)).given.outcome == "model"

    run(scenario())


def test_a_model_that_is_late_again_and_again_is_left_alone_and_comes_back_by_itself() -> None:
    """Half of the recent answers in vain opens it; after the pause one event tries, and its success closes it."""

    async def scenario() -> None:
        async with pair() as both:
            for _ in range(2):
                walk = await both.ask("[[delay=5000]]", 0.1)
                assert (walk.rungs[0].verdict, walk.given.reason) == ("cut", "deadline")
            assert both.main_states() == ["closed", "open"]
            walk = await both.ask("fine", 1.0)
            assert walk.given.outcome == "fallback_model"
            await until(lambda: both.rungs[0].could_answer(question("fine"), 1.0))
            assert (await both.ask("fine", 1.0)).given.outcome == "model"
            assert both.main_states() == ["closed", "open", "half_open", "closed"]

    run(scenario())


def test_time_that_others_took_is_not_the_models_lateness() -> None:
    """A due that a later event pulled forward, and a form that nobody could foresee the length of, open nothing."""

    async def scenario() -> None:
        async with pair() as both:
            for _ in range(4):
                budget = Time(5.0)
                walking = asyncio.ensure_future(both.ladder.walk(question("[[delay=5000]]"), budget, "Sorry."))
                await until(lambda: both.main.open_requests == 1)
                budget.stop_at = time.monotonic()
                budget.end()
                assert way(await walking)[0] == ("main", "cut")
                await until(lambda: both.main.open_requests == 0)
                walk = await both.ask("[[delay=5000]]", 0.3, constraint=Constraint(regex="a+"))
                assert walk.rungs[0].verdict in ("cut", "skipped")
            assert both.main_states() == ["closed"]

    run(scenario())


def test_both_models_gone_is_one_default_in_time() -> None:
    """Two rungs, two looks, one answer, and nothing is tried again."""

    async def scenario() -> None:
        async with pair() as both:
            for engine in (both.main, both.fallback):
                send_signal(engine, signal.SIGSTOP)
            walk = await both.ask("one", 0.2)
            assert [rung.rung for rung in walk.rungs] == ["main", "fallback", "default"]
            assert walk.rungs[0].verdict in ("cut", "failed")  # whether its silence or the due is noticed first
            assert (walk.rungs[1].verdict in ("cut", "skipped"), walk.given.outcome) == (True, "default")
            await until(lambda: both.main.silent and both.fallback.silent)
            walk = await both.ask("two", 0.2)
            assert (walk.given.outcome, len(walk.rungs)) == ("default", 3)

    run(scenario())


def test_one_breaker_a_model_whichever_ladders_use_it() -> None:
    """What one scenario's ladder learnt of a model holds for the others; the first model of each ladder is its main one."""

    async def scenario() -> None:
        async with pair() as both:
            rungs = ModelRungs(both.settings, (both.main, both.fallback))
            one, other = rungs.of(("rules", "main", "fallback", "default")), rungs.of(("fallback", "main"))
            assert list(other) == ["fallback", "main"]
            ladders = [Ladder(tuple(one.values())), Ladder(tuple(other.values()))]
            for _ in range(2):
                await ladders[0].walk(question("[[delay=5000]]"), Time(0.1), "Sorry.")
            assert not other["main"].could_answer(question("fine"), 60.0)
            budget = Time(1.0)
            assert (await ladders[1].walk(question("fine"), budget, "Sorry.")).given.outcome == "model"
            budget.end()

    run(scenario())


def test_the_scenario_says_who_wants_the_model() -> None:
    """Priority and weight come from the settings; a name that they do not know is not kept apart, since people can make up any number."""

    async def scenario() -> None:
        async with pair() as both:
            named = both.rungs[0]._wanted(question("hi", scenario=Scenario(priority=8, weight=2.0)))
            assert (named.lane, named.priority, named.weight) == ("shop", 8, 2.0)
            unknown = both.rungs[0]._wanted(msgspec.structs.replace(question("hi"), tenant="t"))
            assert (unknown.lane, unknown.priority, unknown.weight, unknown.tenant) == ("", 5, 1.0, "t")

    run(scenario())


def test_models_are_left_alone_while_events_wait_for_the_worker() -> None:
    """In a flood no engine is asked, whoever is free, the answer says `overload`, and neither breaker hears of it; who has time can wait and is."""

    async def scenario() -> None:
        async with pair() as both:
            budget = Time(1.5)
            walk = await both.ladder.walk(msgspec.structs.replace(question("one"), behind_s=0.42), budget, "Sorry.")
            budget.end()
            assert way(walk) == [("main", "skipped"), ("fallback", "skipped"), ("default", "answered")]
            assert walk.rungs[0].why == "events wait for this worker, 420 ms by now"
            assert walk.given.reason == "overload"
            assert both.told in ([], [("main", "closed"), ("fallback", "closed")])
            budget = Time(30.0)
            walk = await both.ladder.walk(msgspec.structs.replace(question("two"), behind_s=0.42), budget, "Sorry.")
            budget.end()
            assert walk.given.outcome == "model"

    run(scenario())


def test_a_text_longer_than_its_schema_allows_is_never_sent() -> None:
    """The grammar leaves lengths out, so the finished answer is held against them."""
    schema = '{"type":"object","properties":{"note":{"type":"string","maxLength":30}}}'

    async def scenario() -> None:
        async with pair() as both:
            constraint = Constraint(None, None, schema)
            walk = await both.ask('[[say={"note": "short enough"}]]', 1.5, constraint=constraint, max_tokens=16)
            assert (walk.given.outcome, walk.given.data) == ("model", {"note": "short enough"})
            walk = await both.ask(f'[[say={{"note": "{"x" * 31}"}}]]', 1.5, constraint=constraint, max_tokens=16)
            assert walk.given.outcome == "default"
            assert walk.rungs[0].why == "a text is not as long as json_schema asks"

    run(scenario())
