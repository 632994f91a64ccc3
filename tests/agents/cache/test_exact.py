"""Kept answers in memory: bounded in number, bytes and age."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.cache.exact import SLOT_BYTES, ExactStore, Note, Notes, entry_of, event_digest, load_entry
from schemas.deadline import ManualClock
from tests.agents.cache.cache_support import MODEL, said

KEYS = [bytes([number]) * 32 for number in range(8)]


def store(clock: ManualClock, *, entries: int = 4, max_bytes: int = 100_000) -> tuple[ExactStore, Counter[Any]]:
    """A store and what it counts."""
    counts: Counter[Any] = Counter()
    return ExactStore(entries=entries, max_bytes=max_bytes, clock=clock, count=lambda event: counts.update([event])), counts


def test_an_answer_ends_with_its_time() -> None:
    """Up to its last moment it is given, then it is gone and so are its bytes."""
    clock = ManualClock()
    kept, counts = store(clock)
    assert kept.put(KEYS[0], b"yes", 10)
    clock.advance(9.9)
    assert kept.get(KEYS[0]) is not None
    clock.advance(0.1)
    assert kept.get(KEYS[0]) is None
    assert (len(kept), kept.bytes, counts["expired"]) == (0, 0, 1)


def test_the_one_used_longest_ago_makes_room() -> None:
    """Being given counts as use."""
    kept, counts = store(ManualClock(), entries=2)
    kept.put(KEYS[0], b"a", 60)
    kept.put(KEYS[1], b"b", 60)
    kept.get(KEYS[0])
    kept.put(KEYS[2], b"c", 60)
    assert [kept.get(key) is not None for key in KEYS[:3]] == [True, False, True]
    assert counts["evicted"] == 1


def test_an_answer_larger_than_all_the_room_is_not_kept() -> None:
    """And nothing else is thrown out for it."""
    kept, _ = store(ManualClock(), max_bytes=2 * SLOT_BYTES)
    kept.put(KEYS[0], b"a", 60)
    assert not kept.put(KEYS[1], b"x" * 2 * SLOT_BYTES, 60)
    assert kept.get(KEYS[0]) is not None


def test_a_closed_question_keeps_nothing_for_a_while() -> None:
    """After a wrong answer the same one is not let in again, until its time is over."""
    clock = ManualClock()
    kept, _ = store(clock)
    kept.put(KEYS[0], b"wrong", 60)
    assert kept.close(KEYS[0], 10)
    assert kept.get(KEYS[0]) is None
    assert not kept.put(KEYS[0], b"wrong", 60)
    clock.advance(10)
    assert not kept.is_closed(KEYS[0])
    assert kept.put(KEYS[0], b"right", 60)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "close", "wait"]), st.integers(0, 7), st.integers(0, 4000), st.floats(0.1, 20)), min_size=1, max_size=60
)


@given(STEPS, st.integers(1, 5), st.integers(1000, 9000))
def test_the_bounds_hold_whatever_happens(steps: list[tuple[str, int, int, float]], entries: int, max_bytes: int) -> None:
    """Number and bytes stay within bounds after every step, bytes are the sum of what is kept, and nothing is given that was not put, or is too old."""
    clock = ManualClock()
    kept, _ = store(clock, entries=entries, max_bytes=max_bytes)
    put: dict[bytes, tuple[bytes, float]] = {}
    for action, number, size, seconds in steps:
        key = KEYS[number]
        if action == "put" and kept.put(key, bytes(size), seconds):
            put[key] = (bytes(size), clock.monotonic() + seconds)
        elif action == "close":
            kept.close(key, seconds)
            put.pop(key, None)
        elif action == "wait":
            clock.advance(seconds)
        slot = kept.get(key)
        if slot is not None:
            assert slot.value == put[key][0]
            assert clock.monotonic() < put[key][1]
        assert len(kept) <= entries
        assert 0 <= kept.bytes <= max_bytes
        held = [found.value for one in KEYS if (found := kept.get(one)) is not None]
        assert kept.bytes == sum(len(value) + SLOT_BYTES for value in held)


def test_clearing_leaves_only_what_is_closed() -> None:
    """No answer is left and none takes room; a question whose answer was called wrong stays closed, and others are kept as ever."""
    kept, _ = store(ManualClock())
    kept.put(KEYS[0], b"a", 60)
    kept.close(KEYS[1], 60)
    kept.clear()
    assert (len(kept), kept.bytes, kept.get(KEYS[0])) == (0, 0, None)
    assert not kept.put(KEYS[1], b"b", 60)
    assert kept.put(KEYS[0], b"a", 60)
    notes = Notes(4)
    notes.write(KEYS[2], Note(KEYS[0], 60))
    notes.clear()
    assert notes.read(KEYS[2]) is None


def test_notes_forget_the_oldest() -> None:
    """Memory stays flat however many events are given kept answers."""
    notes = Notes(2)
    events = [event_digest("t", "s", str(number)) for number in range(3)]
    for event in events:
        notes.write(event, Note(KEYS[0], 1.0))
    assert [notes.read(event) is not None for event in events] == [False, True, True]
    assert len(notes) == 2


def test_events_are_told_apart_by_tenant_session_and_id() -> None:
    """An event id means something within its session alone, and no two triples run together."""
    triples = [("a", "b", "c"), ("ab", "", "c"), ("a", "bc", ""), ("b", "a", "c")]
    assert len({event_digest(*triple) for triple in triples}) == len(triples)


def test_an_answer_comes_back_as_it_was() -> None:
    """Text, finish and writer survive, and foreign bytes are no answer."""
    entry = load_entry(entry_of(said('{"a":1}', data={"a": 1}, finish_reason="length"), MODEL, 5))
    assert entry is not None
    assert (entry.text, entry.is_json, entry.finish_reason, entry.model, entry.made_ms) == ('{"a":1}', True, "length", MODEL, 5)
    assert load_entry(b"\x93foreign") is None
