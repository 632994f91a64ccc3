"""What the tests of the codec share: an event, the default limits, and decoding under them."""

from __future__ import annotations

from typing import Any

from schemas.dead_letters import Undecodable
from schemas.events import InteractionEvent
from schemas.settings import Limits
from streams.codecs import Headers, decode_event

LIMITS = Limits()
EVENT: dict[str, Any] = {"event_id": "e-1", "session_id": "s-1", "text": "Where is my parcel?"}


def decode(value: bytes, key: bytes | None = b"s-1", headers: Headers = ()) -> InteractionEvent | Undecodable:
    """Decode under the default limits."""
    return decode_event(value, key, headers, LIMITS)


def accepted(value: bytes, key: bytes | None = b"s-1", headers: Headers = ()) -> InteractionEvent:
    """The event; fails when there is none."""
    event = decode(value, key, headers)
    assert isinstance(event, InteractionEvent), event
    return event
