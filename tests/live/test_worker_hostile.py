"""Live tests of records that are no events: each between two good ones of one session, and none costs more than itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import psutil
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.util import calc_crc32c

from bench.harness import WorkerProcess
from tests.live_support import WAIT_S, RawHeaders, Wire, assert_in_time, fresh, now_ms, wired
from tests.support import run

pytestmark = pytest.mark.live

GROWTH_BYTES = 150_000_000
"""Of the worker over the whole module: far above what its caches take, far below what one expanded bomb would."""


@dataclass(frozen=True, slots=True)
class Rig:
    """The module's worker, and what it was when it started."""

    worker: WorkerProcess
    wire: Wire
    pid: int
    resident: int


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One worker for all records of this module."""
    with wired(tmp_path_factory.mktemp("hostile"), broker, "hostile") as (worker, wire):
        wire.ask({"event_id": "warm", "session_id": "warm", "text": "hi"})
        yield Rig(worker, wire, worker.pid, psutil.Process(worker.pid).memory_info().rss)


def event(**fields: Any) -> dict[str, Any]:
    """A good event with something changed."""
    return {"event_id": "bad", "session_id": "s", "text": "hello", **fields}


def packed(**fields: Any) -> bytes:
    """The same as MessagePack."""
    return bytes(msgpack.packb(event(**fields), strict_types=False))


def nested(depth: int) -> Any:
    """Maps within maps."""
    value: Any = None
    for _ in range(depth):
        value = {"d": value}
    return value


_HEAD: bytes = msgpack.packb(event())[1:]


def with_field(name: str, raw: bytes) -> bytes:
    """A good event and one more field whose value is these bytes."""
    return b"\x84" + _HEAD + bytes(msgpack.packb(name)) + raw


DEAD: dict[str, tuple[bytes, str]] = {
    "empty value": (b"", "undecodable"),
    "a byte that MessagePack never uses": (b"\xc1", "undecodable"),
    "a digit, which is a whole number": (b"7", "not_a_map"),
    "nil": (b"\xc0", "not_a_map"),
    "an array": (b"\x93\x01\x02\x03", "not_a_map"),
    "JSON behind a byte order mark": (b"\xef\xbb\xbf" + json.dumps(event()).encode(), "undecodable"),
    "JSON within a MessagePack string": (bytes(msgpack.packb(json.dumps(event()))), "not_a_map"),
    "JSON cut short": (b'{"event_id":"x",', "undecodable"),
    "JSON with NaN": (b'{"event_id":"x","session_id":"s","text":"t","deadline_ms":NaN}', "undecodable"),
    "JSON with half a surrogate pair": (b'{"event_id":"x","session_id":"s","text":"\\ud83d"}', "undecodable"),
    "JSON nested 100,000 deep": (b'{"state":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "undecodable"),
    "two objects in one record": (packed() + packed(), "undecodable"),
    "arrays nested 5,000 deep": (b"\x91" * 5000 + b"\xc0", "undecodable"),
    "72 kB of array headers that announce millions": (b"\xdc\xff\xff" * 24_000, "undecodable"),
    "a map header that announces four thousand million": (b"\xdf\xff\xff\xff\xff", "undecodable"),
    "a map as key": (b"\x81\x80\xc0", "undecodable"),
    "a number as key": (b"\x81\x01\xa1x", "undecodable"),
    "bytes as keys": (b"\x83\xc4\x08event_id\xc4\x02bk\xc4\x0asession_id\xc4\x01s\xc4\x04text\xc4\x03abc", "invalid_field"),
    "a text that is not UTF-8": (bytes.fromhex("81a474657874a4c4e3bac3"), "undecodable"),
    "an extension type as text": (b"\x83\xa8event_id\xa1x\xaasession_id\xa1s\xa4text\xd6\x2aabcd", "invalid_field"),
    "a time stamp as text": (b"\x83\xa8event_id\xa1x\xaasession_id\xa1s\xa4text\xd6\xff\x00\x00\x00\x01", "invalid_field"),
    "a time stamp beyond the calendar": (with_field("state", b"\x81\xa1t\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), "undecodable"),
    "an extension within state": (with_field("state", b"\x81\xa1t\xd6\x2aabcd"), "invalid_field"),
    "bytes within state": (with_field("state", b"\x81\xa1t\xc4\x01a"), "invalid_field"),
    "a state nested 900 deep": (packed(state=nested(900)), "invalid_field"),
    "a state nested just too deep": (packed(state={"a": nested(16)}), "invalid_field"),
    "infinity within state": (packed(state={"a": float("inf")}), "invalid_field"),
    "NaN as budget": (packed(deadline_ms=float("nan")), "invalid_field"),
    "infinity as budget": (packed(deadline_ms=float("inf")), "invalid_field"),
    "every field of a wrong type": (packed(event_id=12, session_id=["s"], text={"a": 1}, occurred_at_ms="yesterday", deadline_ms=True), "invalid_field"),
    "a budget in words": (packed(deadline_ms="soon"), "invalid_field"),
    "an unknown kind": (packed(kind="gossip"), "invalid_field"),
    "a future version": (packed(schema_version=2), "unsupported_version"),
    "no event id": (bytes(msgpack.packb({"session_id": "s", "text": "t"})), "missing_field"),
    "a message without text": (bytes(msgpack.packb({"event_id": "x", "session_id": "s"})), "missing_field"),
    "one key twice, and no text": (b"\x82\xa8event_id\xa1a\xa8event_id\xa1b", "missing_field"),
    "an empty event id": (packed(event_id=""), "invalid_field"),
    "an event id of 129 characters": (packed(event_id="x" * 129), "invalid_field"),
    "no choices to choose from": (packed(answer={"choice": []}), "invalid_field"),
    "zero tokens": (packed(answer={"max_tokens": 0}), "invalid_field"),
    "metadata that is no text": (packed(metadata={"a": 1}), "invalid_field"),
    "too large": (packed(text="x" * 600_000), "too_large"),
    "gzip by hand": (b"\x1f\x8b\x08" + b"\x00" * 40, "undecodable"),
}


def neighbours(wire: Wire, session: str, *, value: bytes | None, key: bytes | None, headers: RawHeaders = ()) -> tuple[int, int]:
    """Send a good event, the record, a good event, all on one partition; both good ones are answered in time. Returns the record's place."""
    before, after = fresh("before"), fresh("after")
    partition, _ = wire.send({"event_id": before, "session_id": session, "text": "one", "deadline_ms": 1500})
    place = wire.send_raw(value, key, partition=partition, headers=headers)
    wire.send({"event_id": after, "session_id": session, "text": "two", "deadline_ms": 1500}, partition=partition)
    for name in (before, after):
        seen = wire.answer(name)
        assert_in_time(seen)
        assert seen.body["outcome"] == "model"
        assert seen.partition == partition
    return place


