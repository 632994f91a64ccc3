"""The one final record an event gets, and the chunk of a streamed one; who decides them is `agents.ladder`."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, Literal

import msgspec

from schemas.events import SCHEMA_VERSION, Kind

Outcome = Literal["model", "partial", "fallback_model", "cache", "semantic_cache", "rule", "default", "refused", "confirm_request", "ack"]
Reason = Literal[
    "expired",
    "deadline",
    "overload",
    "engine_unavailable",
    "engine_error",
    "filtered_input",
    "filtered_output",
    "policy",
    "no_consent",
    "inconsistent",
    "empty_input",
    "cancelled",
]
AnswerFinish = Literal["stop", "length", "deadline", "choice"]

UNDEGRADED: frozenset[str] = frozenset({"model", "rule", "ack", "cache", "confirm_request"})

STAGES = ("queue", "decode", "session", "safety_in", "schedule", "model_queue", "prefill", "generate", "safety_out", "finish")
"""The stages of an event in order; `total` is their sum, `publish` is a metric only."""

_NAMESPACE = uuid.UUID("6e2f3f3c-6a0c-5b0e-9d55-7a1f0f6f5a11")


class ModelRef(msgspec.Struct, frozen=True):
    """The model that wrote the text."""

    name: str
    version: str


class Usage(msgspec.Struct, frozen=True):
    """Tokens: `prompt_tokens` includes the cached ones, `completion_tokens` counts those whose text was delivered."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class DeadlineReport(msgspec.Struct, frozen=True):
    """How the budget went; `met` says that the bytes were fixed with the reserve still free."""

    budget_ms: float
    due_at_ms: int
    answered_at_ms: int
    met: bool


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds in each stage; they sum to `total` within 1 ms."""

    queue: float = 0.0
    decode: float = 0.0
    session: float = 0.0
    safety_in: float = 0.0
    schedule: float = 0.0
    model_queue: float = 0.0
    prefill: float = 0.0
    generate: float = 0.0
    safety_out: float = 0.0
    finish: float = 0.0
    total: float = 0.0


class Rung(msgspec.Struct, frozen=True):
    """One step down the ladder: what was tried, how it ended, how long it took and why."""

    rung: str
    verdict: str
    ms: float
    why: str


class Response(msgspec.Struct, frozen=True):
    """The final record of an event on `responses`."""

    response_id: str
    event_id: str
    session_id: str
    tenant: str
    kind: Kind
    metadata: dict[str, str]
    outcome: Outcome
    degraded: bool
    reason: Reason | None
    text: str
    data: Any
    finish_reason: AnswerFinish | None
    model: ModelRef | None
    usage: Usage
    deadline: DeadlineReport
    latency_ms: Latency
    rungs: tuple[Rung, ...]
    disclosure: str
    schema_version: int = SCHEMA_VERSION


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a streamed answer on `responses.chunks`; joined they equal the response's text."""

    event_id: str
    session_id: str
    attempt: int
    seq: int
    text: str
    final: bool = False
    outcome: Outcome | None = None
    reason: Reason | None = None
    schema_version: int = SCHEMA_VERSION


def response_id(tenant: str, session_id: str, event_id: str) -> str:
    """UUIDv5 of the three; the parts are length-prefixed, so that no two triples read the same. Made by hand: `uuid.uuid5` takes three times as long."""
    name = "".join(f"{len(part)}:{part}" for part in (tenant, session_id, event_id))
    made = hashlib.sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    return f"{made[:8]}-{made[8:12]}-5{made[13:16]}-{'89ab'[int(made[16], 16) & 3]}{made[17:20]}-{made[20:32]}"
