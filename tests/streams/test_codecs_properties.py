"""The codec held against generated events and generated damage: no bytes raise, and what is written can be read."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.dead_letters import Undecodable
from schemas.events import InteractionEvent
from schemas.settings import Limits
from streams.codecs import Headers, check_plain, decode_event, encode_record
from tests.streams.codec_support import accepted, decode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
IDS = st.text(min_size=1, max_size=128)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 10_000),
        "stop": st.lists(st.text(min_size=1, max_size=20), max_size=8),
        "stream": st.booleans(),
        "temperature": st.floats(0, 2),
        "json_schema": st.dictionaries(st.text(max_size=10), PLAIN, max_size=3),
    },
)
EVENTS = st.fixed_dictionaries(
    {"event_id": IDS, "session_id": IDS, "text": st.text(max_size=100)},
    optional={
        "tenant": IDS,
        "subject": st.none() | st.text(max_size=128),
        "locale": st.sampled_from(["en", "zh-CN", "pt_BR", "zh-Hant-TW"]),
        "kind": st.sampled_from(["message", "context", "decision", "confirm", "reset", "cancel", "feedback"]),
        "scenario": IDS,
        "state": st.dictionaries(st.text(max_size=10), PLAIN, max_size=4),
        "occurred_at_ms": st.none() | st.integers(-(2**63), 2**63 - 1),
        "deadline_ms": st.none() | st.integers(-1000, 10**9) | st.floats(allow_nan=False, allow_infinity=False),
        "answer": ANSWERS,
        "consent": st.fixed_dictionaries({}, optional={"ai_reply": st.booleans(), "store_history": st.booleans(), "later": st.booleans()}),
        "ref": st.none() | IDS,
        "accept": st.booleans(),
        "metadata": st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=3),
        "unheard_of": PLAIN,
    },
)


@given(st.binary(max_size=400), st.none() | st.binary(max_size=20), st.sampled_from([(), (("content-type", b"application/json"),)]))
def test_arbitrary_bytes_end_as_an_event_or_a_reason(value: bytes, key: bytes | None, headers: Headers) -> None:
    """No bytes raise."""
    assert isinstance(decode(value, key, headers), InteractionEvent | Undecodable)


@given(EVENTS, st.data())
def test_damaged_events_end_as_an_event_or_a_reason(tree: dict[str, Any], data: st.DataObject) -> None:
    """Flipped, cut and repeated pieces of good events do not raise either; what still decodes can be written again."""
    raw = bytearray(msgpack.packb(tree) if data.draw(st.booleans()) else json.dumps(tree).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        raw = raw or bytearray(b"\x80")
    outcome = decode(bytes(raw))
    assert isinstance(outcome, InteractionEvent | Undecodable)
    if isinstance(outcome, InteractionEvent):
        assert encode_record(outcome, "json")
        assert encode_record(outcome, "msgpack")


@given(EVENTS)
def test_both_encodings_of_one_event_are_equal(tree: dict[str, Any]) -> None:
    """MessagePack and JSON of the same map decode to equal events with equal digests."""
    from_msgpack, from_json = accepted(msgpack.packb(tree)), accepted(json.dumps(tree).encode())
    assert from_msgpack == from_json
    assert from_msgpack.digest() == from_json.digest()


@given(EVENTS, st.sampled_from(["msgpack", "json"]))
def test_an_event_survives_being_written_and_read(tree: dict[str, Any], encoding: Any) -> None:
    """Whatever decodes can be encoded in both encodings and decodes to itself."""
    event = accepted(msgpack.packb(tree))
    assert accepted(encode_record(event, encoding)) == event


@given(PLAIN)
def test_what_is_plain_can_be_written_in_both_encodings(value: object) -> None:
    """`check_plain` passes only what both encoders take."""
    deep = Limits(state_depth=100)
    assert check_plain(value, deep) is None
    assert msgspec.json.encode(value)
    assert msgspec.msgpack.encode(value)


def test_depth_is_counted_in_levels() -> None:
    """`limits.state_depth` levels pass, one more does not, and depth costs no stack."""
    limits = Limits(state_depth=3)
    assert check_plain([[[]]], limits) is None
    assert check_plain([[[1]]], limits) is None
    assert check_plain([[[[1]]]], limits) is not None
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    assert check_plain(deep, limits) is not None
    while deep:
        deep = deep.pop()


@pytest.mark.parametrize("field", ["state", "answer"])
def test_more_values_than_could_be_kept_are_not_looked_at(field: str) -> None:
    """A flood of tiny values is refused by its number: looking at each would hold the loop for long."""
    flood = [0] * 100_000
    value = msgspec.json.encode({"event_id": "e", "session_id": "s", "text": "t", field: {"json_schema": {"a": flood}}})
    verdict = decode_event(value, None, (), Limits())
    assert isinstance(verdict, Undecodable)
    assert (verdict.reason, "more values" in verdict.detail) == ("invalid_field", True)


@pytest.mark.parametrize("odd", [2**64, -(2**63) - 1, {"deep": [2**64]}])
def test_one_odd_value_among_many_is_found(odd: object) -> None:
    """Values of a level are checked together, and none is overlooked."""
    value = b'{"event_id":"e","session_id":"s","text":"t","state":{"a":' + json.dumps([1, "x", None, True, 2.5, odd, {"k": 1}]).encode() + b"}}"
    verdict = decode_event(value, None, (), Limits())
    assert isinstance(verdict, Undecodable)
    assert verdict.detail.startswith("state: ")
