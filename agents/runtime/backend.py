"""What the step loop asks of a model, real or scripted, and the values that cross between them; the loop itself is `loop`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.errors import AnswerbyError
from schemas.inference import Delta, Failed, FinishReason, Generate, Progress


@dataclass(frozen=True, slots=True)
class Loaded:
    """What `load` found out. Times in milliseconds."""

    context_tokens: int
    load_ms: float
    warmup_ms: float


@dataclass(frozen=True, slots=True)
class Ended:
    """Request `id` is over; `tail` is text that was held back and turned out harmless."""

    id: int
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tail: Delta | None = None
    shared_tokens: int = 0
    padding_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did. `first` names the requests whose first token it made, so that prefill can be told from decoding."""

    seconds: float
    batch: int
    prefill_tokens: int
    deltas: tuple[Delta, ...] = ()
    first: tuple[int, ...] = ()
    ended: tuple[Ended, ...] = ()
    failed: tuple[Failed, ...] = ()


class RequestRefused(AnswerbyError):
    """Raised by `Backend.add` when this request cannot be served; its text becomes the request's `Failed.error` and never holds a person's text."""


class Backend(Protocol):
    """A model that many requests share, driven by one thread, a step at a time."""

    def load(self) -> Loaded:
        """Read the model and warm it up.

        Raises:
            SetupError: it cannot serve; the text says what to do.
        """

    @property
    def room(self) -> int:
        """How many more requests `add` may be given now."""

    @property
    def step_at(self) -> float | None:
        """Monotonic seconds at which `step` should be called next, 0.0 for at once; None while there is nothing to do."""

    def progress(self) -> tuple[Progress, ...]:
        """How far each request is that was added and has not ended."""

    def add(self, request: Generate) -> None:
        """Take a request into the batch.

        Raises:
            RequestRefused: it cannot be served; others are not touched.
        """

    def end(self, request_id: int, reason: FinishReason) -> Ended:
        """Stop working on a request that was added and has not ended."""

    def step(self) -> StepResult | None:
        """Run one step; None when it is not finished yet. Must return within the model's longest step, never wait for a request."""
