"""From what was decided to the record that leaves: stages that sum up, what was met, bytes fixed once."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from agents.ladder import Given, ModelTimes
from agents.lines import Inflight
from schemas.deadline import Clock
from schemas.events import InteractionEvent
from schemas.responses import UNDEGRADED, DeadlineReport, Latency, Response, Rung, response_id
from schemas.settings import Limits
from streams.codecs import CONTENT_TYPES, Headers, carried_headers, encode_record
from streams.publish import KeptRecord


class Stamps:
    """When each stage of one event ended, in monotonic seconds; model stages are durations of their own."""

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight
        self.session_ended = inflight.decoded_at
        self.safety_in_ended = inflight.decoded_at
        self.ladder_ended = inflight.decoded_at
        self.safety_out_ended = inflight.decoded_at
        self.model = ModelTimes()

    def short(self) -> None:
        """Nothing but the default was considered: all time since decoding is `session` (waiting for its turn)."""
        self.session_ended = self.safety_in_ended = self.ladder_ended = self.safety_out_ended = time.monotonic()

    def seconds(self, now: float) -> dict[str, float]:
        """Seconds in each stage; they sum to `now` minus the event's start."""
        inflight = self._inflight
        handled = max(inflight.deadline.arrived, inflight.start)
        in_ladder = max(0.0, self.ladder_ended - self.safety_in_ended)
        model = self.model.queue + self.model.prefill + self.model.generate
        share = min(1.0, in_ladder / model) if model > 0 else 0.0
        return {
            "queue": max(0.0, handled - inflight.start),
            "decode": max(0.0, inflight.decoded_at - handled),
            "session": max(0.0, self.session_ended - inflight.decoded_at),
            "safety_in": max(0.0, self.safety_in_ended - self.session_ended),
            "schedule": max(0.0, in_ladder - model * share),
            "model_queue": self.model.queue * share,
            "prefill": self.model.prefill * share,
            "generate": self.model.generate * share,
            "safety_out": max(0.0, self.safety_out_ended - self.ladder_ended),
            "finish": max(0.0, now - self.safety_out_ended),
        }


class Fixed(msgspec.Struct, frozen=True):
    """A response whose bytes no longer change."""

    record: KeptRecord
    response: Response
    stages: dict[str, float]
    at: float
    """Monotonic seconds when the bytes were fixed."""


def fix_response(
    inflight: Inflight, event: InteractionEvent, given: Given, rungs: tuple[Rung, ...], stamps: Stamps, *, clock: Clock, reserve_s: float, limits: Limits
) -> Fixed:
    """Build the final record. Called once an event: a redelivery sends these bytes again."""
    now = clock.monotonic()
    stages = stamps.seconds(now)
    deadline = inflight.deadline
    due_at_ms = deadline.due_at_ms - round((deadline.due - inflight.due) * 1000)
    answered_at_ms = deadline.arrived_at_ms + round((now - deadline.arrived) * 1000)
    milliseconds = {name: round(seconds * 1000, 3) for name, seconds in stages.items()}
    response = Response(
        response_id=response_id(event.tenant, event.session_id, event.event_id),
        event_id=event.event_id,
        session_id=event.session_id,
        tenant=event.tenant,
        kind=event.kind,
        metadata=event.metadata,
        outcome=given.outcome,
        degraded=given.outcome not in UNDEGRADED,
        reason=given.reason,
        text=given.text,
        data=given.data,
        finish_reason=given.finish_reason,
        model=given.model,
        usage=given.usage,
        deadline=DeadlineReport(deadline.budget_ms, due_at_ms, answered_at_ms, met=answered_at_ms + reserve_s * 1000 <= due_at_ms),
        latency_ms=Latency(**milliseconds, total=round(sum(milliseconds.values()), 3)),
        rungs=(*inflight.notes, *rungs),
        disclosure=inflight.disclosure,
    )
    value, response = _within(response, inflight, limits)
    headers: Headers = (("content-type", CONTENT_TYPES[inflight.encoding]), *inflight.headers)
    return Fixed(KeptRecord(event.session_id.encode(), value, headers), response, stages, now)


def _within(response: Response, inflight: Inflight, limits: Limits) -> tuple[bytes, Response]:
    """The bytes, with the text cut when they would not fit `limits.response_bytes` (R09)."""
    value = encode_record(response, inflight.encoding)
    while len(value) > limits.response_bytes and response.text:
        response = msgspec.structs.replace(response, text=response.text[: len(response.text) // 2])
        value = encode_record(response, inflight.encoding)
    return value, response


def headers_of(message: Any) -> Headers:
    """What a record's headers hand on to what it causes."""
    return carried_headers(tuple(message.headers or ()))
