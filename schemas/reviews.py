"""What people are handed when somebody calls an answer wrong or unsafe (`feedback.topic`); the account of it without texts is `schemas.audit`."""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.events import SCHEMA_VERSION
from schemas.responses import ModelRef

Verdict = Literal["wrong", "unsafe"]


class Review(msgspec.Struct, frozen=True):
    """One answer for people to look at. Texts are there only when the person's feedback consents to `store_history`."""

    at_ms: int
    tenant: str
    session_id: str
    event_id: str
    """Of the feedback."""
    ref: str
    """Of the event whose answer is meant."""
    verdict: Verdict
    outcome: str
    reason: str | None
    model: ModelRef | None
    response_id: str
    said: str | None = None
    """What the person had asked."""
    answered: str | None = None
    """What was answered."""
    schema_version: int = SCHEMA_VERSION
