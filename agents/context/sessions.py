"""How a session changes from one event to the next: pure, values in and values out; storing them is `streams.tables`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from schemas.events import InteractionEvent
from schemas.session import STATE_ROOM, Decision, Ending, KeptEntry, KeptIndex, Pending, SessionState, Turn, dump_stored
from schemas.settings import Limits, Session

MAX_PENDING = 8
"""Decisions that wait at once in a session: the oldest gives way, and its confirm is then answered as unknown."""

MAX_DECISIONS = 32
"""Confirmed decisions kept in a session: they are read at every turn."""


MAX_SETTLED = 64
"""Decisions whose end is remembered: a confirm that comes again after more of them is answered as unknown. 25 KiB of the longest ids."""

MAX_GONE = 64
"""Removed keys of `state` whose stamps are kept: of more, one removed long ago could be brought back by an event that was late since before."""

Stamp = tuple[int, int]
"""When and where a value was written: event time in Unix ms, offset."""

OLDEST: Stamp = (-1, -1)
NEWEST: Stamp = (2**62, 2**62)
"""For whoever has no time: always the last writer."""


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


def merge_state(state: SessionState, patch: dict[str, Any], limits: Limits, stamp: Stamp = NEWEST, *, replaces: bool = False) -> SessionState | None:
    """The session with an event's `state` merged in (RFC 7396: null removes); None when it would outgrow its bounds.

    They are `limits.state_bytes`, and for the state with its keys' stamps `limits.session_bytes` less `STATE_ROOM`: what is accepted is never lost
    when the session is written. A session that is above the second already may change, but not grow.

    Of one top-level key the write with the greater (time, offset) wins, in whatever order they come; a reset counts as a write of all keys. With
    `replaces` keys that the patch does not name go, unless a later event wrote them.
    """
    if replaces:
        patch = {**dict.fromkeys(state.state), **patch}
    stamps = state.state_stamps
    newer = {key: value for key, value in patch.items() if _written(state, key) <= stamp}
    if not newer:
        return state
    base = {key: value for key, value in state.state.items() if key not in newer} if replaces else state.state
    merged = _merge_patch(base, newer)
    if _bytes(merged) > limits.state_bytes:
        return None
    stamps = _bounded_stamps({**stamps, **dict.fromkeys(newer, stamp)}, merged)
    weight = _weight(merged, stamps)
    if weight + _bytes(state.unknown) > limits.session_bytes - STATE_ROOM and weight > _weight(state.state, state.state_stamps):
        return None
    version = state.state_version + (merged != state.state)
    return msgspec.structs.replace(state, state=merged, state_stamps=stamps, state_version=version)


def stale_keys(state: SessionState, patch: dict[str, Any], stamp: Stamp) -> tuple[str, ...]:
    """Keys of a patch that a later event has written already, or a later reset has emptied."""
    return tuple(key for key in patch if _written(state, key) > stamp)


def _written(state: SessionState, key: str) -> Stamp:
    """When a key was last written. At the moment of a reset itself the event that is read after it is the later one."""
    at_ms, offset = state.state_stamps.get(key) or ((state.state_since_ms, -1) if state.state_since_ms else OLDEST)
    return at_ms, offset


def _bytes(value: Any) -> int:
    return len(msgspec.msgpack.encode(value))


def _weight(values: dict[str, Any], stamps: dict[str, Stamp]) -> int:
    """Bytes of a state with its stamps; those of absent keys give way when a session is written."""
    return _bytes(values) + _bytes({key: stamp for key, stamp in stamps.items() if key in values})


def _bounded_stamps(stamps: dict[str, Stamp], present: dict[str, Any]) -> dict[str, Stamp]:
    """Without the oldest of keys that are gone, beyond `MAX_GONE` of them: a late event could then bring one back."""
    gone = [key for key in stamps if key not in present]
    if len(gone) <= MAX_GONE:
        return stamps
    dropped = set(sorted(gone, key=lambda key: tuple(stamps[key]))[: len(gone) - MAX_GONE])
    return {key: stamp for key, stamp in stamps.items() if key not in dropped}


def see_event(state: SessionState, at_ms: int, settings: Session) -> tuple[SessionState, bool]:
    """The session at the time of its next event, and whether it had been idle for so long that a new context begins.

    `at_ms` is the event's time, not later than its arrival: a stamp in 2099 ages nobody, and a log that is replayed ends contexts where they ended.
    A new context begins without turns and waiting decisions; state, facts and confirmed decisions are of the person's affair, and stay.
    """
    is_new = bool(state.clock_ms and settings.idle_s and at_ms - state.clock_ms > settings.idle_s * 1000 and (state.turns or state.pending))
    clock_ms = max(state.clock_ms, at_ms)
    if not is_new:
        return msgspec.structs.replace(state, clock_ms=clock_ms), False
    settled = _settle(state.settled, {item.event_id: "expired" for item in state.pending})
    fresh = msgspec.structs.replace(state, turns=(), pending=(), waiting_facts={}, disputed={}, settled=settled, context=state.context + 1, clock_ms=clock_ms)
    return fresh, True


def reset(state: SessionState) -> SessionState:
    """A new context: nothing of the old one is told to the model again; counts and the session's clock go on.

    The moment of it stays in place of the stamps that go: an event from before it that comes late brings no state back.
    """
    settled = _settle(state.settled, {item.event_id: "expired" for item in state.pending})
    return SessionState(
        turn_count=state.turn_count,
        context=state.context + 1,
        clock_ms=state.clock_ms,
        state_version=state.state_version + bool(state.state),
        state_since_ms=state.clock_ms,
        settled=settled,
        unknown=state.unknown,
    )


def ask_confirmation(
    state: SessionState, event: InteractionEvent, *, now_ms: int, settings: Session, text: str | None = None, facts: dict[str, Any] | None = None
) -> tuple[SessionState, int]:
    """The session with a decision that waits, and when it lapses in Unix ms. `facts`, as stored, hold once it is confirmed."""
    expires = now_ms + settings.confirm_ms
    live = tuple(item for item in state.pending if item.expires_at_ms > now_ms and item.event_id != event.event_id)
    said = (event.text or "") if text is None else text
    pending = (*live, Pending(event.event_id, said[: settings.turn_chars], expires))[-MAX_PENDING:]
    names = {item.event_id for item in pending}
    settled = _settle(state.settled, {item.event_id: "expired" for item in state.pending if item.event_id not in names})
    waiting = {name: kept for name, kept in {**state.waiting_facts, event.event_id: facts or {}}.items() if name in names and kept}
    return msgspec.structs.replace(state, pending=pending, settled=settled, waiting_facts=waiting), expires


Confirmation = Literal["confirmed", "declined", "expired", "unknown", "already"]
"""What a confirm came to: the last three change nothing."""


def confirm(state: SessionState, ref: str | None, *, accept: bool, now_ms: int) -> tuple[SessionState, Confirmation]:
    """The session after a confirm, and what it came to. Facts that waited for it are the caller's to merge: see `waiting_facts`."""
    found = next((item for item in state.pending if item.event_id == ref), None)
    if found is None or ref is None:
        ending = state.settled.get(ref or "")
        return state, "unknown" if ending is None else "expired" if ending == "expired" else "already"
    if found.expires_at_ms <= now_ms:
        return state, "expired"
    decisions = state.decisions
    if accept:
        decisions = (*decisions, Decision(found.event_id, found.text, now_ms))[-MAX_DECISIONS:]
    pending = tuple(item for item in state.pending if item is not found)
    waiting = {name: kept for name, kept in state.waiting_facts.items() if name != ref}
    ending = "confirmed" if accept else "declined"
    settled = _settle(state.settled, {ref: ending})
    return msgspec.structs.replace(state, pending=pending, decisions=decisions, waiting_facts=waiting, settled=settled), ending


