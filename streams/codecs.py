"""Bytes to events and answers to bytes: bounded MessagePack or JSON first, then validation; a bad record is a value."""

from __future__ import annotations

import math
import re
from itertools import chain
from typing import Any, Literal

import msgpack
import msgspec

from schemas.dead_letters import Undecodable
from schemas.events import DEFAULT_TENANT, MAX_IDENTIFIER, SCHEMA_VERSION, InteractionEvent
from schemas.settings import Limits

TENANT_HEADER = "answerby.tenant"

FORGET_HEADER = "answerby.forget"
"""On a record without a value, with any text: the session's kept answers and what it told of persons go too (`answerby sessions forget`)."""
"""Names the tenant of a tombstone, whose value cannot; without it the default tenant is meant."""

Encoding = Literal["msgpack", "json"]
Headers = tuple[tuple[str, bytes], ...]

CONTENT_TYPES: dict[Encoding, bytes] = {"msgpack": b"application/msgpack", "json": b"application/json"}

MAX_TRACEPARENT = 256
"""Bytes of a `traceparent` we carry on: the standard's is 55; more is not one, and would be copied to every record."""

MAX_DETAIL = 300
"""Characters of a dead letter's detail: enough for a path and two types, too little for a text."""

MAX_KEY_BYTES = 512
"""Bytes of a record key that may name a session: 128 characters of at most 4 bytes."""

LEAST_VALUES = 8192
"""Values in `answer` that are looked at even where `limits.state_bytes` is small: a JSON schema has a few hundred."""

_LEAVES = (str, bool, type(None))

_QUOTED = re.compile(r" '.*'", re.DOTALL)
"""An unknown enum value, as msgspec quotes it: it may be anything a person wrote, and details are logged."""


def encoding_of(value: bytes, headers: Headers) -> Encoding:
    """The header's word when it names one of the two, else the first byte's: `{` is JSON."""
    declared = header(headers, "content-type") if headers else None
    if declared is not None:
        kind = declared.split(b";")[0].strip().lower()
        if kind in (b"application/json", b"text/json"):
            return "json"
        if kind in (b"application/msgpack", b"application/x-msgpack", b"application/vnd.msgpack"):
            return "msgpack"
    return "json" if value[:1] == b"{" else "msgpack"


def header(headers: Headers, name: str) -> bytes | None:
    """The last value of header `name`, whatever its case; None when absent or null."""
    found: bytes | None = None
    for key, value in headers:
        if isinstance(key, str) and key.lower() == name:
            found = value
    return found


def carried_headers(headers: Headers) -> Headers:
    """What every record caused by an event takes over from it."""
    trace = header(headers, "traceparent")
    return (("traceparent", trace),) if trace and len(trace) <= MAX_TRACEPARENT else ()


def decode_event(value: bytes, key: bytes | None, headers: Headers, limits: Limits) -> InteractionEvent | Undecodable:
    """Turn a record's bytes into an event, or say why that cannot be.

    Duplicate map keys: the last one wins, in both encodings.
    """
    if len(value) > limits.event_bytes:
        return Undecodable("too_large", f"{len(value)} bytes; at most {limits.event_bytes} (limits.event_bytes)")
    tree = _decode_tree(value, encoding_of(value, headers), limits)
    if isinstance(tree, Undecodable):
        return tree
    if not isinstance(tree, dict):
        return Undecodable("not_a_map", f"the top level is {type(tree).__name__}; an event is a map")
    return _validate(tree, key, limits)


def decode_tombstone(key: bytes | None, headers: Headers) -> tuple[str, str] | Undecodable:
    """Tenant and session that a record without a value ends, or why it names none."""
    session_id = _session_from_key(key)
    if isinstance(session_id, Undecodable):
        return session_id
    named = header(headers, TENANT_HEADER)
    try:
        tenant = DEFAULT_TENANT if named is None else named.decode()
    except UnicodeDecodeError:
        tenant = ""
    for name, text in (("the key", session_id), (f"header {TENANT_HEADER}", tenant)):
        if not 0 < len(text) <= MAX_IDENTIFIER:
            return Undecodable("invalid_field", f"{name}: not an identifier of 1 to {MAX_IDENTIFIER} characters")
    return tenant, session_id


def encode_record(record: msgspec.Struct, encoding: Encoding) -> bytes:
    """Bytes of a response, chunk or audit record."""
    return msgspec.json.encode(record) if encoding == "json" else msgspec.msgpack.encode(record)


def _decode_tree(value: bytes, encoding: Encoding, limits: Limits) -> object:
    try:
        if encoding == "json":
            return msgspec.json.decode(value)
        return msgpack.unpackb(
            value,
            raw=False,
            strict_map_key=True,
            max_str_len=limits.event_bytes,
            max_bin_len=limits.event_bytes,
            max_ext_len=limits.event_bytes,
            max_array_len=limits.collection_items,
            max_map_len=limits.collection_items,
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, msgspec.DecodeError, RecursionError, OverflowError, MemoryError) as error:
        return Undecodable("undecodable", _bounded(f"not {encoding}: {type(error).__name__}"))


