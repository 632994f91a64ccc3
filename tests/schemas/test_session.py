"""Stored values: a release reads what its neighbours wrote and gives back what it does not know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.session import (
    Decision,
    KeptAnswer,
    KeptEntry,
    KeptIndex,
    Pending,
    SessionState,
    Turn,
    answer_key,
    dump_stored,
    load_stored,
    session_key,
)

SESSION = SessionState(
    turns=(Turn(event_id="e-1", at_ms=1_790_000_000_000, user="你好", reply="Hello!", outcome="model"),),
    state={"gold": 120, "bag": ["rope", {"of": "holding"}]},
    pending=(Pending("e-2", "Sell the sword", 1_790_000_600_000),),
    decisions=(Decision("e-0", "Join the guild", 1_789_999_999_000),),
    turn_count=1,
    locale="zh-CN",
)
ANSWER = KeptAnswer(digest=b"\x00" * 16, value=b"\x81\xa1a\x01", headers=(("content-type", b"application/msgpack"),), outcome="model", reason=None)
INDEX = KeptIndex(entries=(KeptEntry("e-1", b"\x01" * 16, 17),))
STORED = [SESSION, ANSWER, INDEX]


@pytest.mark.parametrize("value", STORED, ids=lambda value: type(value).__name__)
def test_what_is_stored_is_read_back(value: Any) -> None:
    """A stored value survives the way through bytes."""
    assert load_stored(dump_stored(value), type(value)) == value


@pytest.mark.parametrize("value", STORED, ids=lambda value: type(value).__name__)
def test_a_newer_release_loses_nothing_by_our_writing(value: Any) -> None:
    """Fields and a version that we do not know are kept through load and dump."""
    newer = msgspec.msgpack.decode(dump_stored(value)) | {"v": 2, "mood": {"now": "calm"}, "score": 3.5, "blob": b"\x00"}
    again = msgspec.msgpack.decode(dump_stored(load_stored(msgspec.msgpack.encode(newer), type(value))))
    assert again == newer


@pytest.mark.parametrize("value", STORED, ids=lambda value: type(value).__name__)
def test_an_older_release_s_value_is_read_with_defaults(value: Any) -> None:
    """Fields that an older release did not write take their defaults."""
    fields: dict[str, Any] = msgspec.msgpack.decode(dump_stored(value))
    required = {"digest", "value", "headers", "outcome", "reason"} if isinstance(value, KeptAnswer) else set()
    old = {key: field for key, field in fields.items() if key in required}
    assert load_stored(msgspec.msgpack.encode(old), type(value)).v == 1


@pytest.mark.parametrize("part", ["turns", "pending", "decisions"])
def test_what_a_newer_release_added_to_a_part_survives_our_writing(part: str) -> None:
    """Fields inside a turn or a decision that we do not know are kept through load and dump, beside those that we do."""
    full = msgspec.structs.replace(SESSION, pending=(Pending("d", "x", 5),), decisions=(Decision("c", "y", 6),))
    newer = msgspec.msgpack.decode(dump_stored(full))
    newer[part] = [{**entry, "mood": {"now": "calm"}, "score": 3.5} for entry in newer[part]]
    assert newer[part]
    loaded = load_stored(msgspec.msgpack.encode(newer), SessionState)
    assert msgspec.msgpack.decode(dump_stored(loaded)) == newer
    assert "mood" not in msgspec.structs.asdict(getattr(loaded, part)[0])


def test_a_field_that_we_know_is_never_shadowed_by_an_unknown_one() -> None:
    """What we set wins over a stray field of the same name."""
    odd = msgspec.structs.replace(SESSION, unknown={"turn_count": 99, "later": 1})
    assert load_stored(dump_stored(odd), SessionState).turn_count == 1


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x90", b"\x81\xa5turns\x07", b"\x81\x01\x02"], ids=["empty", "no msgpack", "a list", "wrong type", "odd key"])
def test_foreign_bytes_are_refused_by_name(raw: bytes) -> None:
    """Bytes that this product did not write raise an error of the documented family, never a half-read value."""
    with pytest.raises(msgspec.DecodeError):
        load_stored(raw, SessionState)


@given(st.lists(st.text(max_size=20), min_size=3, max_size=3), st.lists(st.text(max_size=20), min_size=3, max_size=3))
def test_keys_never_meet(one: list[str], other: list[str]) -> None:
    """Two sessions, two answers, or a session and an answer share a key only when they are the same."""
    assert (session_key(one[0], one[1]) == session_key(other[0], other[1])) == (one[:2] == other[:2])
    assert (answer_key(*one) == answer_key(*other)) == (one == other)
    assert answer_key(*one) != session_key(other[0], other[1])
