"""What the tables hold: a session's state and its kept answers, versioned, keeping fields that a newer release added."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

STORED_VERSION = 1


class Turn(msgspec.Struct, frozen=True):
    """One event and what was answered; `reply` is empty when the answer was not the model's own."""

    event_id: str
    at_ms: int
    user: str
    reply: str
    outcome: str


class Pending(msgspec.Struct, frozen=True):
    """A decision that waits for its confirm until `expires_at_ms`."""

    event_id: str
    text: str
    expires_at_ms: int


class Decision(msgspec.Struct, frozen=True):
    """A decision that the person confirmed."""

    event_id: str
    text: str
    confirmed_at_ms: int


class SessionState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the next answer may need; the model itself keeps nothing."""

    turns: tuple[Turn, ...] = ()
    state: dict[str, Any] = {}
    pending: tuple[Pending, ...] = ()
    decisions: tuple[Decision, ...] = ()
    turn_count: int = 0
    locale: str | None = None
    disputed: dict[str, str] = {}
    """Event ids of turns whose answer a person called `wrong` or `unsafe`: later prompts leave them out. Beside the turns and not in them, since
    a release that does not know this field keeps it here, and would lose it there."""
    unknown: dict[str, Any] = {}
    """Fields that this release does not know, kept as they were."""
    v: int = STORED_VERSION


class KeptAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The exact bytes an event was answered with, for when it is delivered again."""

    digest: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    outcome: str
    reason: str | None
    unknown: dict[str, Any] = {}
    v: int = STORED_VERSION


class KeptEntry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a session's index of kept answers, oldest first."""

    event_id: str
    digest: bytes
    offset: int


class KeptIndex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which answers of a session are kept, so that the oldest can be let go."""

    entries: tuple[KeptEntry, ...] = ()
    subjects: tuple[str, ...] = ()
    """Persons (`subject`) whose events the session had, newest last: by them its sessions are found when a person is to be forgotten."""
    touched_ms: int = 0
    """When the session last had an event, Unix ms of the worker that wrote it; 0 in values of older releases."""
    unknown: dict[str, Any] = {}
    v: int = STORED_VERSION


Stored = TypeVar("Stored", SessionState, KeptAnswer, KeptIndex)


def dump_stored(value: SessionState | KeptAnswer | KeptIndex) -> bytes:
    """MessagePack of a stored value, its unknown fields back at the top level."""
    fields = msgspec.structs.asdict(value)
    unknown = fields.pop("unknown")
    return msgspec.msgpack.encode({**unknown, **fields})


def load_stored(raw: bytes, kind: type[Stored]) -> Stored:
    """Read what any release from version 1 on has written.

    Raises:
        msgspec.ValidationError: the bytes were not written by this product.
    """
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.ValidationError:
        pass  # fields of a newer release, which the slower way keeps, or bytes that are not ours, which it refuses
    fields: dict[str, Any] = msgspec.msgpack.decode(raw, type=dict[str, Any])
    known = set(kind.__struct_fields__) - {"unknown"}
    unknown = {key: value for key, value in fields.items() if key not in known}
    return msgspec.convert({**{key: value for key, value in fields.items() if key in known}, "unknown": unknown}, kind)


TableName = Literal["sessions", "answers"]


def session_key(tenant: str, session_id: str) -> bytes:
    """Table key of a session."""
    return msgspec.msgpack.encode((tenant, session_id))


def answer_key(tenant: str, session_id: str, event_id: str) -> bytes:
    """Table key of a kept answer; three parts, so it never equals its session's index key of two."""
    return msgspec.msgpack.encode((tenant, session_id, event_id))
