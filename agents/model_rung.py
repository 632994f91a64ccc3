"""The rung that asks an engine: refuses before work what cannot be done in time, takes what is there when time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from agents.breaker import Breaker, Shut, Verdict
from agents.cut import cut_cleanly
from agents.ladder import Budget, Declined, Given, ModelTimes, Question
from agents.runtime.ask import Ask, EngineFailed, Finished, GivenUp
from agents.runtime.dispatch import Wanted
from agents.runtime.lengths import keeps_lengths
from agents.runtime.scheduler import Refused
from schemas.inference import Generate, Message
from schemas.responses import AnswerFinish, ModelRef, Outcome, Usage
from schemas.settings_ladder import Breaker as BreakerSettings
from schemas.settings_ladder import Scenario

if TYPE_CHECKING:
    from agents.runtime.supervisor import Engine

PIPE_S = 0.002
"""From the engine's last step to the worker's hands: it cuts so much before our timer, and its last words still count."""

CHOICE_TOKENS = 3
"""Labels that begin alike are told apart within a few tokens; taken for those whose first characters are not all different."""

FIRST_STRUCTURED_TOKENS = 16.0
"""How long an answer in a given form is before any was seen; then their mean, since a form that is not complete is worth nothing."""

LEARN_SHARE = 0.1
"""How much one answer moves that mean."""

CROWDED_SHARE = 0.2
"""Of the time that an event has left: when events wait for the worker longer than that, its model is left alone. A backlog of a second after a restart is
nothing to who has a minute, and the end to who has 800 ms: a flood is as bad as the budgets are short."""

LOOK_S = 0.05
"""How often a request that another model could still answer is looked at: a silent engine keeps it so much longer at worst."""

SILENT = "the engine gives no sign of life"

UNNAMED = Scenario()
"""What a scenario is to us that the settings do not name."""


class ModelRung:
    """One `[[models]]` entry as a rung."""

    floor_s = 0.0
    """The scheduler knows better what fits."""

    def __init__(
        self, engine: Engine, *, outcome: Literal["model", "fallback_model"], breaker: Breaker | None = None, relief: Sequence[ModelRung] = ()
    ) -> None:
        """`relief`: the model rungs below this one in its ladder, which a silent engine must not rob of their time."""
        self.name = engine.model.name
        self._engine = engine
        self._outcome: Outcome = outcome
        self._breaker = breaker or Breaker(BreakerSettings())
        self._relief = tuple(relief)
        self._structured_tokens = FIRST_STRUCTURED_TOKENS

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """Ask for as many tokens as are allowed, and come back by `budget.stop` at the latest."""
        now = time.monotonic()
        if question.behind_s > CROWDED_SHARE * max(0.0, budget.stop_at - now):
            return Declined("skipped", f"events wait for this worker, {question.behind_s * 1000:.0f} ms by now", "overload")
        ready = self._engine.ready
        self._breaker.see_engine(self._engine.restarts if ready else None)
        if not ready:
            return Declined("skipped", "no engine is ready", "engine_unavailable")
        leave = self._breaker.enter(now)
        if isinstance(leave, Shut):
            why = f"breaker open for {leave.wait_s * 1000:.0f} ms more" if leave.wait_s else "breaker half-open, another event is trying"
            return Declined("skipped", why, "engine_unavailable")
        verdict: Verdict = "mute"
        try:
            result, verdict = await self._attempt(question, budget)
        finally:
            self._breaker.leave(leave, verdict, time.monotonic())
        return result

    def could_answer(self, question: Question, seconds: float) -> bool:
        """Whether, asked now, it would likely have an answer within `seconds`; nobody is asked and nothing changes."""
        if not self._engine.ready or self._engine.silent or self._breaker.wait_s(time.monotonic()) is not None:
            return False
        return self._engine.forecast_s(question.messages, self._need(question)) <= seconds

    async def _attempt(self, question: Question, budget: Budget) -> tuple[Given | Declined, Verdict]:
        """The one attempt, and what it says about the model."""
        if self._engine.silent and self._has_relief(question, budget):
            return Declined("skipped", SILENT, "engine_unavailable"), "failed"
        request = self._request(question, budget)
        asked = time.monotonic()
        ask = self._engine.offer(request, self._wanted(question), affinity=question.affinity)
        if isinstance(ask, Refused):
            return Declined("skipped", ask.why, ask.reason), "mute"
        await self._await_end(ask, question, budget)
        spent = time.monotonic() - asked
        outcome = ask.outcome
        if outcome is None:
            ask.cancel()
            result, verdict = self._given_up(ask, question, budget, asked, request.due)
            return _marked(result, request, question), verdict
        match outcome:
            case EngineFailed():
                declined = Declined("failed", outcome.detail, outcome.reason, ModelTimes(queue=spent), wasted=outcome.tokens)
                return declined, "failed" if outcome.reason == "engine_unavailable" else "mute"
            case GivenUp():
                return Declined("cut", outcome.why, outcome.reason, ModelTimes(queue=spent)), "mute"
            case Finished():
                result = _marked(self._finished(outcome, question, spent), request, question)
                return result, _verdict(result, question, was_late=outcome.finish_reason == "deadline" and not ask.is_probe)
            case _:
                assert_never(outcome)

    async def _await_end(self, ask: Ask, question: Question, budget: Budget) -> None:
        """Until the request has ended, its time is up, or its engine is silent and another model would still make it."""
        ending = asyncio.ensure_future(ask.done())
        look_s = LOOK_S if self._relief else None
        try:
            while True:
                done, _ = await asyncio.wait((ending, budget.stop), timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
                if done or self._should_leave(ask, question, budget):
                    return
        finally:
            ending.cancel()

    def _should_leave(self, ask: Ask, question: Question, budget: Budget) -> bool:
        """A usable part of an answer is worth more than another model's, so who has one waits for the rest."""
        has_partial = question.constraint is None and ask.tokens >= self._engine.model.min_tokens
        if has_partial or not (ask.silent or ask.is_probe) or not self._has_relief(question, budget):
            return False
        return ask.silent or not self._has_relief(question, budget, later_s=2 * LOOK_S)

    def _has_relief(self, question: Question, budget: Budget, *, later_s: float = 0.0) -> bool:
        """Whether another model would still make it, asked now or `later_s` from now."""
        left = budget.stop_at - time.monotonic() - later_s
        return any(rung.could_answer(question, left) for rung in self._relief)

    def _fitting(self, question: Question, budget: Budget) -> tuple[Message, ...]:
        """The longest prompt that leaves time for the tokens without which an answer is of no use; the shortest when none does.

        While no place is free nothing can be foreseen, and whether to wait is the scheduler's to say: then it is the whole prompt.
        """
        messages = question.messages
        if question.shorter is None:
            return messages
        need, left = self._need(question), budget.stop_at - PIPE_S - time.monotonic()
        forecast = self._engine.forecast_s(messages, need)
        if forecast == float("inf"):
            return messages
        shorter = question.shorter()
        while forecast > left and (next_one := next(shorter, None)) is not None:
            messages = next_one
            forecast = self._engine.forecast_s(messages, need)
        return messages

    def _request(self, question: Question, budget: Budget) -> Generate:
        most = self._engine.model.max_tokens
        return Generate(
            id=0,
            messages=self._fitting(question, budget),
            max_tokens=min(question.max_tokens or most, most),
            due=budget.stop_at - PIPE_S,
            temperature=question.temperature,
            stop=question.stop,
            constraint=question.constraint,
        )

    def _wanted(self, question: Question) -> Wanted:
        scenario = question.scenario
        lane = question.event.scenario if scenario != UNNAMED else ""  # names that settings do not know are people's, and there is no end of them
        return Wanted(self._need(question), question.tenant, lane, scenario.priority, scenario.weight)

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing is kept of a question."""

    def _need(self, question: Question) -> int:
        """Tokens without which the answer is of no use."""
        constraint = question.constraint
        if constraint is None:
            return self._engine.model.min_tokens
        if constraint.choice is not None:
            first = [label[:1] for label in constraint.choice]
            return 1 if len(set(first)) == len(first) else CHOICE_TOKENS
        return round(self._structured_tokens)

    def _finished(self, done: Finished, question: Question, spent: float) -> Given | Declined:
        times = _scaled(done.queue_ms, done.prefill_ms, done.generate_ms, spent)
        usage = Usage(done.prompt_tokens, done.cached_tokens, done.completion_tokens)
        if done.finish_reason in ("deadline", "cancelled"):
            return self._partial(done.text, done.completion_tokens, usage, question, times)
        if question.constraint is not None:
            return self._constrained(done, question, usage, times)
        if not done.text.strip():
            return Declined("failed", "the model said nothing", "engine_error", times)
        finish: AnswerFinish = "length" if done.finish_reason == "length" else "stop"
        return Given(self._outcome, done.text, finish_reason=finish, model=self._ref(), usage=usage, times=times)

    def _constrained(self, done: Finished, question: Question, usage: Usage, times: ModelTimes) -> Given | Declined:
        """An answer outside its constraint is never sent: a grammar that was cut short has not been met."""
        wanted = question.constraint
        if wanted is None or (done.finish_reason == "length" and wanted.choice is None):
            return Declined("failed", "the answer did not end within max_tokens", "engine_error", times, wasted=done.completion_tokens)
        if wanted.choice is None:
            self._structured_tokens += LEARN_SHARE * (done.completion_tokens - self._structured_tokens)
        data = None
        finish: AnswerFinish = "stop"
        text = done.text
        if wanted.choice is not None:
            text = text.strip() if text.strip() in wanted.choice else text
            if text not in wanted.choice:
                return Declined("failed", "the answer was none of the choices", "engine_error", times, wasted=done.completion_tokens)
            finish = "choice"
        elif wanted.json_schema is not None:
            try:
                data = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return Declined("failed", "the answer was not JSON", "engine_error", times, wasted=done.completion_tokens)
            if not keeps_lengths(wanted.json_schema, data):
                return Declined("failed", "a text is not as long as json_schema asks", "engine_error", times, wasted=done.completion_tokens)
        return Given(self._outcome, text, data=data, finish_reason=finish, model=self._ref(), usage=usage, times=times)

    def _given_up(self, ask: Ask, question: Question, budget: Budget, asked: float, due: float) -> tuple[Given | Declined, Verdict]:
        """Nobody waits for the request any more: what there is of it, and what that says about the model."""
        now = time.monotonic()
        first = min(ask.first_at or now, now)
        times = ModelTimes(prefill=first - asked, generate=now - first)
        if not budget.stop.done() and not ask.silent:
            return Declined("cut", f"too slow, after {ask.tokens} tokens, while another model still makes it", "deadline", times, wasted=ask.tokens), "mute"
        if not budget.stop.done():
            return Declined("failed", SILENT, "engine_unavailable", times, wasted=ask.tokens), "failed"
        if budget.stop.result() != "deadline":
            return Declined("cut", str(budget.stop.result()), "cancelled", times, wasted=ask.tokens), "mute"
        result = self._partial(ask.text, ask.tokens, Usage(ask.prompt_tokens, ask.cached_tokens, ask.tokens), question, times)
        return result, _verdict(result, question, was_late=budget.stop_at >= due and not ask.is_probe)

    def _partial(self, text: str, tokens: int, usage: Usage, question: Question, times: ModelTimes) -> Given | Declined:
        if question.constraint is not None:
            return Declined("cut", "time ran out before the answer was complete", "deadline", times, wasted=tokens)
        need = self._engine.model.min_tokens
        if tokens < need or not text.strip():
            return Declined("cut", f"time ran out after {tokens} tokens", "deadline", times, wasted=tokens)
        kept, left = cut_cleanly(text, tokens, keep_tokens=need)
        usage = Usage(usage.prompt_tokens, usage.cached_tokens, left)
        return Given("partial", kept, finish_reason="deadline", model=self._ref(), usage=usage, times=times, reason="deadline", wasted=tokens - left)

    @property
    def label(self) -> str:
        """What metrics call the model."""
        return self._ref().name

    def _ref(self) -> ModelRef:
        status = self._engine.status()[0]
        return ModelRef(status.model, status.version)


def _verdict(result: Given | Declined, question: Question, *, was_late: bool) -> Verdict:
    """What an attempt that the engine saw through, or was not done with in time, says about the model.

    An answer in a given form may be longer than anybody foresaw, and a due may have been pulled forward by a later event: that time ran out then
    is not the model's fault. A label is as short as a few tokens.
    """
    if isinstance(result, Given):
        return "served"
    is_promised = question.constraint is None or question.constraint.choice is not None
    return "late" if was_late and is_promised else "mute"


def _marked(result: Given | Declined, request: Generate, question: Question) -> Given | Declined:
    """An answer from a shortened prompt says so."""
    if isinstance(result, Declined) or request.messages == question.messages:
        return result
    return msgspec.structs.replace(result, shortened=True, why=f"{result.why or result.finish_reason or ''}, on a shorter prompt")


def _scaled(queue_ms: float, prefill_ms: float, generate_ms: float, spent: float) -> ModelTimes:
    """The engine's own split, stretched to what the worker saw: the pipe's time belongs to somebody, and stages must sum up."""
    total = (queue_ms + prefill_ms + generate_ms) / 1000
    if total <= 0:
        return ModelTimes(generate=spent)
    if total > spent:
        share = spent / total
        return ModelTimes(queue_ms / 1000 * share, prefill_ms / 1000 * share, generate_ms / 1000 * share)
    return ModelTimes(queue_ms / 1000 + spent - total, prefill_ms / 1000, generate_ms / 1000)
