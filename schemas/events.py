"""The records that producers send: the interaction event and its parts; how bytes become one is `streams.codecs`."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

Kind = Literal["message", "context", "decision", "confirm", "reset", "cancel", "feedback"]

DEFAULT_TENANT = "default"
"""Of events that name none."""

MAX_IDENTIFIER = 128
"""Characters of an id: they stand in keys, headers and every record that an event causes."""

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_IDENTIFIER)]
Locale = Annotated[str, Meta(min_length=2, max_length=35, pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*\Z")]

MAX_CHOICES = 64
"""Labels of one `choice`: each adds to the grammar that is compiled on arrival, off the loop but on the event's budget."""

Label = Annotated[str, Meta(min_length=1, max_length=200)]
StopText = Annotated[str, Meta(min_length=1, max_length=100)]


class AnswerOptions(msgspec.Struct, frozen=True):
    """What the answer should look like; limits can only shorten what the settings allow."""

    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    choice: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=MAX_CHOICES)] | None = None
    json_schema: dict[str, Any] | None = None
    regex: Annotated[str, Meta(min_length=1, max_length=2000)] | None = None
    stop: Annotated[tuple[StopText, ...], Meta(max_length=8)] = ()
    stream: bool = False
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0


class Consent(msgspec.Struct, frozen=True):
    """What the person agreed to."""

    ai_reply: bool = True
    store_history: bool = False


class InteractionEvent(msgspec.Struct, frozen=True):
    """One thing a person said or did, as the contract lists it; unknown fields are ignored."""

    event_id: Identifier
    session_id: Identifier
    tenant: Identifier = DEFAULT_TENANT
    subject: Annotated[str, Meta(max_length=128)] | None = None
    locale: Locale | None = None
    kind: Kind = "message"
    text: str | None = None
    scenario: Identifier = "default"
    state: dict[str, Any] = {}
    occurred_at_ms: int | None = None
    deadline_ms: float | None = None
    answer: AnswerOptions = AnswerOptions()
    consent: Consent = Consent()
    ref: Identifier | None = None
    accept: bool = True
    metadata: dict[str, str] = {}
    schema_version: Annotated[int, Meta(ge=1)] = SCHEMA_VERSION

    def digest(self) -> bytes:
        """16 bytes that are equal when two records under one id mean the same event (contract: "The same event")."""
        meaning = (self.kind, self.text, self.state, self.ref, self.accept, self.answer, self.consent, self.scenario)
        return hashlib.blake2b(msgspec.msgpack.encode(meaning, order="deterministic"), digest_size=16).digest()
