"""Between the worker and one engine process: asks the scheduler, holds what waits for a place, and tells it what each step did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from agents.runtime.ask import Ask
from agents.runtime.cost_model import CostModel
from agents.runtime.estimate import PromptEstimator
from agents.runtime.loop import BEAT_S
from agents.runtime.scheduler import Refused, Scheduler, Work
from agents.runtime.spec import EngineSpec, profile_of
from schemas.inference import Generate, Message, Step


class Wanted(msgspec.Struct, frozen=True):
    """What a request needs to be worth its time, `need` tokens, and who wants it.

    Fields:
        tenant: who shares the engine with the others.
        lane: the scenario within the tenant, as far as the settings know it.
        priority: of the scenario, 0 to 9; higher ones first when there is not enough for all.
        weight: of the scenario, among those of one priority.
    """

    need: int
    tenant: str
    lane: str = ""
    priority: int = 5
    weight: float = 1.0


class Promise(msgspec.Struct, frozen=True):
    """How a promise turned out: the relative error of the foreseen time to the first token (None when it never came), and whether the due held."""

    first_error: float | None
    kept: bool


SILENT_STEPS = 1.0
"""Times the longest foreseen step, on top of the pause between two beats: a step that has only just begun when the beat was due delays it by itself."""

SILENT_LEAST_S = 0.1
"""At least so much on top of that pause: a busy machine may wake a process so late."""


class _Client(Protocol):
    def ask(self, request: Generate, ask: Ask | None = None) -> Ask: ...

    def silent_s(self) -> float: ...

    def cancel(self, request_id: int) -> None: ...


class Dispatch:
    """One a replica; lives as long as the replica, across the processes that serve it."""

    def __init__(self, spec: EngineSpec, client: Callable[[], _Client | None], on_promise: Callable[[Promise], None]) -> None:
        model = spec.model
        self._client = client
        self._on_promise = on_promise
        self.scheduler = Scheduler(CostModel(profile_of(spec)), max_batch=model.max_batch, waiting=model.waiting, prefill_chunk=model.prefill_chunk)
        self._chunk, self._max_batch = model.prefill_chunk, model.max_batch
        self._prompts = PromptEstimator(spec.prefixes if model.align_prefix and model.engine != "scripted" else None)
        self._open: dict[int, tuple[Generate, Ask]] = {}
        self._promises: dict[int, tuple[Work, float]] = {}

    def offer(self, request: Generate, wanted: Wanted) -> Ask | Refused:
        """Admit and send, admit and hold, or refuse; at once."""
        client = self._client()
        if client is None:
            return Refused("overload", "the engine is being replaced")
        work = Work(
            request.id,
            self._prompts.uncached(request.messages),
            min(wanted.need, request.max_tokens),
            request.max_tokens,
            request.due,
            wanted.tenant,
            wanted.lane,
            wanted.priority,
            wanted.weight,
        )
        decision = self.scheduler.offer(work, time.monotonic())
        if isinstance(decision, Refused):
            return decision
        ask = Ask(request.id, self._cancel, self.silent)
        self._open[request.id] = (request, ask)
        ask.is_probe = work.probe
        if not work.probe:
            self._promises[request.id] = (work, 0.0)
        if decision.now:
            self._send(client, request, ask)
        return ask

    def stepped(self, step: Step) -> float | None:
        """Learn from a step, and give free places to who waits; returns how far the step was from what was foreseen."""
        now = time.monotonic()
        for progress in step.progress:
            self.scheduler.progress(progress.id, prefill=progress.prefill_left, tokens=progress.tokens)
            self._check_promise(progress.id, progress.tokens, now)
            if (held := self._open.get(progress.id)) is not None:
                held[1].prompt_tokens, held[1].cached_tokens = progress.prompt_tokens, progress.cached_tokens
        for done in step.done:
            self._check_promise(done.id, done.completion_tokens, now)
            if done.id in self._promises and done.finish_reason == "deadline":
                self._on_promise(Promise(None, kept=False))
            self.scheduler.end(done.id)
            self._promises.pop(done.id, None)
            held = self._open.pop(done.id, None)
            if held is not None and done.prompt_tokens:
                self._prompts.learn(held[0].messages, done)
        for failed in step.failed:
            self._drop(failed.id)
        error = self.scheduler.stepped(step.batch, step.prefill_tokens, step.seconds, now)
        self._let_in(now)
        return error

    def silent(self) -> bool:
        """Whether the engine has given no sign of life for longer than a healthy one ever does; long before that is called a hang and it is replaced."""
        client = self._client()
        return client is not None and client.silent_s() > BEAT_S + max(SILENT_LEAST_S, SILENT_STEPS * self.worst_step_s())

    def forecast_s(self, messages: Sequence[Message], need: int) -> float:
        """Seconds within which a prompt would likely have `need` tokens if it joined those that run now; infinite without a place. No promise."""
        scheduler = self.scheduler
        others = scheduler.running
        if others >= self._max_batch or self._client() is None:
            return float("inf")
        chunk = max(1, self._chunk - others)
        steps, rest = divmod(self._prompts.uncached(messages), chunk)
        reading = steps * scheduler.cost.step_s(others, chunk) + (scheduler.cost.step_s(others + 1, rest) if rest else 0.0)
        return (reading + need * scheduler.cost.step_s(others + 1)) * scheduler.cost.spread

    def worst_step_s(self) -> float:
        """The longest step that is foreseen: a full batch and a whole chunk of prompt."""
        return self.scheduler.worst_step_s()

    def gone(self) -> None:
        """The process has died: what it was doing has failed already, what waited for it fails as well."""
        for _, ask in self._open.values():
            ask.fail("engine_unavailable", "the engine was replaced")
        self._open.clear()
        self._promises.clear()
        self.scheduler.clear()
        self._prompts.forget()

    def _send(self, client: _Client, request: Generate, ask: Ask) -> None:
        client.ask(request, ask)
        if ask.outcome is not None:  # it could not be sent: no step will ever tell of its end, and its place would be lost
            self._drop(request.id)

    def _let_in(self, now: float) -> None:
        start, lost = self.scheduler.ready(now)
        client = self._client()
        for request_id in start:
            request, ask = self._open[request_id]
            if client is not None:
                self._send(client, request, ask)
        for request_id in lost:
            _, ask = self._open[request_id]
            self._drop(request_id)
            ask.give_up("overload", "its place came too late")

    def _cancel(self, request_id: int) -> None:
        held = self._open.get(request_id)
        if held is None:
            return
        if self.scheduler.is_waiting(request_id):
            self._drop(request_id)
            held[1].give_up("cancelled", "before it had a place")
        elif (client := self._client()) is not None:
            client.cancel(request_id)

    def _drop(self, request_id: int) -> None:
        self._open.pop(request_id, None)
        self._promises.pop(request_id, None)
        self.scheduler.end(request_id)

    def _check_promise(self, request_id: int, tokens: int, now: float) -> None:
        """Compare what was foreseen at admission with what came: the first token, then the last needed one."""
        held = self._promises.get(request_id)
        if held is None:
            return
        work, first = held
        if not first and tokens > 0:
            first = now
            self._promises[request_id] = (work, first)
        if tokens >= work.need and first:
            foreseen = max(work.first_at - work.offered, 1e-6)
            self._on_promise(Promise(abs(first - work.first_at) / foreseen, kept=now <= work.due))
            del self._promises[request_id]