def _settle(settled: dict[str, Ending], more: Mapping[str, Ending]) -> dict[str, Ending]:
    """The last `MAX_SETTLED` endings, oldest first."""
    merged = {**{name: ending for name, ending in settled.items() if name not in more}, **more}
    return dict(list(merged.items())[-MAX_SETTLED:])


def fit(state: SessionState, limits: Limits) -> bytes:
    """The stored bytes, at most `limits.session_bytes` of them (R09: an oversize write stops a worker).

    What does not fit goes in this order, of each the oldest first and no more than needed: turns, stamps of removed keys, confirmed decisions,
    waiting decisions (they lapse), facts. `state` is only reached when a limit was lowered or a newer release stored more: see `merge_state`. Then
    its stamps go before it, and after it the endings of decisions; fields of a newer release go last.
    """
    present = {key: stamp for key, stamp in state.state_stamps.items() if key in state.state}
    steps: tuple[tuple[int, Callable[[SessionState, int], SessionState]], ...] = (
        (len(state.turns), _without_turns),
        (1, lambda now, _: msgspec.structs.replace(now, state_stamps=present)),
        (len(state.decisions), lambda now, count: msgspec.structs.replace(now, decisions=now.decisions[count:])),
        (len(state.pending), _without_pending),
        (1, lambda now, _: msgspec.structs.replace(now, facts={}, waiting_facts={})),
        (1, lambda now, _: msgspec.structs.replace(now, state_stamps={})),
        (1, lambda now, _: msgspec.structs.replace(now, state={})),
        (1, lambda now, _: msgspec.structs.replace(now, settled={}, disputed={})),
        (1, lambda now, _: msgspec.structs.replace(now, unknown={})),
    )
    stored = dump_stored(state)
    for count, without in steps:
        if len(stored) <= limits.session_bytes:
            break
        state, stored = _least(state, count, without, limits.session_bytes)
    return stored


