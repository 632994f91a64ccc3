"""One request as the worker sees it: text so far at any moment, and how it ended as a value; which engine serves it is `supervisor`'s choice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal

from schemas.inference import Delta, Done, FinishReason


@dataclass(frozen=True, slots=True)
class Finished:
    """The engine ended the request. Times in milliseconds, tokens as in the contract's `usage`."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_ms: float
    prefill_ms: float
    generate_ms: float


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """No answer will come. `text` is what had arrived; `detail` is for operators and never holds a person's text."""

    reason: Literal["engine_unavailable", "engine_error"]
    detail: str
    text: str = ""
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The request was admitted and waited for a place, and can no longer make it, or nobody wants it any more; no engine has seen it."""

    reason: Literal["overload", "cancelled"]
    why: str


Outcome = Finished | EngineFailed | GivenUp


class Ask:
    """An open request. Read `text` and `tokens` at any moment, await `done`, or iterate over the text as it comes."""

    def __init__(self, request_id: int, cancel: Callable[[int], None], silent: Callable[[], bool] = lambda: False) -> None:
        self.id = request_id
        self._silent = silent
        self.tokens = 0
        """Tokens whose text has arrived."""
        self.first_at: float | None = None
        """When the first text arrived, in the loop's monotonic seconds."""
        self.prompt_tokens = 0
        """Of its prompt, once the engine has begun to read it."""
        self.cached_tokens = 0
        """Of these, found in the prefix cache."""
        self.is_probe = False
        """Let through to find out how fast the engine is, not on a promise: that it comes too late is no surprise."""
        self._loop = asyncio.get_running_loop()
        self._cancel = cancel
        self._parts: list[str] = []
        self._outcome: Outcome | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def text(self) -> str:
        """All text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs."""
        return self._outcome

    @property
    def silent(self) -> bool:
        """Whether its engine has given no sign of life for longer than a healthy one ever does."""
        return self._silent()

    async def done(self) -> Outcome:
        """Wait for the end. Cancelling this wait does not cancel the request."""
        while self._outcome is None:
            await self._changed()
        return self._outcome

    def cancel(self) -> None:
        """Nobody needs it any more: the engine ends it at its next step, and `done` says `cancelled` then. Harmless when it has ended."""
        if self._outcome is None:
            self._cancel(self.id)

    async def __aiter__(self) -> AsyncIterator[str]:
        """The text in pieces, as they arrive, until the end; `outcome` is set when the loop is over."""
        given = 0
        while True:
            text = self.text
            if len(text) > given:
                yield text[given:]
                given = len(text)
            elif self._outcome is not None:
                return
            else:
                await self._changed()

    def add(self, delta: Delta) -> None:
        """The engine's client brings text."""
        if self.first_at is None:
            self.first_at = self._loop.time()
        self._parts.append(delta.text)
        self.tokens += delta.tokens
        self._wake()

    def finish(self, done: Done) -> None:
        """The engine's client brings the end."""
        self._end(
            Finished(
                self.text,
                done.finish_reason,
                done.prompt_tokens,
                done.cached_tokens,
                done.completion_tokens,
                done.queue_ms,
                done.prefill_ms,
                done.generate_ms,
            )
        )

    def fail(self, reason: Literal["engine_unavailable", "engine_error"], detail: str) -> None:
        """The request failed, or its engine is gone."""
        self._end(EngineFailed(reason, detail, self.text, self.tokens))

    def give_up(self, reason: Literal["overload", "cancelled"], why: str) -> None:
        """The scheduler has taken it off the queue."""
        self._end(GivenUp(reason, why))

    def _end(self, outcome: Outcome) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._wake()

    async def _changed(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
