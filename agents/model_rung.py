"""The rung that asks an engine: refuses before work what cannot be done in time, takes what is there when time is up."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from agents.cut import cut_cleanly
from agents.ladder import Budget, Declined, Given, ModelTimes, Question
from agents.runtime.ask import Ask, EngineFailed, Finished, GivenUp
from agents.runtime.dispatch import Wanted
from agents.runtime.scheduler import Refused
from schemas.inference import Constraint, Generate
from schemas.responses import AnswerFinish, ModelRef, Outcome, Usage

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


class ModelRung:
    """One `[[models]]` entry as a rung."""

    floor_s = 0.0
    """The scheduler knows better what fits."""

    def __init__(self, engine: Engine, *, outcome: Literal["model", "fallback_model"]) -> None:
        self.name = engine.model.name
        self._engine = engine
        self._outcome: Outcome = outcome
        self._structured_tokens = FIRST_STRUCTURED_TOKENS

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """Ask for as many tokens as are allowed, and come back by `budget.stop` at the latest."""
        if not self._engine.ready:
            return Declined("skipped", "no engine is ready", "engine_unavailable")
        model = self._engine.model
        request = Generate(
            id=0,
            messages=question.messages,
            max_tokens=min(question.max_tokens or model.max_tokens, model.max_tokens),
            due=budget.stop_at - PIPE_S,
            temperature=question.temperature,
            stop=question.stop,
            constraint=question.constraint,
        )
        asked = time.monotonic()
        ask = self._engine.offer(request, Wanted(self._need(question.constraint), question.tenant), affinity=question.affinity)
        if isinstance(ask, Refused):
            return Declined("skipped", ask.why, ask.reason)
        ending = asyncio.ensure_future(ask.done())
        try:
            await asyncio.wait((ending, budget.stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        spent = time.monotonic() - asked
        outcome = ask.outcome
        if outcome is None:
            ask.cancel()
            return self._cut(ask, question, budget, asked)
        match outcome:
            case EngineFailed():
                return Declined("failed", outcome.detail, outcome.reason, ModelTimes(queue=spent), wasted=outcome.tokens)
            case GivenUp():
                return Declined("cut", outcome.why, outcome.reason, ModelTimes(queue=spent))
            case Finished():
                return self._finished(outcome, question, spent)
            case _:
                assert_never(outcome)

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing is kept of a question."""

    def _need(self, constraint: Constraint | None) -> int:
        """Tokens without which the answer is of no use."""
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
        return Given(self._outcome, text, data=data, finish_reason=finish, model=self._ref(), usage=usage, times=times)

    def _cut(self, ask: Ask, question: Question, budget: Budget, asked: float) -> Given | Declined:
        now = time.monotonic()
        first = min(ask.first_at or now, now)
        times = ModelTimes(prefill=first - asked, generate=now - first)
        if budget.stop.result() != "deadline":
            return Declined("cut", str(budget.stop.result()), "cancelled", times, wasted=ask.tokens)
        return self._partial(ask.text, ask.tokens, Usage(0, 0, ask.tokens), question, times)

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


def _scaled(queue_ms: float, prefill_ms: float, generate_ms: float, spent: float) -> ModelTimes:
    """The engine's own split, stretched to what the worker saw: the pipe's time belongs to somebody, and stages must sum up."""
    total = (queue_ms + prefill_ms + generate_ms) / 1000
    if total <= 0:
        return ModelTimes(generate=spent)
    if total > spent:
        share = spent / total
        return ModelTimes(queue_ms / 1000 * share, prefill_ms / 1000 * share, generate_ms / 1000 * share)
    return ModelTimes(queue_ms / 1000 + spent - total, prefill_ms / 1000, generate_ms / 1000)
