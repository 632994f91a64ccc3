"""The closed set of messages on the pipe between a worker and an engine process; how frames are cut is `agents.runtime.frames`.

Times are CLOCK_MONOTONIC seconds, which all processes of one boot share, so a due crosses the pipe unchanged.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.cost import CostProfile

Role = Literal["system", "user", "assistant"]

FinishReason = Literal["stop", "length", "deadline", "cancelled"]
"""`stop`: the model ended or a stop string was met; `length`: max_tokens; `deadline`: cut at the due; `cancelled`: by the worker."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One turn of the prompt; `text` is data and is escaped before the chat template sees it."""

    role: Role
    text: str
    shared: int = 0
    """Of the first message: leading characters that many prompts begin with. The engine ends them on a block of its prefix cache."""


class Constraint(msgspec.Struct, frozen=True):
    """What the answer must look like; at most one field is set."""

    choice: tuple[str, ...] | None = None
    regex: str | None = None
    json_schema: str | None = None


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Ask for one answer. `due` is when the engine cuts by itself, in monotonic seconds."""

    id: int
    messages: tuple[Message, ...]
    max_tokens: int
    due: float
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    constraint: Constraint | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Nobody waits for request `id` any more: end it at the next step. Unknown ids are ignored."""

    id: int


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Finish the current step, then exit 0."""


ToEngine = Generate | Cancel | Shutdown


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Sent once, after load and warm-up: from now on requests are served."""

    model: str
    version: str
    pid: int
    context_tokens: int
    threads: int
    cpus: tuple[int, ...]
    load_ms: float
    warmup_ms: float
    memory_bytes: int
    profile: CostProfile | None = None
    """What its steps cost, when it had to measure that."""


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """Sent instead of Ready: the model cannot serve. `error` is one line that tells the operator what to do; the process then exits 1."""

    error: str


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Text that request `id` gained in this step; whole characters only, `tokens` is how many tokens it stands for."""

    id: int
    text: str
    tokens: int


class Done(msgspec.Struct, frozen=True, array_like=True):
    """Request `id` has ended; all its text was in deltas up to this step's."""

    id: int
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prefill_ms: float
    generate_ms: float
    queue_ms: float
    shared_tokens: int = 0
    """Leading prompt tokens that many prompts begin with, padding included."""
    padding_tokens: int = 0
    """Of these, those that only fill the last block."""


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """Request `id` failed for a reason of its own; the engine lives. `error` never holds a person's text."""

    id: int
    error: str


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far request `id` is after a step: prompt tokens not read yet, and tokens made; then its prompt's tokens, and those found in the prefix cache."""

    id: int
    prefill_left: int
    tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0


class Step(msgspec.Struct, frozen=True, tag="step"):
    """What one step of the engine's loop did: one frame a step, not one a token; also its sign of life."""

    seconds: float
    batch: int
    prefill_tokens: int
    deltas: tuple[Delta, ...] = ()
    done: tuple[Done, ...] = ()
    failed: tuple[Failed, ...] = ()
    progress: tuple[Progress, ...] = ()


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """Sign of life while no step runs, with the process's own figures."""

    running: int
    rss_bytes: int
    major_faults: int


FromEngine = Ready | StartFailed | Step | Beat
