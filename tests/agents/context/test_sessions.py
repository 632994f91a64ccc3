"""How a session changes: bounded, deterministic, never more than may be written."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context import sessions
from agents.context.learning import event_time_ms
from schemas.events import InteractionEvent
from schemas.session import KeptEntry, KeptIndex, SessionState, Turn, dump_stored, load_stored
from schemas.settings import Limits, Session


def turn(number: int, size: int = 10) -> Turn:
    """A turn with texts of `size` characters."""
    return Turn(f"e{number}", number, "u" * size, "r" * size, "model")


def test_window_keeps_the_last_turns_and_moves_in_strides() -> None:
    """At least the last N turns are kept, fewer than twice as many, and the oldest one changes only once in N turns."""
    state, oldest = SessionState(), []
    for number in range(12):
        state = sessions.remember_turn(state, turn(number), Session(turns=3))
        assert state.turns[-1].event_id == f"e{number}"
        assert min(number + 1, 3) <= len(state.turns) < 6
        oldest.append(state.turns[0].event_id)
    assert len(set(oldest)) == 4
    assert state.turn_count == 12


def test_long_texts_are_kept_by_their_end() -> None:
    """A single text never takes more than its share."""
    state = sessions.remember_turn(SessionState(), Turn("e", 1, "a" * 50 + "end", "", "default"), Session(turn_chars=16))
    assert state.turns[0].user.endswith("end")
    assert len(state.turns[0].user) == 16


def test_stored_value_always_fits() -> None:
    """Sixty turns of 20,000 characters are cut before they are written, the newest kept (R09)."""
    state = SessionState()
    for number in range(60):
        state = sessions.remember_turn(state, turn(number, 20_000), Session(turns=1000, turn_chars=20_000))
    stored = sessions.fit(state, Limits(session_bytes=262_144))
    assert len(stored) <= 262_144
    assert load_stored(stored, SessionState).turns[-1].event_id == "e59"


def test_a_session_that_is_too_large_keeps_its_state_before_its_facts() -> None:
    """What the application told outlives what can be said again, and counts outlive everything."""
    state = SessionState(turns=(turn(1),), state={"gold": 5}, facts={"facts": ["x" * 3000]}, turn_count=7, clock_ms=9)
    assert load_stored(sessions.fit(state, Limits(session_bytes=2048)), SessionState).state == {"gold": 5}
    full = msgspec.structs.replace(state, state={"gold": "x" * 5000})
    left = load_stored(sessions.fit(full, Limits(session_bytes=2048)), SessionState)
    assert (left.state, left.turn_count, left.clock_ms) == ({}, 7, 9)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"b": 2}, {"a": 1, "b": 2}),
        ({"a": None}, {}),
        ({"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"c": {"x": None, "y": 1}}, {"a": 1, "c": {"y": 1}}),
    ],
)
def test_state_is_merged_as_a_json_merge_patch(patch: dict[str, object], expected: dict[str, object]) -> None:
    """Null removes, maps merge, the rest replaces (RFC 7396)."""
    merged = sessions.merge_state(SessionState(state={"a": 1}), patch, Limits())
    assert merged is not None
    assert merged.state == expected


def test_state_that_would_outgrow_its_bound_is_refused() -> None:
    """Many small patches must not add up to an unwritable session."""
    full = SessionState(state={"a": "x" * 60_000})
    assert sessions.merge_state(full, {"b": "x" * 10_000}, Limits()) is None


def test_decision_becomes_a_fact_only_by_its_confirm_in_time() -> None:
    """Late, foreign and repeated confirms change nothing."""
    event = InteractionEvent(event_id="d1", session_id="s", kind="decision", text="refund 20")
    state, expires = sessions.ask_confirmation(SessionState(), event, now_ms=1000, settings=Session(confirm_ms=5000))
    assert expires == 6000
    for ref, now_ms, why in (("other", 2000, "unknown"), (None, 2000, "unknown"), ("d1", 6000, "expired")):
        assert sessions.confirm(state, ref, accept=True, now_ms=now_ms) == (state, why)
    confirmed, came_to = sessions.confirm(state, "d1", accept=True, now_ms=2000)
    assert came_to == "confirmed"
    assert [item.text for item in confirmed.decisions] == ["refund 20"]
    assert sessions.confirm(confirmed, "d1", accept=True, now_ms=2001) == (confirmed, "already")
    assert sessions.confirm(confirmed, "d1", accept=False, now_ms=2001) == (confirmed, "already")
    declined, came_to = sessions.confirm(state, "d1", accept=False, now_ms=2000)
    assert came_to == "declined"
    assert declined.decisions == ()
    assert sessions.confirm(declined, "d1", accept=True, now_ms=2001) == (declined, "already")


def test_a_decision_that_gave_way_is_answered_as_lapsed() -> None:
    """Of more decisions than may wait at once the oldest lapses, with the facts that waited for it, and so do those that a reset ends."""
    state = SessionState()
    for number in range(10):
        event = InteractionEvent(event_id=f"d{number}", session_id="s", kind="decision", text="x")
        state, _ = sessions.ask_confirmation(state, event, now_ms=1000, settings=Session(), facts={"v": 1, "facts": [number]})
    assert [item.event_id for item in state.pending] == [f"d{number}" for number in range(2, 10)]
    assert list(state.waiting_facts) == [item.event_id for item in state.pending]
    assert sessions.confirm(state, "d1", accept=True, now_ms=1001) == (state, "expired")
    ended = sessions.reset(state)
    assert ended.waiting_facts == {}
    assert sessions.confirm(ended, "d9", accept=True, now_ms=1001) == (ended, "expired")


def test_endings_are_bounded() -> None:
    """A session that decides for ever remembers the last endings alone."""
    state = SessionState()
    for number in range(200):
        event = InteractionEvent(event_id=f"d{number}", session_id="s", kind="decision", text="x")
        state, _ = sessions.ask_confirmation(state, event, now_ms=1000, settings=Session())
        state, _ = sessions.confirm(state, f"d{number}", accept=True, now_ms=1001)
    assert len(state.settled) == sessions.MAX_SETTLED
    assert len(state.decisions) == sessions.MAX_DECISIONS
    assert sessions.confirm(state, "d199", accept=True, now_ms=1001)[1] == "already"


writes = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 3)), min_size=1, max_size=8)


@given(writes, st.randoms())
def test_the_later_write_of_a_key_wins_in_whatever_order_they_come(made: list[tuple[str, int | None, int]], random: Random) -> None:
    """Events that come late or twice leave the state that they would have left in order: by time, then by offset."""
    stamped = [({key: value}, (at, offset)) for offset, (key, value, at) in enumerate(made)]
    shuffled = [*stamped, *random.sample(stamped, len(stamped))]
    random.shuffle(shuffled)
    results = []
    for order in (sorted(stamped, key=lambda one: one[1]), shuffled):
        state = SessionState()
        for patch, stamp in order:
            state = sessions.merge_state(state, patch, Limits(), stamp) or state
        results.append((state.state, state.state_stamps))
    assert results[0] == results[1]


def test_a_late_write_changes_nothing_and_is_named() -> None:
    """Keys that a later event has written are told as stale; the version counts changes alone."""
    state = sessions.merge_state(SessionState(), {"gold": 5}, Limits(), (2000, 8))
    assert state is not None
    late = sessions.merge_state(state, {"gold": 1, "hat": "red"}, Limits(), (1000, 9))
    assert late is not None
    assert (late.state, late.state_version) == ({"gold": 5, "hat": "red"}, 2)
    assert sessions.stale_keys(state, {"gold": 1, "hat": "red"}, (1000, 9)) == ("gold",)


def test_state_is_replaced_whole_on_demand() -> None:
    """What the new state does not name goes, nested values are not merged, and a later event's keys stay."""
    state = sessions.merge_state(SessionState(), {"a": {"x": 1}, "b": 2}, Limits(), (1000, 1))
    assert state is not None
    state = sessions.merge_state(state, {"late": 1}, Limits(), (3000, 2))
    assert state is not None
    replaced = sessions.merge_state(state, {"a": {"y": 2}}, Limits(), (2000, 3), replaces=True)
    assert replaced is not None
    assert replaced.state == {"a": {"y": 2}, "late": 1}


