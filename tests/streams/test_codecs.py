"""The codec: whatever bytes arrive, they end as an event or as a reason; nothing raises and nothing half-decoded passes."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from schemas.dead_letters import Undecodable
from schemas.events import InteractionEvent
from schemas.settings import Limits
from streams.codecs import MAX_DETAIL, MAX_KEY_BYTES, carried_headers, decode_event, encoding_of, header
from tests.streams.codec_support import EVENT, LIMITS, accepted, decode


def packed(**fields: Any) -> bytes:
    """A good event in MessagePack, with these fields changed or added."""
    raw: bytes = msgpack.packb({**EVENT, **fields})
    return raw


def dumped(**fields: Any) -> bytes:
    """The same in JSON."""
    return json.dumps({**EVENT, **fields}).encode()


def spliced(field: str, literal: bytes) -> bytes:
    """A good event in JSON with `field` written exactly as `literal`."""
    return dumped()[:-1] + b', "' + field.encode() + b'": ' + literal + b"}"


UNDECODABLE = {
    "nothing at all": b"",
    "a byte that MessagePack never uses": b"\xc1",
    "a map that ends too early": packed()[:-3],
    "two events in one record": packed() + packed(event_id="e-2"),
    "trailing garbage": packed() + b"\x00",
    "JSON after a byte order mark": b"\xef\xbb\xbf" + dumped(),
    "JSON after a space, without a header": b" " + dumped(),
    "JSON cut short": dumped()[:-1],
    "JSON in Latin-1": b'{"event_id": "e-1", "session_id": "s-1", "text": "caf\xe9"}',
    "JSON with NaN": spliced("deadline_ms", b"NaN"),
    "JSON with a number beyond doubles": spliced("deadline_ms", b"1e999"),
    "JSON with half a surrogate pair": spliced("scenario", b'"\\ud83d"'),
    "JSON with half a surrogate pair as a key": spliced("state", b'{"\\udc00": 1}'),
    "JSON nested beyond any stack": spliced("extra", b"[" * 100_000 + b"]" * 100_000),
    "a surrogate in MessagePack": msgpack.packb({**EVENT, "text": "\ud800"}, unicode_errors="surrogatepass"),
    "GBK bytes sent as a string": packed().replace(b"Where is my parcel?", "包裹在哪里".encode("gbk").ljust(19)),
    "a map as a map key": bytes.fromhex("8180c0"),
    "an array as a map key": bytes.fromhex("819101c0"),
    "an integer as a map key": bytes.fromhex("8101a178"),
    "arrays nested beyond the decoder's stack": b"\x91" * 6000 + b"\xc0",
    "kilobytes of nested headers that each announce 65,535 items": bytes.fromhex("dcffff") * 20_000,
    "a string that announces 4 GiB": bytes.fromhex("dbffffffff"),
    "binary data that announces 4 GiB": bytes.fromhex("c6ffffffff"),
    "an extension that announces 4 GiB": bytes.fromhex("c9ffffffff07"),
    "a map that announces four thousand million pairs": bytes.fromhex("dfffffffff"),
    "an array that announces four thousand million items": bytes.fromhex("ddffffffff"),
    "a timestamp whose nanoseconds overflow": bytes.fromhex("81a174c70cff") + b"\xff" * 12,
}

NOT_A_MAP = {
    "MessagePack nil": b"\xc0",
    "the digit 7, an integer to MessagePack": b"7",
    "an array at the top": bytes.fromhex("93010203"),
    "JSON text inside a MessagePack string": msgpack.packb(dumped().decode()),
    "binary data at the top": msgpack.packb(b"\x00\x01"),
    "a timestamp at the top": msgpack.packb(msgpack.Timestamp(1_700_000_000, 5)),
    "an unknown extension at the top": msgpack.packb(msgpack.ExtType(42, b"abcd")),
}

INVALID = {
    "binary keys": msgpack.packb({key.encode(): value for key, value in EVENT.items()}),
    "a number as event id": packed(event_id=12),
    "an empty event id": packed(event_id=""),
    "an event id of 129 characters": packed(event_id="x" * 129),
    "a list as session id": packed(session_id=["s-1"]),
    "a null session id": packed(session_id=None),
    "a map as text": packed(text={"a": 1}),
    "binary text": packed(text="好".encode()),
    "an extension as text": packed(text=msgpack.ExtType(42, b"abcd")),
    "a timestamp as text": packed(text=msgpack.Timestamp(1, 2)),
    "an unknown kind": packed(kind="shout"),
    "a word as a budget": packed(deadline_ms="soon"),
    "true as a budget": packed(deadline_ms=True),
    "NaN as a budget": packed(deadline_ms=float("nan")),
    "infinity as a budget": packed(deadline_ms=float("inf")),
    "minus infinity as a budget": packed(deadline_ms=float("-inf")),
    "a budget of 400 digits": spliced("deadline_ms", b"9" * 400),
    "a word as time": packed(occurred_at_ms="yesterday"),
    "a fraction as time": packed(occurred_at_ms=1.5),
    "a time beyond 64 bits": packed(occurred_at_ms=2**64 - 1),
    "a time of 30 digits": spliced("occurred_at_ms", b"9" * 30),
    "a locale that is a sentence": packed(locale="not a locale"),
    "no state at all, spelled null": packed(state=None),
    "NaN in the state": packed(state={"hp": [1, float("nan")]}),
    "infinity in the state": packed(state={"hp": {"max": float("inf")}}),
    "binary data in the state": packed(state={"icon": b"\x89PNG"}),
    "a timestamp in the state": packed(state={"since": msgpack.Timestamp(1, 2)}),
    "an extension in the state": packed(state={"it": [msgpack.ExtType(5, b"x")]}),
    "an integer beyond 64 bits in the state": spliced("state", b'{"gold": 18446744073709551616}'),
    "a very negative integer in the state": spliced("state", b'{"gold": -9223372036854775809}'),
    "a state nested 17 deep": packed(state=json.loads('{"a":' * 17 + "1" + "}" * 17)),
    "a state nested 900 deep in JSON": spliced("state", b'{"a":' * 900 + b"1" + b"}" * 900),
    "a state above its size": packed(state={"notes": "x" * LIMITS.state_bytes}),
    "a number in the metadata": packed(metadata={"attempt": 1}),
    "metadata above their size": packed(metadata={"note": "x" * LIMITS.metadata_bytes}),
    "zero tokens": packed(answer={"max_tokens": 0}),
    "a temperature of NaN": packed(answer={"temperature": float("nan")}),
    "a temperature of 3": packed(answer={"temperature": 3}),
    "a choice of nothing": packed(answer={"choice": []}),
    "a choice and a pattern": packed(answer={"choice": ["yes", "no"], "regex": "y|n"}),
    "binary data in a JSON schema": packed(answer={"json_schema": {"const": b"x"}}),
    "consent by a word": packed(consent={"ai_reply": "yes"}),
    "a number as reference": packed(kind="cancel", ref=7),
    "a version that is a word": packed(schema_version="1"),
    "a version that is true": packed(schema_version=True),
    "version 0": packed(schema_version=0),
}

MISSING = {
    "an empty map": b"\x80",
    "an empty object": b"{}",
    "no event id": msgpack.packb({"session_id": "s-1", "text": "hi"}),
    "a message without text": msgpack.packb({"event_id": "e-1", "session_id": "s-1"}),
    "a message whose text is null": packed(text=None),
    "a decision without text": msgpack.packb({"event_id": "e-1", "session_id": "s-1", "kind": "decision"}),
}


def test_the_examples_of_bad_bytes_are_real_bytes() -> None:
    """No example is empty by mistake, and the good event that they are made from is accepted."""
    assert accepted(packed()) == accepted(dumped())
    assert all(value for name, value in UNDECODABLE.items() if name != "nothing at all")


@pytest.mark.parametrize("name", UNDECODABLE)
def test_bytes_of_neither_encoding_are_undecodable(name: str) -> None:
    """Bytes that are no MessagePack and no JSON are a value that says so, with a bounded detail."""
    verdict = decode(UNDECODABLE[name])
    assert isinstance(verdict, Undecodable), verdict
    assert verdict.reason == "undecodable"
    assert 0 < len(verdict.detail) <= MAX_DETAIL


@pytest.mark.parametrize("name", NOT_A_MAP)
def test_a_value_that_is_no_map_is_named_so(name: str) -> None:
    """A top level other than a map is `not_a_map`, and never taken for an event's field."""
    verdict = decode(NOT_A_MAP[name])
    assert isinstance(verdict, Undecodable), verdict
    assert verdict.reason == "not_a_map"


