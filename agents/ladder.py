"""The rungs in order under one budget: each is told what remains, and the answer says which one gave it and why those above did not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
import structlog

from agents.rung_cost import RungCost
from schemas.events import InteractionEvent
from schemas.facts import Facts
from schemas.inference import Constraint, Message
from schemas.responses import UNDEGRADED, AnswerFinish, ModelRef, Outcome, Reason, Rung, Usage
from schemas.session import SessionState
from schemas.settings_ladder import Scenario

log = structlog.get_logger(__name__)

OVERRUN_S = 0.050
"""A cheap rung that has not come back so long after its time was up is ended: it is broken, and the event is this late at worst. Model rungs
are not held to it: they end by the same future, and a loop that is busy for so long must not cost a partial answer."""

COMPLAINT_S = 1.0
"""Between two log lines about one rung: at a thousand events a second a broken cache would fill the disk with one traceback."""


class Question(msgspec.Struct, frozen=True):
    """What a rung needs to know of an event."""

    event: InteractionEvent
    state: SessionState
    """The session as the prompt shows it: the event's own `state` merged, without turns that a person called wrong."""
    messages: tuple[Message, ...]
    max_tokens: int | None
    temperature: float
    stop: tuple[str, ...]
    constraint: Constraint | None
    locale: str
    tenant: str = "default"
    affinity: int = 0
    """The same for all events of a session: the replica whose cache may hold its past."""
    scenario: Scenario = Scenario()
    """What the settings say of the event's scenario; all defaults when they do not name it."""
    facts: Facts = Facts()
    """What is known of the person, this event's own words among it."""
    at_ms: int = -1
    """When the event happened, Unix ms, not later than its arrival: what `tomorrow` is counted from."""
    shorter: Callable[[], Iterator[tuple[Message, ...]]] | None = None
    """Ever shorter prompts, for a model that could not read the whole one in time."""
    behind_s: float = 0.0
    """How long events wait for this worker itself, 0 while they hardly do: what a model costs then, everybody else pays."""


class ModelTimes(msgspec.Struct, frozen=True):
    """Seconds that a model rung spent waiting, reading the prompt and writing."""

    queue: float = 0.0
    prefill: float = 0.0
    generate: float = 0.0


class Given(msgspec.Struct, frozen=True):
    """A rung's answer."""

    outcome: Outcome
    text: str
    data: Any = None
    finish_reason: AnswerFinish | None = None
    model: ModelRef | None = None
    usage: Usage = Usage()
    times: ModelTimes = ModelTimes()
    reason: Reason | None = None
    wasted: int = 0
    """Tokens made beyond those delivered."""
    why: str = ""
    """What stands in `rungs`: the rule's name, the age of a kept answer; empty: how it finished."""
    shortened: bool = False
    """From a prompt that was made shorter for want of time: good enough for this event, and not to be kept for others."""


class Declined(msgspec.Struct, frozen=True):
    """A rung's refusal: `verdict` is `skipped` before any work, `failed` or `cut` after it. `reason` is what the person's answer would say."""

    verdict: str
    why: str
    reason: Reason | None
    times: ModelTimes = ModelTimes()
    wasted: int = 0
    """Tokens made for nothing."""


class Contradicted(msgspec.Struct, frozen=True):
    """An answer that may not go out, and the question with a reminder, for the one other try that a walk has."""

    declined: Declined
    again: Question


class Budget(Protocol):
    """What remains for an event; its due may be pulled forward while a rung works."""

    stop: asyncio.Future[Any]
    stop_at: float


class RungProtocol(Protocol):
    """One way to answer. It returns within the budget: once `budget.stop` is done it has the time of one loop turn."""

    name: str
    floor_s: float
    """Seconds below which it is not worth trying; what it takes beyond is measured. 0: it knows better itself what fits, as a model's scheduler does."""

    @property
    def label(self) -> str:
        """What metrics call it; from configuration, never from an event."""

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """Answer, or decline and say why; never raises for what can be expected."""

    def ended(self, question: Question, given: Given | None) -> None:
        """The walk that asked this rung is over: with what was given in the end, by whichever rung, or None when nobody waits any more. Called once."""


class Walk(msgspec.Struct, frozen=True):
    """How an event came down the ladder."""

    given: Given
    rungs: tuple[Rung, ...]
    wasted: tuple[tuple[str, int], ...] = ()
    """Tokens made and not delivered, by the model's label."""


class Degraded(Protocol):
    """What answers in place of the default: the rules that are for that alone."""

    def degraded(self, question: Question) -> Given | None:
        """At once; None when no rule is for this question."""


