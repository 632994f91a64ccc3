"""The rungs in order under one budget: each is told what remains, and the answer says which one gave it and why those above did not."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import msgspec

from schemas.events import InteractionEvent
from schemas.inference import Constraint, Message
from schemas.responses import AnswerFinish, ModelRef, Outcome, Reason, Rung, Usage
from schemas.session import SessionState
from schemas.settings_ladder import Scenario


class Question(msgspec.Struct, frozen=True):
    """What a rung needs to know of an event."""

    event: InteractionEvent
    state: SessionState
    """The session as the event finds it, the event's own `state` merged."""
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


class Declined(msgspec.Struct, frozen=True):
    """A rung's refusal: `verdict` is `skipped` before any work, `failed` or `cut` after it. `reason` is what the person's answer would say."""

    verdict: str
    why: str
    reason: Reason | None
    times: ModelTimes = ModelTimes()
    wasted: int = 0
    """Tokens made for nothing."""


class Budget(Protocol):
    """What remains for an event; its due may be pulled forward while a rung works."""

    stop: asyncio.Future[Any]
    stop_at: float


class RungProtocol(Protocol):
    """One way to answer. It returns within the budget: once `budget.stop` is done it has the time of one loop turn."""

    name: str
    floor_s: float
    """Seconds below which it is not worth trying; what it takes beyond is measured."""

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


class Ladder:
    """Walks its rungs; what it falls back on is the default that was built when the event arrived."""

    def __init__(self, rungs: tuple[RungProtocol, ...]) -> None:
        self._rungs = rungs

    async def walk(self, question: Question, budget: Budget, default_text: str) -> Walk:
        """The first answer that a rung gives in time; at most one attempt a rung, so that no retry multiplies a time-out."""
        taken: list[Rung] = []
        reason: Reason | None = None
        times = ModelTimes()
        wasted: list[tuple[str, int]] = []
        for rung in self._rungs:
            at = time.monotonic()
            if budget.stop.done():
                taken.append(Rung(rung.name, "skipped", 0.0, "no time left"))
                reason = reason or "deadline"
                continue
            result = await rung.answer(question, budget)
            spent = time.monotonic() - at
            if result.wasted:
                wasted.append((rung.label, result.wasted))
            if isinstance(result, Given):
                taken.append(Rung(rung.name, "answered", _ms(spent), result.finish_reason or ""))
                return Walk(result, tuple(taken), tuple(wasted))
            taken.append(Rung(rung.name, result.verdict, _ms(spent), result.why))
            reason = reason or result.reason
            times = ModelTimes(times.queue + result.times.queue, times.prefill + result.times.prefill, times.generate + result.times.generate)
        taken.append(Rung("default", "answered", 0.0, ""))
        given = Given("default", default_text, reason=reason or "engine_unavailable", times=times)
        return Walk(given, tuple(taken), tuple(wasted))


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
