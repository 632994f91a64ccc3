"""The way down the ladder: one attempt a rung, one budget, and an account of both."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agents.ladder import Declined, Given, Ladder, ModelTimes, Question, Walk
from schemas.events import InteractionEvent
from schemas.inference import Message
from schemas.session import SessionState
from tests.support import run

QUESTION = Question(
    event=InteractionEvent(event_id="e", session_id="s", text="hi"),
    state=SessionState(),
    messages=(Message("user", "hi"),),
    max_tokens=None,
    temperature=0.0,
    stop=(),
    constraint=None,
    locale="en",
)


class Time:
    """A budget that ends when it is told to."""

    def __init__(self, left_s: float = 60.0) -> None:
        self.stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stop_at = time.monotonic() + left_s


class Gives:
    """A rung that always comes to the same result; `ends` uses up the budget first."""

    def __init__(self, name: str, result: Given | Declined | Exception, *, ends: bool = False, floor_s: float = 0.0) -> None:
        self.name = self.label = name
        self.floor_s = floor_s
        self.asked = 0
        self.told: list[Given | None] = []
        self._result = result
        self._ends = ends

    async def answer(self, _question: Question, budget: Any) -> Given | Declined:
        """Count, and answer."""
        self.asked += 1
        if self._ends:
            budget.stop.set_result("deadline")
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def ended(self, _question: Question, given: Given | None) -> None:
        """Keep what was told."""
        self.told.append(given)


class Hangs(Gives):
    """A rung that never comes back by itself."""

    async def answer(self, _question: Question, _budget: Any) -> Given | Declined:
        """Wait for what does not come."""
        self.asked += 1
        await asyncio.get_running_loop().create_future()
        raise AssertionError


class Rules:
    """Degraded rules that always, never, or wrongly match."""

    def __init__(self, result: Given | Exception | None) -> None:
        self.asked = 0
        self._result = result

    def degraded(self, _question: Question) -> Given | None:
        """Count, and answer."""
        self.asked += 1
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def miss(name: str, **more: Any) -> Gives:
    """A cache that has nothing."""
    return Gives(name, Declined("skipped", "miss", None), **{"floor_s": 0.001, **more})


def walk(*rungs: Gives, left_s: float = 60.0, rules: Rules | None = None) -> Walk:
    """Down the whole ladder with a fresh budget."""

    async def going() -> Walk:
        return await Ladder(rungs, insurance=rules).walk(QUESTION, Time(left_s), "Sorry.")

    return run(going())


def test_the_first_answer_is_the_answer() -> None:
    """Rungs below it are not asked, and those above say why they were not it."""
    rungs = (
        Gives("main", Declined("skipped", "no engine is ready", "engine_unavailable")),
        Gives("fallback", Given("fallback_model", "yes")),
        Gives("last", Given("rule", "no")),
    )
    done = walk(*rungs)
    assert (done.given.outcome, done.given.text, done.given.reason) == ("fallback_model", "yes", "engine_unavailable")
    assert [(rung.rung, rung.verdict, rung.why) for rung in done.rungs] == [("main", "skipped", "no engine is ready"), ("fallback", "answered", "")]
    assert [rung.asked for rung in rungs] == [1, 1, 0]


def test_when_all_decline_the_default_says_why_the_best_one_did() -> None:
    """The reason is the first rung's, each rung is asked once, and the default stands last."""
    rungs = (Gives("main", Declined("failed", "x", "engine_error")), Gives("fallback", Declined("skipped", "y", "overload")))
    done = walk(*rungs)
    assert (done.given.outcome, done.given.text, done.given.reason) == ("default", "Sorry.", "engine_error")
    assert [rung.rung for rung in done.rungs] == ["main", "fallback", "default"]
    assert [rung.asked for rung in rungs] == [1, 1]


def test_no_rung_is_asked_when_time_is_up() -> None:
    """What one rung used up is not given to the next."""
    rungs = (Gives("main", Declined("cut", "time ran out", "deadline"), ends=True), Gives("fallback", Given("fallback_model", "late")))
    done = walk(*rungs)
    assert (done.given.outcome, done.given.reason) == ("default", "deadline")
    assert [(rung.rung, rung.verdict) for rung in done.rungs] == [("main", "cut"), ("fallback", "skipped"), ("default", "answered")]
    assert rungs[1].asked == 0


def test_a_ladder_without_rungs_gives_the_default() -> None:
    """It ends where it was meant to: nothing failed that could be named, and no engine is blamed where none is."""
    assert (walk().given.outcome, walk().given.reason) == ("default", None)
    assert (walk(miss("cache")).given.outcome, walk(miss("cache")).given.reason) == ("default", None)


def test_a_default_keeps_the_time_that_models_took() -> None:
    """What rungs spent before they failed is reported with the answer that was given instead."""
    failed = Declined("failed", "x", "engine_error", ModelTimes(1.0, 2.0, 3.0))
    assert walk(Gives("main", failed), Gives("fallback", failed)).given.times == ModelTimes(2.0, 4.0, 6.0)