Look = Callable[[Question, Given], Given | Contradicted]
"""The last look at an answer before it is taken: as it is, mended, or refused. Pure and short."""

OnRung = Callable[[Rung, Reason | None], None]
"""Told of each step of each walk, for the figures."""


class Ladder:
    """Walks its rungs; what it falls back on is in hand before a rung starts that takes longer than the rest."""

    def __init__(self, rungs: tuple[RungProtocol, ...], *, insurance: Degraded | None = None, on_rung: OnRung | None = None, look: Look | None = None) -> None:
        self._places = tuple(_Place(rung) for rung in rungs)
        self._has_models = any(place.cost is None for place in self._places)
        self._insurance = insurance
        self._look = look
        self._on_rung = on_rung

    async def walk(self, question: Question, budget: Budget, default_text: str) -> Walk:
        """The first answer that a rung gives in time and that may go out.

        One attempt a rung, and one more in the whole walk, for a model whose answer contradicted what is known: no retry multiplies a time-out.
        """
        descent = _Descent(question, budget, default_text, self._look, has_models=self._has_models)
        try:
            await self._descend(descent)
        finally:
            descent.tell_rungs()
        walk = descent.result()
        if self._on_rung is not None:
            for rung, reason in descent.steps:
                self._on_rung(rung, reason)
        return walk

    async def _descend(self, descent: _Descent) -> None:
        for place in self._places:
            if place.cost is None and not descent.insured:
                descent.insure(self._insurance)
            if await descent.ask(place):
                return
        if not descent.insured:
            descent.insure(self._insurance)
        descent.fall_back()