@pytest.mark.parametrize("name", DEAD)
def test_a_record_that_is_no_event_costs_itself_alone(rig: Rig, name: str) -> None:
    """Its neighbours are answered in time; itself becomes one dead letter with its bytes and headers as they came and our seven."""
    value, reason = DEAD[name]
    session = fresh("s")
    theirs: RawHeaders = (("trace", b"\x00\xff"), ("trace", None))
    place = neighbours(rig.wire, session, value=value, key=session.encode(), headers=theirs)
    letter = rig.wire.dead_letter(place)
    assert letter.header("answerby.reason") == reason.encode()
    assert letter.key == session.encode()
    assert letter.value == value[: len(letter.value or b"")]
    assert len(letter.value or b"") >= min(len(value), 500_000)
    assert letter.headers[:2] == tuple(theirs)
    assert letter.header("answerby.topic") == rig.wire.topics.interactions.encode()
    assert (int(letter.header("answerby.partition") or b""), int(letter.header("answerby.offset") or b"")) == place
    assert letter.header("answerby.size") == str(len(value)).encode()
    assert abs(int(letter.header("answerby.timestamp") or b"") - now_ms()) < WAIT_S * 1000
    detail = letter.header("answerby.detail")
    assert detail
    assert len(detail) < 1000
    assert [key for key, _ in letter.headers].count("answerby.reason") == 1


