"""How a session changes: bounded, deterministic, never more than may be written."""

from __future__ import annotations

import msgspec
import pytest

from agents.context import sessions
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
    for ref, now_ms in (("other", 2000), ("d1", 6000)):
        after, met = sessions.confirm(state, ref, accept=True, now_ms=now_ms)
        assert (after, met) == (state, False)
    confirmed, met = sessions.confirm(state, "d1", accept=True, now_ms=2000)
    assert met
    assert [item.text for item in confirmed.decisions] == ["refund 20"]
    assert sessions.confirm(confirmed, "d1", accept=True, now_ms=2001)[1] is False
    declined, met = sessions.confirm(state, "d1", accept=False, now_ms=2000)
    assert met
    assert declined.decisions == ()


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
    assert sessions.reset(state) == SessionState(turn_count=4, unknown={"mood": "good"})
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
