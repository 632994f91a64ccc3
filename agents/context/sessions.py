"""How a session changes from one event to the next: pure, values in and values out; storing them is `streams.tables`."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.events import InteractionEvent
from schemas.session import Decision, KeptEntry, KeptIndex, Pending, SessionState, Turn, dump_stored
from schemas.settings import Limits, Session

MAX_PENDING = 8
"""Decisions that wait at once in a session: the oldest gives way, and its confirm is then answered as unknown."""

MAX_DECISIONS = 32
"""Confirmed decisions kept in a session: they are read at every turn."""


def remember_turn(state: SessionState, turn: Turn, settings: Session) -> SessionState:
    """The session after one more turn, bounded in turns and in characters; longer texts are kept by their end.

    The window moves by whole strides: at twice its length it is cut back to its length. A window that moved at every turn
    would change the beginning of every prompt, and nothing but the instructions could stay in the prefix cache.
    """
    short = msgspec.structs.replace(turn, user=turn.user[-settings.turn_chars :], reply=turn.reply[-settings.turn_chars :])
    turns = (*state.turns, short)
    if len(turns) >= 2 * settings.turns:
        turns = turns[-settings.turns :] if settings.turns else ()
    known = {turn.event_id for turn in turns}
    disputed = {event_id: verdict for event_id, verdict in state.disputed.items() if event_id in known} if state.disputed else {}
    return msgspec.structs.replace(state, turns=turns, turn_count=state.turn_count + 1, disputed=disputed)


def dispute_turn(state: SessionState, event_id: str, verdict: str) -> tuple[SessionState, bool]:
    """The session with a turn marked as `wrong` or `unsafe`, and whether there was one to mark."""
    if all(turn.event_id != event_id for turn in state.turns):
        return state, False
    return msgspec.structs.replace(state, disputed={**state.disputed, event_id: verdict}), True


def undisputed(state: SessionState) -> SessionState:
    """The session as later answers may see it: without the turns that a person called wrong."""
    if not state.disputed:
        return state
    return msgspec.structs.replace(state, turns=tuple(turn for turn in state.turns if turn.event_id not in state.disputed))


def merge_state(state: SessionState, patch: dict[str, Any], limits: Limits) -> SessionState | None:
    """The session with an event's `state` merged in (RFC 7396: null removes); None when it would outgrow `limits.state_bytes`."""
    if not patch:
        return state
    merged = _merge_patch(state.state, patch)
    if len(msgspec.msgpack.encode(merged)) > limits.state_bytes:
        return None
    return msgspec.structs.replace(state, state=merged)


def reset(state: SessionState) -> SessionState:
    """A new context: nothing of the old one is told to the model again; the count of turns goes on."""
    return SessionState(turn_count=state.turn_count, unknown=state.unknown)


def ask_confirmation(state: SessionState, event: InteractionEvent, *, now_ms: int, settings: Session) -> tuple[SessionState, int]:
    """The session with a decision that waits, and when it lapses in Unix ms."""
    expires = now_ms + settings.confirm_ms
    live = tuple(item for item in state.pending if item.expires_at_ms > now_ms and item.event_id != event.event_id)
    pending = (*live, Pending(event.event_id, (event.text or "")[: settings.turn_chars], expires))[-MAX_PENDING:]
    return msgspec.structs.replace(state, pending=pending), expires


def confirm(state: SessionState, ref: str | None, *, accept: bool, now_ms: int) -> tuple[SessionState, bool]:
    """The session after a confirm, and whether it met a decision that was still waiting."""
    found = next((item for item in state.pending if item.event_id == ref), None)
    if found is None or found.expires_at_ms <= now_ms:
        return state, False
    decisions = state.decisions
    if accept:
        decisions = (*decisions, Decision(found.event_id, found.text, now_ms))[-MAX_DECISIONS:]
    pending = tuple(item for item in state.pending if item is not found)
    return msgspec.structs.replace(state, pending=pending, decisions=decisions), True


def fit(state: SessionState, limits: Limits) -> bytes:
    """The stored bytes, with the oldest turns let go until they fit `limits.session_bytes` (R09: an oversize write stops a worker)."""
    stored = dump_stored(state)
    while len(stored) > limits.session_bytes and state.turns:
        state = msgspec.structs.replace(state, turns=state.turns[1:])
        stored = dump_stored(state)
    if len(stored) > limits.session_bytes:
        stored = dump_stored(SessionState(turn_count=state.turn_count))
    return stored


def keep(index: KeptIndex, entry: KeptEntry, *, keep_last: int, committed: int, max_bytes: int) -> tuple[KeptIndex, tuple[str, ...]]:
    """The index with one more kept answer, and the event ids that may be forgotten: beyond the last `keep_last` and already committed.

    An offset above the newest one is of a log that was made anew since, and will not be delivered again. Whatever is not committed, the index
    stays below `max_bytes`: one that is too large to be written would end the worker, and the next one (R09).
    """
    entries = [*index.entries, entry]
    size = _INDEX_BYTES + sum(map(_entry_bytes, entries))
    first = 0
    while first < len(entries) - 1:
        oldest = entries[first]
        done_with = len(entries) - first > keep_last and not committed <= oldest.offset <= entry.offset
        if not done_with and size <= max_bytes:
            break
        size -= _entry_bytes(oldest)
        first += 1
    return msgspec.structs.replace(index, entries=tuple(entries[first:])), tuple(old.event_id for old in entries[:first])


_INDEX_BYTES = 64
"""Of an index beside its entries: names and heads of its fields."""


def _entry_bytes(entry: KeptEntry) -> int:
    """At most so many in MessagePack: texts, and 16 for their heads and the offset."""
    return len(entry.event_id.encode()) + len(entry.digest) + 16


def _merge_patch(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            below = merged.get(key)
            merged[key] = _merge_patch(below if isinstance(below, dict) else {}, value)
        else:
            merged[key] = value
    return merged