ANSWERED: dict[str, tuple[dict[str, Any], str]] = {
    "JSON where MessagePack is usual": ({}, "json"),
    "a class name of Faust's": ({"__faust": {"ns": "some.registered.Model"}}, "msgpack"),
    "an unknown field nested 900 deep": ({"meta": nested(900)}, "msgpack"),
    "an unknown field whose name has 65,542 characters": ({"extra_" + "k" * 65_536: 1}, "msgpack"),
    "a null where null is the default": ({"deadline_ms": None, "locale": None, "subject": None}, "msgpack"),
    "a zero budget": ({"deadline_ms": 0}, "msgpack"),
    "a negative budget": ({"deadline_ms": -50}, "msgpack"),
    "a budget of less than a millisecond": ({"deadline_ms": 0.4}, "msgpack"),
    "a budget beyond any clock": ({"deadline_ms": 9_223_372_036_854_775_807}, "msgpack"),
    "a budget of 1e300": ({"deadline_ms": 1e300}, "msgpack"),
    "a stamp of the year 2099": ({"occurred_at_ms": 4_070_908_800_000}, "msgpack"),
    "a stamp in seconds": ({"occurred_at_ms": 1_790_000_000}, "msgpack"),
    "the least stamp there is": ({"occurred_at_ms": -(2**63)}, "msgpack"),
    "the greatest stamp there is": ({"occurred_at_ms": 2**63 - 1}, "msgpack"),
    "a text of line ends, nulls and direction marks": ({"text": "a\x00b\u202e\n\r\u2028 [[say=fine]]"}, "json"),
    "a text of 300 kB": ({"text": "汉" * 100_000}, "msgpack"),
}
EXPIRED = {"a zero budget", "a negative budget", "a budget of less than a millisecond", "a stamp in seconds", "the least stamp there is"}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_odd_event_is_answered_like_any_other(rig: Rig, name: str) -> None:
    """What the contract allows is answered, once, in the encoding it came in, and its neighbours notice nothing."""
    fields, encoding = ANSWERED[name]
    session, event_id = fresh("s"), fresh("odd")
    full = {"occurred_at_ms": now_ms(), **event(event_id=event_id, session_id=session), **fields}
    value = json.dumps(full).encode() if encoding == "json" else bytes(msgpack.packb(full))
    place = neighbours(rig.wire, session, value=value, key=session.encode())
    seen = rig.wire.answer(event_id)
    assert (seen.body["outcome"], seen.body["reason"]) == (("default", "expired") if name in EXPIRED else ("model", None))
    assert (seen.value or b"")[:1] == b"{" or encoding == "msgpack"
    assert 0 <= seen.body["deadline"]["budget_ms"] <= 60_000
    assert place not in rig.wire.dead
    assert len(rig.wire.answers[event_id]) == 1


GOOD_HEADERS: dict[str, tuple[str, RawHeaders]] = {
    "an unknown content type": ("msgpack", [("content-type", b"image/png")]),
    "a content type in capitals": ("json", [("Content-Type", b"APPLICATION/JSON; charset=utf-8")]),
    "a content type that is null": ("msgpack", [("content-type", None)]),
    "a content type twice, the last one right": ("json", [("content-type", b"application/msgpack"), ("content-type", b"application/json")]),
    "a content type that is not UTF-8": ("msgpack", [("content-type", b"\xff\xfe")]),
    "a trace twice": (
        "msgpack",
        [("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"), ("traceparent", b"00-" + b"c" * 32 + b"-" + b"d" * 16 + b"-01")],
    ),
    "a trace that is null": ("msgpack", [("traceparent", None)]),
    "300 headers": ("msgpack", [(f"h{number}", b"v" * 100) for number in range(300)]),
    "a header of 100 kB": ("msgpack", [("big", b"v" * 100_000)]),
    "a header without a name": ("msgpack", [("", b"v")]),
}


