"""The record of what was refused, consented, confirmed or changed, for `audit`; never the texts themselves."""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.events import SCHEMA_VERSION

AuditAction = Literal[
    "refused", "cancelled", "session_ended", "session_reset", "confirm_requested", "confirmed", "declined", "confirm_ignored", "state_changed", "feedback"
]


class AuditRecord(msgspec.Struct, frozen=True):
    """One accountable act on a session."""

    at_ms: int
    tenant: str
    session_id: str
    action: AuditAction
    event_id: str | None = None
    reason: str | None = None
    ref: str | None = None
    schema_version: int = SCHEMA_VERSION