@pytest.mark.parametrize("name", INVALID)
def test_a_wrong_value_is_an_invalid_field(name: str) -> None:
    """A value of the wrong type or out of range is `invalid_field`, never coerced."""
    verdict = decode(INVALID[name])
    assert isinstance(verdict, Undecodable), verdict
    assert verdict.reason == "invalid_field"
    assert 0 < len(verdict.detail) <= MAX_DETAIL


@pytest.mark.parametrize("name", MISSING)
def test_an_absent_required_field_is_named(name: str) -> None:
    """What is required and absent is `missing_field`, with its name."""
    verdict = decode(MISSING[name], key=b"s-1")
    assert isinstance(verdict, Undecodable), verdict
    assert verdict.reason == "missing_field"
    assert any(field in verdict.detail for field in ("event_id", "text"))


@pytest.mark.parametrize("version", [2, 77, 2**64 - 1])
def test_a_newer_version_is_refused_whatever_else_it_holds(version: int) -> None:
    """A `schema_version` above the known one is `unsupported_version`, before its fields are judged by our rules."""
    for value in (packed(schema_version=version), packed(schema_version=version, kind="telepathy", text=5)):
        verdict = decode(value)
        assert isinstance(verdict, Undecodable)
        assert verdict.reason == "unsupported_version"