@pytest.mark.parametrize("name", GOOD_HEADERS)
def test_odd_headers_change_nothing(rig: Rig, name: str) -> None:
    """The event is answered in its own encoding, and of its headers only the last trace is carried on."""
    encoding, headers = GOOD_HEADERS[name]
    session, event_id = fresh("s"), fresh("odd")
    full = {"occurred_at_ms": now_ms(), **event(event_id=event_id, session_id=session)}
    neighbours(rig.wire, session, value=json.dumps(full).encode() if encoding == "json" else bytes(msgpack.packb(full)), key=session.encode(), headers=headers)
    seen = rig.wire.answer(event_id)
    assert seen.body["outcome"] == "model"
    assert seen.header("content-type") == f"application/{encoding}".encode()
    traces = [value for key, value in headers if key == "traceparent" and value is not None]
    assert [item for item in seen.headers if item[0] != "content-type"] == [("traceparent", value) for value in traces[-1:]]


def test_a_wrong_content_type_is_believed(rig: Rig) -> None:
    """The header wins over the bytes: JSON declared as MessagePack is not read as the number that its first byte is."""
    session = fresh("s")
    value = json.dumps(event(session_id=session)).encode()
    letter = rig.wire.dead_letter(neighbours(rig.wire, session, value=value, key=session.encode(), headers=[("content-type", b"application/msgpack")]))
    assert letter.header("answerby.reason") in (b"undecodable", b"not_a_map")


def test_many_and_large_headers_of_a_dead_letter_are_bounded(rig: Rig) -> None:
    """Headers beyond 64 KiB are left out in their order, and ours are always there."""
    session = fresh("s")
    headers: RawHeaders = [(f"h{number}", b"v" * 1000) for number in range(300)]
    letter = rig.wire.dead_letter(neighbours(rig.wire, session, value=b"\xc1", key=session.encode(), headers=headers))
    theirs = [item for item in letter.headers if not item[0].startswith("answerby.")]
    assert theirs == list(headers[: len(theirs)])
    assert 60 <= len(theirs) <= 66
    assert letter.header("answerby.reason") == b"undecodable"


@pytest.mark.parametrize("key", [None, b""], ids=["null", "empty"])
def test_a_record_without_a_key_is_answered_under_its_session(rig: Rig, key: bytes | None) -> None:
    """The payload's session names the state and the answer's key."""
    session, event_id = fresh("s"), fresh("nokey")
    neighbours(rig.wire, session, value=packed(event_id=event_id, session_id=session, occurred_at_ms=now_ms()), key=key)
    seen = rig.wire.answer(event_id)
    assert seen.key == session.encode()
    assert seen.body["outcome"] == "model"


