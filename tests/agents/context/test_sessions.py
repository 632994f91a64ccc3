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
from schemas.session import STATE_ROOM, Ending, KeptEntry, KeptIndex, SessionState, Turn, dump_stored, load_stored
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


def decided(asked: int, confirmed: int, chars: int, state: SessionState) -> SessionState:
    """A session that asked for decisions of so many Chinese characters and had the first of them confirmed."""
    for number in range(asked):
        event = InteractionEvent(event_id=f"d{number}", session_id="s", kind="decision", text="汉" * chars)
        state, _ = sessions.ask_confirmation(state, event, now_ms=1000, settings=Session())
        if number < confirmed:
            state, _ = sessions.confirm(state, f"d{number}", accept=True, now_ms=1001)
    return state


def test_many_long_decisions_never_cost_the_state() -> None:
    """Full of decisions and state, a session loses its oldest decisions alone, no more than needed, and still knows how they ended."""
    state = sessions.merge_state(SessionState(unknown={"mood": "good"}, context=3), {"notes": "x" * 60_000}, Limits(), (1, 1))
    assert state is not None
    state = decided(40, 32, 2000, sessions.remember_turn(state, turn(1), Session()))
    assert len(dump_stored(state)) > Limits().session_bytes
    stored = sessions.fit(state, Limits())
    left = load_stored(stored, SessionState)
    assert Limits().session_bytes - 7000 < len(stored) <= Limits().session_bytes
    assert (left.state, left.state_stamps, left.state_version) == (state.state, state.state_stamps, 1)
    assert (left.pending, left.settled, left.unknown, left.context) == (state.pending, state.settled, {"mood": "good"}, 3)
    assert left.decisions
    assert left.decisions == state.decisions[-len(left.decisions) :]
    assert sessions.confirm(left, "d0", accept=True, now_ms=1002)[1] == "already"


def test_parts_of_a_session_go_in_the_order_that_is_documented() -> None:
    """Whatever the bound, nothing goes while something of lesser worth is there, and what is written always fits."""
    full = decided(12, 6, 200, SessionState(unknown={"mood": "good"}, turn_count=9, context=2, clock_ms=5, state_version=4))
    full = msgspec.structs.replace(
        full,
        turns=tuple(turn(number, 300) for number in range(6)),
        disputed={"e0": "wrong"},
        state={"a": "x" * 1500},
        state_stamps={"a": (1, 1), "gone" * 100: (0, 0)},
        facts={"v": 1, "facts": ["y" * 900]},
        waiting_facts={"d6": {"v": 1}},
    )
    worth = ("turns", "gone", "decisions", "pending", "facts", "stamps", "state", "settled", "unknown")
    seen = set()
    for bound in range(1024, len(dump_stored(full)) + 1, 37):
        stored = sessions.fit(full, Limits(session_bytes=bound))
        assert len(stored) <= bound
        left = load_stored(stored, SessionState)
        usual = (len(left.turns), len(left.state_stamps) > 1, len(left.decisions), len(left.pending), bool(left.facts))
        kept = (*usual, "a" in left.state_stamps, bool(left.state), bool(left.settled), bool(left.unknown))
        whole = (6, True, 6, 6, True, True, True, True, True)
        touched = [number for number, (part, all_of_it) in enumerate(zip(kept, whole, strict=True)) if part != all_of_it]
        assert touched == list(range(len(touched)))
        assert not any(kept[: len(touched) - 1])
        seen.add(worth[len(touched) - 1] if touched else "")
        assert (left.turn_count, left.context, left.clock_ms, left.state_version) == (9, 2, 5, 4)
        assert set(left.disputed) <= {item.event_id for item in left.turns}
        assert set(left.waiting_facts) <= {item.event_id for item in left.pending}
        for number in range(6, 12 - len(left.pending)):
            assert sessions.confirm(left, f"d{number}", accept=True, now_ms=1002)[1] == ("expired" if left.settled else "unknown")
    assert {"turns", "decisions", "pending", "state"} <= seen


def test_thousands_of_small_keys_are_refused_before_they_could_be_lost() -> None:
    """A state counts with its stamps: what is accepted is kept whole beside everything else, what is not leaves the session as it was."""
    state, limits = SessionState(), Limits()
    for first in range(0, 11_000, 500):
        patch = {f"{number:x}": 1 for number in range(first, first + 500)}
        merged = sessions.merge_state(state, patch, limits, (1_790_000_000_000, 10_000_000))
        if merged is None:
            break
        state = merged
    else:
        pytest.fail("11,000 keys are more than a session holds")
    assert len(state.state) > 5000
    full = decided(40, 32, 2000, state)
    left = load_stored(sessions.fit(full, limits), SessionState)
    assert (left.state, left.state_stamps) == (state.state, state.state_stamps)
    assert sessions.merge_state(left, {"0": 2}, limits, (1_790_000_000_001, 10_000_001)) is not None
    emptied = sessions.merge_state(left, {"z": 1}, limits, (1_790_000_000_001, 10_000_001), replaces=True)
    assert emptied is not None
    assert emptied.state == {"z": 1}