def test_a_value_above_the_limit_is_too_large_before_it_is_decoded() -> None:
    """One byte above `limits.event_bytes` is `too_large`; at the limit it is decoded."""
    limits = Limits(event_bytes=4096)
    room = 4096 - len(packed(pad=""))
    fits = packed(pad="x" * (room - 2))
    assert len(fits) == 4096
    assert isinstance(decode_event(fits, None, (), limits), InteractionEvent)
    verdict = decode_event(fits + b"\x00", None, (), limits)
    assert isinstance(verdict, Undecodable)
    assert verdict.reason == "too_large"


def test_a_detail_never_quotes_what_was_written() -> None:
    """Details are logged, so no field's value may be in them."""
    secret = "my card is 4929"
    for fields in ({"kind": secret}, {"locale": secret}, {"deadline_ms": secret}, {"event_id": [secret]}, {"metadata": {secret: 1}}, {"state": {secret: b""}}):
        verdict = decode(packed(**fields))
        assert isinstance(verdict, Undecodable)
        assert secret not in verdict.detail


def test_the_last_of_two_equal_keys_wins_in_both_encodings() -> None:
    """Duplicate keys are decided one way, whatever the encoding."""
    in_msgpack = bytes.fromhex("84") + packed()[1:] + msgpack.packb("event_id") + msgpack.packb("e-2")
    assert accepted(in_msgpack).event_id == accepted(spliced("event_id", b'"e-2"')).event_id == "e-2"


@pytest.mark.parametrize(
    "extra",
    [
        {"__faust": {"ns": "builtins.object"}},
        {"k" * 70_000: 1},
        {"raw": b"\x00"},
        {"since": msgpack.Timestamp(1, 2)},
        {"thing": msgpack.ExtType(42, b"abcd")},
        {"number": float("nan")},
        {"deep": json.loads("[" * 900 + "]" * 900)},
    ],
    ids=["a class name", "a huge name", "bytes", "a timestamp", "an extension", "NaN", "900 levels"],
)
def test_an_unknown_field_changes_nothing(extra: dict[str, Any]) -> None:
    """What we do not know is ignored and not kept, whatever it holds."""
    assert accepted(msgpack.packb({**extra, **EVENT})) == accepted(packed())


@pytest.mark.parametrize("value", [packed(), dumped()], ids=["msgpack", "json"])
@pytest.mark.parametrize("key", [b"other", b"", None, b"\xff\xfe"], ids=["another", "empty", "null", "not UTF-8"])
def test_the_payload_names_the_session_whatever_the_key(value: bytes, key: bytes | None) -> None:
    """`session_id` in the value wins over the record's key."""
    assert accepted(value, key).session_id == "s-1"


def test_the_key_names_the_session_when_the_payload_does_not() -> None:
    """Without `session_id` the key is the session, as UTF-8."""
    anonymous = msgpack.packb({"event_id": "e-1", "text": "hi"})
    assert accepted(anonymous, "会话-7".encode()).session_id == "会话-7"