def test_stamps_of_removed_keys_are_bounded() -> None:
    """A session that adds and removes keys for ever stays small."""
    state = SessionState()
    for number in range(500):
        for value in (1, None):
            merged = sessions.merge_state(state, {f"k{number}": value}, Limits(), (number, number))
            assert merged is not None
            state = merged
    assert state.state == {}
    assert len(state.state_stamps) == sessions.MAX_GONE


def test_a_long_silence_begins_a_new_context() -> None:
    """Turns and waiting decisions go, the affair's facts and state stay; a far-future stamp counts as its arrival, an older one turns nothing back."""
    settings = Session(idle_s=60)
    state = SessionState(turns=(turn(1),), state={"a": 1}, facts={"v": 1, "facts": []}, clock_ms=1000)
    same, is_new = sessions.see_event(state, 61_000, settings)
    assert not is_new
    assert (same.turns, same.clock_ms) == (state.turns, 61_000)
    older, is_new = sessions.see_event(same, 5, settings)
    assert (older.clock_ms, is_new) == (61_000, False)
    fresh, is_new = sessions.see_event(same, 121_001, settings)
    assert is_new
    assert (fresh.turns, fresh.state, fresh.facts, fresh.context) == ((), {"a": 1}, state.facts, 1)
    assert event_time_ms(4_070_908_800_000, -1, 5000) == 5000
    assert event_time_ms(None, 4000, 5000) == 4000
    assert event_time_ms(None, -1, 5000) == 5000