def test_a_session_of_an_older_release_may_change_and_shrink() -> None:
    """Above the bound already, it takes what makes it no larger, so that it is never stuck."""
    stamp = (1_790_000_000_000, 10_000_000)
    keys = [f"{number:x}" for number in range(11_000)]
    state = SessionState(state=dict.fromkeys(keys, 1), state_stamps=dict.fromkeys(keys, stamp))
    assert sessions.merge_state(state, {"new": 1}, Limits(), stamp) is None
    assert sessions.merge_state(state, {"0": 2}, Limits(), stamp) is not None
    assert sessions.merge_state(state, {"0": None}, Limits(), stamp) is not None
    assert load_stored(sessions.fit(state, Limits()), SessionState).state == state.state


def test_the_room_beside_the_state_holds_what_never_gives_way() -> None:
    """Endings with the longest ids, counts and field names fit beside the largest state that is accepted."""
    settled: dict[str, Ending] = {"汉" * 125 + f"{number:03}": "confirmed" for number in range(sessions.MAX_SETTLED)}
    state = SessionState(settled=settled, turn_count=2**40, context=2**40, clock_ms=2**50, state_version=2**40, locale="x" * 35)
    assert len(dump_stored(state)) <= STATE_ROOM


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


def test_persons_and_foreign_fields_count_in_the_index_of_kept_answers() -> None:
    """With the longest names of as many persons as are remembered, and fields of a newer release, the index stays below its bound."""
    index = KeptIndex(subjects=tuple("汉" * 126 + f"{number:02}" for number in range(64)), touched_ms=2**50, unknown={"mood": "x" * 5000})
    for offset in range(500):
        index, _ = sessions.keep(index, KeptEntry("汉" * 125 + str(offset), b"d" * 16, offset), keep_last=10_000, committed=0, max_bytes=65_536)
        assert len(dump_stored(index)) <= 65_536
    assert len(index.entries) > 50


def test_answers_of_a_log_that_was_made_anew_are_let_go() -> None:
    """Their offsets lie above all new ones: waiting for those to be committed would keep every answer from then on."""
    index = KeptIndex(tuple(KeptEntry(f"old{offset}", b"", offset) for offset in range(1000, 1003)))
    for offset in range(5):
        index, _ = sessions.keep(index, KeptEntry(f"e{offset}", b"", offset), keep_last=2, committed=offset, max_bytes=10_000)
    assert [entry.event_id for entry in index.entries] == ["e3", "e4"]


happenings = st.lists(st.tuples(st.sampled_from(["a", "b", "reset"]), st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=10)


@given(happenings)
def test_after_a_reset_only_what_happened_since_counts(made: list[tuple[str, int, int]]) -> None:
    """A reset empties the state as of the session's newest event: of each key the latest write since then is left, whenever it comes."""
    state = SessionState()
    expected: dict[str, tuple[tuple[int, int], int]] = {}
    since = newest = 0
    for offset, (key, value, at_ms) in enumerate(made):
        newest = max(newest, at_ms)
        state, _ = sessions.see_event(state, at_ms, Session(idle_s=0))
        if key == "reset":
            state, expected, since = sessions.reset(state), {}, newest
            continue
        stamp = (at_ms, offset)
        is_late = at_ms < since or expected.get(key, (stamp, 0))[0] > stamp
        assert sessions.stale_keys(state, {key: value}, stamp) == ((key,) if is_late else ())
        if not is_late:
            expected[key] = (stamp, value)
        state = sessions.merge_state(state, {key: value}, Limits(), stamp) or state
    assert state.state == {key: value for key, (_, value) in expected.items()}


def test_a_late_replacement_does_not_undo_a_reset() -> None:
    """A whole state from before the reset brings nothing back, and one from after it is taken."""
    state, _ = sessions.see_event(SessionState(state={"a": 1}, state_stamps={"a": (1000, 1)}), 2000, Session())
    state = sessions.reset(state)
    late = sessions.merge_state(state, {"a": 1, "b": 2}, Limits(), (1999, 5), replaces=True)
    assert (late or state).state == {}
    fresh = sessions.merge_state(state, {"b": 3}, Limits(), (2001, 6), replaces=True)
    assert fresh is not None
    assert fresh.state == {"b": 3}