@pytest.mark.parametrize("outcome", ["model", "rule", "cache"])
def test_an_answer_that_is_not_degraded_has_no_reason(outcome: Any) -> None:
    """Whatever refused above it: the person got what they asked for."""
    done = walk(Gives("a", Declined("skipped", "full", "overload")), Gives("b", Given(outcome, "yes")))
    assert (done.given.outcome, done.given.reason) == (outcome, None)


def test_a_partial_answer_keeps_its_own_reason() -> None:
    """That its time ran out says more than why the rung above it was refused."""
    done = walk(Gives("a", Declined("skipped", "full", "overload")), Gives("b", Given("partial", "ye", reason="deadline")))
    assert done.given.reason == "deadline"


def test_a_semantic_hit_above_the_model_has_no_reason() -> None:
    """It is degraded, but nothing better had refused: the cache that missed gives no reason."""
    done = walk(miss("cache"), Gives("semantic_cache", Given("semantic_cache", "yes")))
    assert (done.given.outcome, done.given.reason) == ("semantic_cache", None)


def test_a_rung_that_does_not_fit_is_not_asked() -> None:
    """Its floor is above what is left: it is skipped, the account says so, and the model still gets its time."""
    slow, main = miss("cache", floor_s=0.5), Gives("main", Given("model", "yes"))
    done = walk(slow, main, left_s=0.2)
    assert (slow.asked, main.asked, done.given.outcome) == (0, 1, "model")
    assert done.rungs[0].verdict == "skipped"
    assert done.rungs[0].why.startswith("needs 500 ms, ")


def test_a_cheap_rung_without_time_is_not_why_a_better_one_did_not_answer() -> None:
    """The model's own refusal is; only when nobody else gives a reason it is the want of time."""
    slow = miss("cache", floor_s=0.5)
    assert walk(slow, Gives("main", Declined("skipped", "full", "overload")), left_s=0.2).given.reason == "overload"
    assert walk(slow, left_s=0.2).given.reason == "deadline"


def test_a_rung_that_was_slow_lately_is_not_asked_with_little_time_left() -> None:
    """What it took counts, not only what it declares."""

    class Slow(Gives):
        async def answer(self, question: Question, budget: Any) -> Given | Declined:
            until = time.monotonic() + 0.02
            while time.monotonic() < until:  # a rung that holds the loop
                pass
            return await super().answer(question, budget)

    async def going() -> tuple[Walk, Walk]:
        cache = Slow("cache", Declined("skipped", "miss", None), floor_s=0.001)
        ladder = Ladder((cache,))
        return await ladder.walk(QUESTION, Time(), "Sorry."), await ladder.walk(QUESTION, Time(0.01), "Sorry.")

    first, second = run(going())
    assert first.rungs[0].why == "miss"
    assert second.rungs[0].why.startswith("needs ")


def test_waiting_for_another_events_answer_is_not_what_a_rung_costs() -> None:
    """A cache that waited for the model's answer to the same question is as cheap as before."""

    class Waits(Gives):
        async def answer(self, question: Question, budget: Any) -> Given | Declined:
            began = time.monotonic()
            await asyncio.sleep(0.2)
            self._result = Declined("skipped", "no", None, ModelTimes(queue=time.monotonic() - began))
            return await super().answer(question, budget)

    async def going() -> Walk:
        ladder = Ladder((Waits("cache", Declined("skipped", "no", None), floor_s=0.001),))
        await ladder.walk(QUESTION, Time(), "Sorry.")
        return await ladder.walk(QUESTION, Time(0.1), "Sorry.")

    assert run(going()).rungs[0].why == "no"


def test_a_broken_rung_costs_the_event_that_rung_alone() -> None:
    """One that raises has failed, is named, and the next one answers."""
    done = walk(Gives("cache", ValueError("bug"), floor_s=0.001), Gives("main", ValueError("bug")), Gives("fallback", Given("fallback_model", "yes")))
    assert [(rung.rung, rung.verdict) for rung in done.rungs] == [("cache", "failed"), ("main", "failed"), ("fallback", "answered")]
    assert "ValueError" in done.rungs[0].why


def test_a_time_out_inside_a_rung_is_its_own_bug() -> None:
    """It is not taken for a rung that did not come back."""
    done = walk(Gives("cache", TimeoutError("its store"), floor_s=0.001), Gives("main", Given("model", "yes")))
    assert (done.rungs[0].verdict, done.rungs[0].why) == ("failed", "a bug of this rung: TimeoutError")


def test_when_everything_is_broken_the_default_is_said_once_with_a_reason() -> None:
    """Each rung is tried once: an error that nobody foresaw is not retried."""
    rungs = (Gives("cache", ValueError("bug"), floor_s=0.001), Gives("main", ValueError("bug")), Gives("fallback", RuntimeError("bug")))
    done = walk(*rungs)
    assert (done.given.outcome, done.given.text, done.given.reason) == ("default", "Sorry.", "engine_error")
    assert [rung.asked for rung in rungs] == [1, 1, 1]


