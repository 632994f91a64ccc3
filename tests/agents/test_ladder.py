"""The way down the ladder: one attempt a rung, one budget, and an account of both."""

from __future__ import annotations

import asyncio
import time
from typing import Any

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

    def __init__(self) -> None:
        self.stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stop_at = time.monotonic() + 60


class Gives:
    """A rung that always comes to the same result; `ends` uses up the budget first."""

    floor_s = 0.0

    def __init__(self, name: str, result: Given | Declined, *, ends: bool = False) -> None:
        self.name = self.label = name
        self.asked = 0
        self._result = result
        self._ends = ends

    async def answer(self, _question: Question, budget: Any) -> Given | Declined:
        """Count, and answer."""
        self.asked += 1
        if self._ends:
            budget.stop.set_result("deadline")
        return self._result

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Nothing to let go."""


def walk(*rungs: Gives) -> Walk:
    """Down the whole ladder with a fresh budget."""

    async def going() -> Walk:
        return await Ladder(rungs).walk(QUESTION, Time(), "Sorry.")

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
    """Nothing is there that could answer."""
    assert (walk().given.outcome, walk().given.reason) == ("default", "engine_unavailable")


def test_a_default_keeps_the_time_that_models_took() -> None:
    """What rungs spent before they failed is reported with the answer that was given instead."""
    failed = Declined("failed", "x", "engine_error", ModelTimes(1.0, 2.0, 3.0))
    assert walk(Gives("main", failed), Gives("fallback", failed)).given.times == ModelTimes(2.0, 4.0, 6.0)
