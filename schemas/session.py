"""What the tables hold: a session's state and its kept answers, versioned, keeping fields that a newer release added."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

STORED_VERSION = 1

STATE_ROOM = 32_768
"""Bytes of a stored session that `state` and its stamps never take, so that they are never what has to go: 64 endings of decisions with the longest
ids (25 KiB), counts and the fields' names. Without it a state that was accepted could be lost when the session is written."""


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One event and what was answered; `reply` is empty when the answer was not the model's own."""

    event_id: str
    at_ms: int
    user: str
    reply: str
    outcome: str
    unknown: dict[str, Any] = {}
    """Fields that this release does not know, kept as they were."""


class Pending(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A decision that waits for its confirm until `expires_at_ms`."""

    event_id: str
    text: str
    expires_at_ms: int
    unknown: dict[str, Any] = {}


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A decision that the person confirmed."""

    event_id: str
    text: str
    confirmed_at_ms: int
    unknown: dict[str, Any] = {}


Ending = Literal["confirmed", "declined", "expired"]
"""What became of a decision that waited."""


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
    facts: dict[str, Any] = {}
    """What the person stated of themselves, as `schemas.facts.dump_facts` writes it."""
    waiting_facts: dict[str, dict[str, Any]] = {}
    """By event id of a pending decision: facts that hold once it is confirmed."""
    settled: dict[str, Ending] = {}
    """What became of the last decisions, so that a confirm which comes again or too late is answered clearly."""
    clock_ms: int = 0
    """The session's own time, Unix ms: the newest event's, none of them counted as later than its arrival; 0 before the first."""
    context: int = 0
    """How many contexts were ended before this one, by `reset` or by idleness."""
    state_version: int = 0
    """How often `state` has changed."""
    state_stamps: dict[str, tuple[int, int]] = {}
    """By top-level key of `state`, removed ones among them: time and offset of the event that wrote it last."""
    state_since_ms: int = 0
    """When the last `reset` emptied `state`, by the session's clock: what an event before that says of it is of the old context, however late it comes."""
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
    if not value.unknown and not (isinstance(value, SessionState) and any(part.unknown for name in _PARTS for part in getattr(value, name))):
        return msgspec.msgpack.encode(value)
    fields = msgspec.structs.asdict(value)
    unknown = fields.pop("unknown")
    if isinstance(value, SessionState):
        for name in _PARTS:
            if any(part.unknown for part in fields[name]):
                fields[name] = [_flat(part) for part in fields[name]]
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
    found = {key: value for key, value in fields.items() if key in known}
    if kind is SessionState:
        for name, part in _PARTS.items():
            if isinstance(parts := found.get(name), list):
                found[name] = [_gathered(raw_part, part) for raw_part in parts]
    return msgspec.convert({**found, "unknown": unknown}, kind)


_PARTS: dict[str, type[Turn | Pending | Decision]] = {"turns": Turn, "pending": Pending, "decisions": Decision}
"""Fields of a session that hold structs: what a newer release has added to one of these must survive as well."""


def _flat(part: Turn | Pending | Decision) -> dict[str, Any]:
    fields = msgspec.structs.asdict(part)
    return {**fields.pop("unknown"), **fields}


def _gathered(raw: Any, kind: type[Turn | Pending | Decision]) -> Any:
    """A part's fields with those of a newer release put aside; what is no map is left for the check to refuse."""
    if not isinstance(raw, dict):
        return raw
    known = set(kind.__struct_fields__) - {"unknown"}
    unknown = {key: value for key, value in raw.items() if key not in known}
    return {**{key: value for key, value in raw.items() if key in known}, "unknown": unknown}


TableName = Literal["sessions", "answers"]


def session_key(tenant: str, session_id: str) -> bytes:
    """Table key of a session."""
    return msgspec.msgpack.encode((tenant, session_id))


def answer_key(tenant: str, session_id: str, event_id: str) -> bytes:
    """Table key of a kept answer; three parts, so it never equals its session's index key of two."""
    return msgspec.msgpack.encode((tenant, session_id, event_id))