def _validate(tree: dict[Any, Any], key: bytes | None, limits: Limits) -> InteractionEvent | Undecodable:
    if not all(isinstance(name, str) for name in tree):
        return Undecodable("invalid_field", "map keys must be strings")
    version = tree.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA_VERSION:
        return Undecodable("unsupported_version", f"schema_version is above {SCHEMA_VERSION}")
    if "session_id" not in tree:
        named = _session_from_key(key)
        if isinstance(named, Undecodable):
            return named
        tree["session_id"] = named
    for name in ("state", "answer"):
        problem = check_plain(tree[name], limits) if tree.get(name) else None
        if problem is not None:
            return Undecodable("invalid_field", f"{name}: {problem}")
    try:
        event = msgspec.convert(tree, InteractionEvent)
    except msgspec.ValidationError as error:
        reason: Literal["missing_field", "invalid_field"] = "missing_field" if "missing required field" in str(error) else "invalid_field"
        return Undecodable(reason, _bounded(_QUOTED.sub("", str(error))))
    except (RecursionError, OverflowError) as error:
        return Undecodable("invalid_field", _bounded(type(error).__name__))
    return _check_meaning(event, limits)


def _session_from_key(key: bytes | None) -> str | Undecodable:
    if not key:
        return Undecodable("missing_field", "session_id: absent, and the record has no key")
    if len(key) > MAX_KEY_BYTES:
        return Undecodable("invalid_field", f"session_id: absent, and the record's key has {len(key)} bytes")
    try:
        return key.decode()
    except UnicodeDecodeError:
        return Undecodable("invalid_field", "session_id: absent, and the record's key is not UTF-8")


def _check_meaning(event: InteractionEvent, limits: Limits) -> InteractionEvent | Undecodable:
    if event.kind in ("message", "decision") and event.text is None:
        return Undecodable("missing_field", f"text: required for {event.kind}")
    for name, number in (("deadline_ms", event.deadline_ms), ("answer.temperature", event.answer.temperature)):
        if number is not None and not math.isfinite(number):
            return Undecodable("invalid_field", f"{name}: not a finite number")
    if event.occurred_at_ms is not None and not -(2**63) <= event.occurred_at_ms < 2**63:
        return Undecodable("invalid_field", "occurred_at_ms: does not fit 64 bits")
    if event.state and len(msgspec.msgpack.encode(event.state)) > limits.state_bytes:
        return Undecodable("invalid_field", f"state: more than {limits.state_bytes} bytes (limits.state_bytes)")
    if event.metadata and len(msgspec.msgpack.encode(event.metadata)) > limits.metadata_bytes:
        return Undecodable("invalid_field", f"metadata: more than {limits.metadata_bytes} bytes (limits.metadata_bytes)")
    if sum(option is not None for option in (event.answer.choice, event.answer.regex, event.answer.json_schema)) > 1:
        return Undecodable("invalid_field", "answer: choice, regex and json_schema exclude each other")
    return event


def check_plain(value: object, limits: Limits) -> str | None:
    """Why `value` could not be stored and written again in both encodings; None when it can.

    Walks without recursion, a level at a time and a type at a time: a value at a time, 64 KiB of digits would hold the loop for 20 ms. More values
    than `limits.state_bytes` could hold, and levels beyond `limits.state_depth`, end the walk.
    """
    level: list[Any] = [value]
    left = max(limits.state_bytes, LEAST_VALUES)
    for _ in range(limits.state_depth + 1):
        left -= len(level)
        if left < 0:
            return f"more values than {limits.state_bytes} bytes hold (limits.state_bytes)"
        below: list[Any] = []
        for kind in set(map(type, level)):
            problem = _check_kind(kind, level, below)
            if problem is not None:
                return problem
        if not below:
            return None
        level = below
    return f"nested deeper than {limits.state_depth} (limits.state_depth)"


def _check_kind(kind: Any, level: list[Any], below: list[Any]) -> str | None:
    """All values of one type in a level; what they hold goes to `below`."""
    if kind in _LEAVES:
        return None
    items = [item for item in level if type(item) is kind]
    if kind is int:
        return None if min(items) >= -(2**63) and max(items) < 2**64 else "an integer does not fit 64 bits"
    if kind is float:
        return None if all(map(math.isfinite, items)) else "NaN and infinity are not values"
    if kind is list:
        below.extend(chain.from_iterable(items))
        return None
    if kind is dict:
        below.extend(chain.from_iterable(item.values() for item in items))
        return None if set(map(type, chain.from_iterable(items))) <= {str} else "map keys must be strings"
    return f"{kind.__name__} is not a plain value"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