@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, "missing_field"), (b"", "missing_field"), (b"\xff", "invalid_field"), (b"x" * 129, "invalid_field"), (b"x" * (MAX_KEY_BYTES + 1), "invalid_field")],
    ids=["null", "empty", "not UTF-8", "129 characters", "too many bytes"],
)
def test_a_key_that_cannot_name_a_session_is_no_session(key: bytes | None, reason: str) -> None:
    """An event that names no session under an unusable key is a dead letter, never an event of session None."""
    verdict = decode(msgpack.packb({"event_id": "e-1", "text": "hi"}), key)
    assert isinstance(verdict, Undecodable)
    assert verdict.reason == reason
    assert "session_id" in verdict.detail


def test_an_empty_text_is_an_event() -> None:
    """Empty text is answered later; it is not a missing field."""
    assert accepted(packed(text="")).text == ""


def test_kinds_that_say_nothing_need_no_text() -> None:
    """Text is required of messages and decisions alone."""
    for kind in ("context", "confirm", "reset", "cancel", "feedback"):
        assert accepted(msgpack.packb({"event_id": "e-1", "session_id": "s-1", "kind": kind})).kind == kind


def test_numbers_keep_their_full_range() -> None:
    """Integers up to 64 bits in the state, budgets of any finite size and stamps of any sign pass unchanged."""
    event = accepted(packed(state={"a": 2**64 - 1, "b": -(2**63)}, deadline_ms=-50, occurred_at_ms=-1))
    assert event.state == {"a": 2**64 - 1, "b": -(2**63)}
    assert (event.deadline_ms, event.occurred_at_ms) == (-50.0, -1)
    assert accepted(packed(deadline_ms=2**63 - 1)).deadline_ms == float(2**63 - 1)
    assert accepted(packed(deadline_ms=0.4)).deadline_ms == 0.4


JSON_TYPES = [b"application/json", b"APPLICATION/JSON", b"application/json; charset=utf-8", b" application/json ;charset=UTF-8", b"text/json"]
MSGPACK_TYPES = [b"application/msgpack", b"Application/MsgPack", b"application/x-msgpack", b"application/vnd.msgpack; v=5"]


@pytest.mark.parametrize("declared", JSON_TYPES)
def test_a_header_can_say_json(declared: bytes) -> None:
    """The header wins over the first byte: white space before `{` is fine once JSON is declared, MessagePack is not."""
    headers = (("content-type", declared),)
    assert encoding_of(packed(), headers) == "json"
    assert accepted(b"\n " + dumped(), headers=headers).event_id == "e-1"
    assert isinstance(decode(packed(), headers=headers), Undecodable)


@pytest.mark.parametrize("declared", MSGPACK_TYPES)
def test_a_header_can_say_msgpack(declared: bytes) -> None:
    """The header wins over the first byte: JSON under a MessagePack header is a dead letter, not a guess."""
    headers = (("Content-Type", declared),)
    assert encoding_of(dumped(), headers) == "msgpack"
    assert accepted(packed(), headers=headers).event_id == "e-1"
    assert isinstance(decode(dumped(), headers=headers), Undecodable)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("content-type", b""),),
        (("content-type", b"text/html"),),
        (("content-type", b"\xff\xfe\x00"),),
        (("content-type", None),),
        (("content-type", b"application/json"), ("content-type", None)),
        (("", b""), ("x" * 10_000, b"y" * 10_000)),
        (("content-encoding", b"gzip"),),
    ],
    ids=["none", "empty", "unknown", "not UTF-8", "null", "repeated, the last null", "huge", "another"],
)
def test_a_header_that_says_nothing_leaves_it_to_the_first_byte(headers: Any) -> None:
    """Odd headers never make a good record bad."""
    assert accepted(packed(), headers=headers) == accepted(dumped(), headers=headers)


def test_the_last_of_repeated_headers_counts() -> None:
    """Repeated headers are decided one way."""
    headers = (("content-type", b"application/json"), ("CONTENT-TYPE", b"application/msgpack"))
    assert encoding_of(dumped(), headers) == "msgpack"
    assert header(headers, "content-type") == b"application/msgpack"


def test_only_a_plausible_trace_is_carried_on() -> None:
    """`traceparent` goes on whatever its case; a null, empty or huge one does not."""
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert carried_headers((("TraceParent", trace), ("other", b"x"))) == (("traceparent", trace),)
    for odd in (None, b"", b"0" * 257):
        assert carried_headers((("traceparent", odd),)) == ()  # type: ignore[arg-type]  # clients do hand over null headers