def test_a_cache_that_hangs_costs_no_more_than_its_time() -> None:
    """It is ended soon after the budget, and the default is said."""

    async def going() -> Walk:
        budget = Time()
        walking = asyncio.ensure_future(Ladder((Hangs("cache", Given("cache", ""), floor_s=0.001),)).walk(QUESTION, budget, "Sorry."))
        await asyncio.sleep(0)
        budget.stop.set_result("deadline")
        return await walking

    done = run(going(), timeout_s=10)
    assert (done.given.outcome, done.rungs[0].verdict) == ("default", "failed")


def test_each_asked_rung_hears_once_how_the_walk_ended() -> None:
    """Whoever answered; those that were not asked hear nothing."""
    given = Given("model", "yes")
    rungs = (miss("cache"), miss("semantic_cache", floor_s=100.0), Gives("main", given), Gives("fallback", given))
    walk(*rungs)
    assert [rung.told for rung in rungs] == [[given], [], [given], []]


def test_rungs_hear_of_the_default_and_of_bugs_too() -> None:
    """A leader whose model failed must let go of those that wait for its answer."""
    rungs = (miss("cache"), Gives("main", ValueError("bug")))
    walk(*rungs)
    assert [[given and given.outcome for given in rung.told] for rung in rungs] == [["default"], ["default"]]


@pytest.mark.parametrize("withdrawn", ["cancelled", "abandoned"])
def test_an_answer_that_nobody_waits_for_is_told_as_none(withdrawn: str) -> None:
    """The person withdrew the event, or its partition went to another worker: nothing of it may be kept."""
    cache = miss("cache")

    class Withdrawn(Gives):
        async def answer(self, question: Question, budget: Any) -> Given | Declined:
            budget.stop.set_result(withdrawn)
            return await super().answer(question, budget)

    walk(cache, Withdrawn("main", Given("model", "yes")))
    assert cache.told == [None]


def test_a_walk_that_is_cancelled_tells_its_rungs() -> None:
    """The task that walks is ended at a stop: what was asked hears of it all the same, once."""

    async def going() -> tuple[Gives, Hangs]:
        cache, main = miss("cache"), Hangs("main", Given("model", ""))
        walking = asyncio.ensure_future(Ladder((cache, main)).walk(QUESTION, Time(), "Sorry."))
        while not main.asked:  # noqa: ASYNC110 -- the rung sets no event, and is asked at the next turn
            await asyncio.sleep(0)
        walking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walking
        return cache, main

    cache, main = run(going())
    assert (cache.told, main.told) == ([None], [None])


def test_a_degraded_rule_answers_instead_of_the_default() -> None:
    """When nothing better did: as a rule, not degraded, and `rungs` says that it stood in."""
    rules = Rules(Given("rule", "Open a ticket.", why="tickets"))
    done = walk(Gives("main", Declined("skipped", "full", "overload")), rules=rules)
    assert (done.given.outcome, done.given.text, done.given.reason) == ("rule", "Open a ticket.", None)
    assert [(rung.rung, rung.verdict, rung.why) for rung in done.rungs] == [("main", "skipped", "full"), ("rules", "answered", "tickets")]


def test_the_insurance_is_in_hand_before_a_model_begins() -> None:
    """At the deadline there is nothing left to compute."""
    rules = Rules(None)
    seen: list[int] = []

    class Looks(Gives):
        async def answer(self, question: Question, budget: Any) -> Given | Declined:
            seen.append(rules.asked)
            return await super().answer(question, budget)

    walk(Looks("cache", Declined("skipped", "miss", None), floor_s=0.001), Looks("main", Declined("cut", "late", "deadline")), rules=rules)
    assert seen == [0, 1]
    assert rules.asked == 1


def test_rules_that_break_leave_the_default() -> None:
    """The last resort depends on nothing."""
    done = walk(Gives("main", Declined("skipped", "full", "overload")), rules=Rules(ValueError("bug")))
    assert (done.given.outcome, done.given.reason) == ("default", "overload")


def test_every_step_is_counted_with_its_reason() -> None:
    """What stands in `rungs` stands in the figures too."""

    async def going() -> list[tuple[str, str, str | None]]:
        counted: list[tuple[str, str, str | None]] = []
        rungs = (miss("cache"), Gives("main", Declined("skipped", "full", "overload")))
        await Ladder(rungs, on_rung=lambda rung, reason: counted.append((rung.rung, rung.verdict, reason))).walk(QUESTION, Time(), "Sorry.")
        return counted

    assert run(going()) == [("cache", "skipped", None), ("main", "skipped", "overload"), ("default", "answered", "overload")]


def test_a_rung_that_ends_as_the_timer_does_leaves_no_error_behind() -> None:
    """The timer's word that comes in the same turn of the loop finds nothing left to hurry."""
    complaints: list[object] = []

    class Meets(Gives):
        floor_s = 0.0001

        async def answer(self, _question: Question, budget: Any) -> Given | Declined:
            """End in the turn in which the budget does."""
            budget.stop.set_result("deadline")
            return Declined("skipped", "nothing", None)

    async def going() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        await Ladder((Meets("cache", Declined("skipped", "", None)),)).walk(QUESTION, Time(), "Sorry.")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    run(going())
    assert not complaints