class _Place:
    """A rung in its ladder, with what it costs and a watch on how it behaves."""

    def __init__(self, rung: RungProtocol) -> None:
        self.rung = rung
        self.cost = RungCost(rung.floor_s) if rung.floor_s > 0 else None
        self._quiet_until = 0.0

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """A rung that raises, or does not come back, has a bug: it costs the event this rung, and the walk goes on."""
        try:
            if self.cost is None:
                return await self.rung.answer(question, budget)
            return await self._bounded(question, budget)
        except Exception as error:  # the edge of one rung
            self._complain("a rung failed")
            return Declined("failed", f"a bug of this rung: {type(error).__name__}", None)

    async def _bounded(self, question: Question, budget: Budget) -> Given | Declined:
        limit = asyncio.timeout(None)
        back = False

        def hurry(_: asyncio.Future[Any]) -> None:
            if not back:  # the timer and the rung's end may meet in one turn of the loop, and a callback that is scheduled cannot be taken back
                limit.reschedule(asyncio.get_running_loop().time() + OVERRUN_S)

        try:
            async with limit:
                budget.stop.add_done_callback(hurry)
                try:
                    return await self.rung.answer(question, budget)
                finally:
                    back = True
                    budget.stop.remove_done_callback(hurry)
        except TimeoutError:
            if not limit.expired():
                raise
            self._complain("a rung did not come back")
            return Declined("failed", "it did not come back when its time was up", None)

    def _complain(self, what: str) -> None:
        """With the traceback, but seldom: each event meets the same bug, and they are counted elsewhere."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + COMPLAINT_S
            log.exception(what, rung=self.rung.name)


class _Descent:
    """One walk: what was tried, what came of it, and what is given when nothing else is."""

    def __init__(self, question: Question, budget: Budget, default_text: str, look: Look | None = None, *, has_models: bool = True) -> None:
        self._look = look
        self._has_models = has_models
        self._has_asked_again = False
        self.steps: list[tuple[Rung, Reason | None]] = []
        self.insured = False
        self._question = question
        self._budget = budget
        self._default_text = default_text
        self._instead: Given | None = None
        self._asked: list[RungProtocol] = []
        self._given: Given | None = None
        self._reason: Reason | None = None
        self._broken = False
        self._is_short = False
        """Whether time was short for a cheap rung. That is the answer's reason only when no better rung gives one: a model may refuse for another."""
        self._times = ModelTimes()
        self._wasted: list[tuple[str, int]] = []

    def insure(self, insurance: Degraded | None) -> None:
        """Find what is said instead of the default, before anything slow begins: at the deadline nothing is left to compute."""
        self.insured = True
        if insurance is None:
            return
        try:
            self._instead = insurance.degraded(self._question)
        except Exception:  # the edge of one rung: its bug must not cost the event its default
            log.exception("the rules for degraded answers failed")

    async def ask(self, place: _Place, again: Question | None = None) -> bool:
        """Whether the rung at this place has answered; `again` is the question when it is asked for the second time."""
        question = again or self._question
        rung, cost, at = place.rung, place.cost, time.monotonic()
        if self._budget.stop.done():
            self._decline(rung, Declined("skipped", "no time left", "deadline"), 0.0)
            return False
        left = self._budget.stop_at - at
        if cost is not None and (needed := cost.needed(at)) > left:
            self._is_short = True
            self._decline(rung, Declined("skipped", f"needs {_ms(needed):g} ms, {_ms(max(0.0, left)):g} left", None), 0.0)
            return False
        if rung not in self._asked:
            self._asked.append(rung)
        result = await place.answer(question, self._budget)
        now = time.monotonic()
        spent = now - at
        if cost is not None:
            waited = result.times.queue + result.times.prefill + result.times.generate  # for somebody else's answer: not what the rung costs
            cost.note(max(0.0, spent - waited), now)
        if result.wasted:
            self._wasted.append((rung.label, result.wasted))
        if isinstance(result, Declined):
            self._decline(rung, result, spent)
            return False
        looked = self._look_at(result)
        if isinstance(looked, Contradicted):
            return await self._refuse(place, looked, spent)
        self._answer(rung.name, looked, spent)
        return True

    def _look_at(self, given: Given) -> Given | Contradicted:
        if self._look is None:
            return given
        try:
            return self._look(self._question, given)
        except Exception:  # the edge of the check: its bug must not cost the event an answer that is most likely right
            log.exception("an answer could not be checked")
            return given

    async def _refuse(self, place: _Place, refused: Contradicted, spent: float) -> bool:
        """An answer that may not go out; a model may try once more, and whether there is time for it its scheduler knows."""
        rung, declined = place.rung, refused.declined
        self._decline(rung, declined, spent)
        if declined.wasted:
            self._wasted.append((rung.label, declined.wasted))
        if place.cost is not None or self._has_asked_again or self._budget.stop.done():
            return False
        self._has_asked_again = True
        return await self.ask(place, refused.again)

    def fall_back(self) -> None:
        """No rung has answered: a degraded rule, else the default."""
        unnamed: Reason | None = "engine_unavailable" if self._has_models else None  # a ladder without models has ended where it was meant to
        reason = self._reason or ("deadline" if self._is_short else "engine_error" if self._broken else unnamed)
        if self._instead is not None:
            self._answer("rules", self._instead, 0.0)
        else:
            self._answer("default", Given("default", self._default_text, reason=reason), 0.0)

    def tell_rungs(self) -> None:
        """However the walk ended, each rung that was asked hears of it once. An answer that the person has withdrawn is nobody's."""
        withdrawn = self._budget.stop.done() and (self._budget.stop.cancelled() or self._budget.stop.result() != "deadline")
        given = None if withdrawn else self._given
        for rung in self._asked:
            try:
                rung.ended(self._question, given)
            except Exception:  # the edge of one rung: the others wait to hear it too
                log.exception("a rung failed when its walk had ended", rung=rung.name)

    def result(self) -> Walk:
        """The walk, once it has an answer."""
        if self._given is None:
            msg = "a walk ends with an answer"
            raise AssertionError(msg)
        return Walk(self._given, tuple(rung for rung, _ in self.steps), tuple(self._wasted))

    def _answer(self, name: str, given: Given, spent: float) -> None:
        """A degraded answer says why the better rungs did not give theirs, unless it has a reason of its own."""
        reason = given.reason
        if given.outcome in UNDEGRADED:
            reason = None
        elif reason is None:
            reason = self._reason
        self._given = msgspec.structs.replace(given, reason=reason, times=_sum(self._times, given.times))
        self._note(Rung(name, "answered", _ms(spent), given.why or given.finish_reason or ""), reason)

    def _decline(self, rung: RungProtocol, declined: Declined, spent: float) -> None:
        self._reason = self._reason or declined.reason
        self._broken = self._broken or (declined.reason is None and declined.verdict == "failed")
        self._note(Rung(rung.name, declined.verdict, _ms(spent), declined.why), declined.reason)
        self._times = _sum(self._times, declined.times)

    def _note(self, rung: Rung, reason: Reason | None) -> None:
        self.steps.append((rung, reason))


def _sum(one: ModelTimes, other: ModelTimes) -> ModelTimes:
    return ModelTimes(one.queue + other.queue, one.prefill + other.prefill, one.generate + other.generate)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