KEYS: dict[str, tuple[bytes | None, str]] = {
    "no key and no session": (None, "missing_field"),
    "an empty key and no session": (b"", "missing_field"),
    "a key that is not UTF-8 and no session": (b"\xff\xfe", "invalid_field"),
    "a key of 2,000 bytes and no session": (b"k" * 2000, "invalid_field"),
    "a key of 129 characters and no session": (b"k" * 129, "invalid_field"),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_that_names_no_session_is_a_dead_letter(rig: Rig, name: str) -> None:
    """An event whose session can be found nowhere is put aside under the key it had."""
    key, reason = KEYS[name]
    value = bytes(msgpack.packb({"event_id": "x", "text": "t"}))
    letter = rig.wire.dead_letter(neighbours(rig.wire, fresh("s"), value=value, key=key))
    assert letter.header("answerby.reason") == reason.encode()
    assert letter.key == key
    assert letter.value == value


def test_neither_key_nor_value_is_a_dead_letter(rig: Rig) -> None:
    """A record of two nulls ends no session and stops nothing."""
    letter = rig.wire.dead_letter(neighbours(rig.wire, fresh("s"), value=None, key=None))
    assert letter.header("answerby.reason") == b"missing_field"
    assert letter.header("answerby.size") == b"0"


@pytest.mark.parametrize("key", [b"\xff\xfe\xfd", b"k" * 2000], ids=["not UTF-8", "too long"])
def test_a_tombstone_whose_key_is_no_session_is_a_dead_letter(rig: Rig, key: bytes) -> None:
    """A null value under such a key is put aside, still null."""
    letter = rig.wire.dead_letter(neighbours(rig.wire, fresh("s"), value=None, key=key))
    assert letter.header("answerby.reason") == b"invalid_field"
    assert (letter.key, letter.value) == (key, None)


def test_a_huge_key_and_a_huge_value_fit_into_one_dead_letter(broker: str, rig: Rig) -> None:
    """A compressed record may be larger than what a broker takes uncompressed: it is cut to fit, and the worker lives."""
    session = fresh("s")
    partition, _ = rig.wire.send({"event_id": fresh("before"), "session_id": session, "text": "one"})

    async def send() -> tuple[int, int]:
        producer = AIOKafkaProducer(bootstrap_servers=broker, compression_type="gzip", max_request_size=9_000_000, max_batch_size=8_000_000)
        async with producer:
            sent = await producer.send_and_wait(rig.wire.topics.interactions, value=b"v" * 2_000_000, key=b"k" * 1_500_000, partition=partition)
            return sent.partition, sent.offset

    place = run(send())
    rig.wire.sent += 1
    letter = rig.wire.dead_letter(place)
    assert letter.header("answerby.reason") == b"too_large"
    assert letter.header("answerby.size") == b"2000000"
    assert set(letter.key or b"") == {ord("k")}
    assert set(letter.value or b"") <= {ord("v")}
    assert rig.wire.ask({"event_id": fresh("after"), "session_id": session, "text": "two"}, partition=partition)["outcome"] == "model"


def test_a_header_name_that_is_not_utf8_stops_nothing(broker: str, rig: Rig) -> None:
    """Clients in other languages may send any bytes as a name; the event is answered, and as a dead letter its name is spelled out."""
    session, event_id = fresh("s"), fresh("name")
    partition, _ = rig.wire.send({"event_id": fresh("before"), "session_id": session, "text": "one"})

    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker)
        async with producer:
            batch = producer.create_batch()
            good = packed(event_id=event_id, session_id=session, occurred_at_ms=now_ms())
            for value in (good, b"\xc1"):
                batch.append(timestamp=now_ms(), key=session.encode(), value=value, headers=[("zzzz", b"1")])
            built = bytearray(batch._build())
            built = built.replace(b"zzzz", b"\xff\xfea\xfe")
            built[17:21] = calc_crc32c(bytes(built[21:])).to_bytes(4, "big")  # where a batch keeps its checksum, and what it covers
            batch._buffer = built
            await (await producer.send_batch(batch, rig.wire.topics.interactions, partition=partition))

    run(send())
    rig.wire.sent += 2
    assert rig.wire.answer(event_id).body["outcome"] == "model"
    _, offset = rig.wire.send({"event_id": fresh("after"), "session_id": session, "text": "two"}, partition=partition)
    letter = rig.wire.dead_letter((partition, offset - 1))
    assert ("\\xff\\xfea\\xfe", b"1") in letter.headers


def test_a_burst_of_rubbish_does_not_delay_a_good_event(rig: Rig) -> None:
    """After 300 undecodable records in one burst, the next event is on time, and each of the 300 has its dead letter."""
    session = fresh("s")
    partition, first = rig.wire.send({"event_id": fresh("before"), "session_id": session, "text": "one"})
    places = rig.wire.send_many([(b"\xc1", session.encode())] * 300, partition)
    rig.wire.send({"event_id": (good := fresh("after")), "session_id": session, "text": "two", "deadline_ms": 1500}, partition=partition)
    assert_in_time(seen := rig.wire.answer(good))
    assert seen.body["outcome"] == "model"
    rig.wire.await_that(lambda: all(place in rig.wire.dead for place in places), "300 dead letters")
    assert len(places) == 300
    assert min(offset for _, offset in places) > first


def test_at_the_end_everything_is_counted_committed_and_calm(rig: Rig) -> None:
    """After all of the above: no lag on any partition, no restart, every record counted once, one dead letter a bad record, memory bounded."""
    rig.wire.await_no_lag()
    worker = rig.worker
    assert worker.pid == rig.pid
    assert [engine["restarts"] for engine in worker.readiness()["engines"]] == [0]
    counted = worker.metric_sum("answerby_events_total") + worker.metric_sum("answerby_dead_letters_total")
    assert counted == rig.wire.sent
    assert worker.metric_sum("answerby_dead_letters_total", reason="internal") == 0
    assert all(len(letters) == 1 for letters in rig.wire.dead.values())
    assert "Traceback" not in worker.log_text()
    assert psutil.Process(worker.pid).memory_info().rss - rig.resident < GROWTH_BYTES