def _least(state: SessionState, count: int, without: Callable[[SessionState, int], SessionState], fits: int) -> tuple[SessionState, bytes]:
    """The session without as few of `count` parts as make it fit, without all when none do; halving, since a session may have thousands of turns."""
    low, high = min(1, count), count
    while low < high:
        middle = (low + high) // 2
        if len(dump_stored(without(state, middle))) <= fits:
            high = middle
        else:
            low = middle + 1
    left = without(state, low) if low else state
    return left, dump_stored(left)


def _without_turns(state: SessionState, count: int) -> SessionState:
    turns = state.turns[count:]
    known = {turn.event_id for turn in turns}
    return msgspec.structs.replace(state, turns=turns, disputed={name: verdict for name, verdict in state.disputed.items() if name in known})


def _without_pending(state: SessionState, count: int) -> SessionState:
    """Without the oldest waiting decisions and what waited for them; their confirm is answered as expired."""
    gone, left = state.pending[:count], state.pending[count:]
    names = {item.event_id for item in left}
    waiting = {name: kept for name, kept in state.waiting_facts.items() if name in names}
    settled = _settle(state.settled, {item.event_id: "expired" for item in gone})
    return msgspec.structs.replace(state, pending=left, waiting_facts=waiting, settled=settled)


def keep(index: KeptIndex, entry: KeptEntry, *, keep_last: int, committed: int, max_bytes: int) -> tuple[KeptIndex, tuple[str, ...]]:
    """The index with one more kept answer, and the event ids that may be forgotten: beyond the last `keep_last` and already committed.

    An offset above the newest one is of a log that was made anew since, and will not be delivered again. Whatever is not committed, the index
    stays below `max_bytes`: one that is too large to be written would end the worker, and the next one (R09).
    """
    entries = [*index.entries, entry]
    size = _INDEX_BYTES + _bytes(index.subjects) + _bytes(index.unknown) + sum(map(_entry_bytes, entries))
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
"""Of an index beside its entries, persons and foreign fields: names and heads of its fields, and its time."""


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