def test_uncommitted_answers_are_never_forgotten() -> None:
    """Beyond the last N an answer goes only when its record cannot be delivered again."""
    index, forgotten = KeptIndex(), tuple[str, ...]()
    for offset in range(6):
        index, forgotten = sessions.keep(index, KeptEntry(f"e{offset}", b"", offset), keep_last=2, committed=3, max_bytes=10_000)
    assert [entry.offset for entry in index.entries] == [3, 4, 5]
    index, forgotten = sessions.keep(index, KeptEntry("e6", b"", 6), keep_last=2, committed=7, max_bytes=10_000)
    assert forgotten == ("e3", "e4")


def test_reset_forgets_the_context_and_keeps_foreign_fields() -> None:
    """Nothing of the old context stays, fields of a newer release do."""
    state = SessionState(turns=(turn(1),), state={"a": 1}, turn_count=4, unknown={"mood": "good"})
    assert sessions.reset(state) == SessionState(turn_count=4, context=1, state_version=1, unknown={"mood": "good"})
    assert msgspec.msgpack.decode(sessions.fit(sessions.reset(state), Limits()))["mood"] == "good"


def test_the_index_of_kept_answers_always_fits() -> None:
    """Commits that fail for long, or thousands of kept answers with long ids, let the oldest go before the index is too large to be written."""
    index, forgotten = KeptIndex(), 0
    for offset in range(3000):
        index, gone = sessions.keep(index, KeptEntry("汉" * 128 + str(offset), b"d" * 16, offset), keep_last=10_000, committed=0, max_bytes=100_000)
        forgotten += len(gone)
        assert len(dump_stored(index)) <= 100_000
    assert index.entries[-1].offset == 2999
    assert forgotten + len(index.entries) == 3000


def test_answers_of_a_log_that_was_made_anew_are_let_go() -> None:
    """Their offsets lie above all new ones: waiting for those to be committed would keep every answer from then on."""
    index = KeptIndex(tuple(KeptEntry(f"old{offset}", b"", offset) for offset in range(1000, 1003)))
    for offset in range(5):
        index, _ = sessions.keep(index, KeptEntry(f"e{offset}", b"", offset), keep_last=2, committed=offset, max_bytes=10_000)
    assert [entry.event_id for entry in index.entries] == ["e3", "e4"]
