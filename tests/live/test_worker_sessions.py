"""Live tests of what a worker remembers: the same event gets the same bytes, a session its context, and both end when they should."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from bench.harness import WorkerProcess
from schemas.responses import response_id
from tests.live_support import Seen, Wire, fresh, wired

pytestmark = pytest.mark.live

LONG_MS = 10_000
"""A budget that is no part of what is tested."""


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerProcess, Wire]]:
    """One worker for the whole module."""
    with wired(tmp_path_factory.mktemp("sessions"), broker, "sessions") as found:
        yield found


@pytest.fixture
def wire(rig: tuple[WorkerProcess, Wire]) -> Wire:
    """The client."""
    return rig[1]


def message(session: str, text: str = "one two three", **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session, "text": text, "deadline_ms": LONG_MS, "answer": {"max_tokens": 5}, **more}


def end(wire: Wire, session: str) -> None:
    """A tombstone."""
    wire.send_raw(None, session.encode())


def prompt_tokens(body: dict[str, Any]) -> int:
    """Words of the prompt, as the scripted engine counts them."""
    assert body["outcome"] == "model"
    return int(body["usage"]["prompt_tokens"])


def same_record(one: Seen, other: Seen) -> bool:
    """Key, value and headers are the same bytes, on one partition."""
    return (one.key, one.value, one.headers, one.partition) == (other.key, other.value, other.headers, other.partition)


def test_the_same_event_gets_the_same_record(wire: Wire) -> None:
    """Sent again, in either encoding and with another budget, an event gets the byte-identical record."""
    event = message(fresh("s"), metadata={"a": "ü"})
    wire.send(event)
    first = wire.answer(event["event_id"])
    wire.send(event)
    wire.send(event, encoding="json")
    wire.send({**event, "deadline_ms": 0, "metadata": {"b": "other"}, "locale": "zh"})
    wire.answer(event["event_id"], 4)
    assert all(same_record(first, again) for again in wire.answers[event["event_id"]])


def test_an_event_repeated_while_it_is_answered_gets_the_same_record(wire: Wire) -> None:
    """Five copies in a burst are one answer, five times, and one turn of the session."""
    session = fresh("s")
    event = message(session, "slow [[delay=300]]")
    for _ in range(5):
        wire.send(event)
    wire.answer(event["event_id"], 5)
    assert all(same_record(wire.answers[event["event_id"]][0], again) for again in wire.answers[event["event_id"]])
    once = message(fresh("s"), "slow [[delay=1]]")
    wire.ask(once)
    assert prompt_tokens(wire.ask(message(session, "next"))) == prompt_tokens(wire.ask(message(once["session_id"], "next")))


@pytest.mark.parametrize(
    "change",
    [{"text": "another"}, {"state": {"a": 1}}, {"scenario": "other"}, {"answer": {"max_tokens": 4}}, {"consent": {"ai_reply": False}}, {"kind": "decision"}],
    ids=lambda change: next(iter(change)),
)
def test_another_event_under_a_known_id_is_a_conflict(wire: Wire, change: dict[str, Any]) -> None:
    """What differs in what it asks is put aside, and the first one's answer stands."""
    event = message(fresh("s"))
    first = wire.ask(event)
    letter = wire.dead_letter(wire.send({**event, **change}))
    assert letter.header("answerby.reason") == b"conflict"
    wire.send(event)
    assert wire.answer(event["event_id"], 2).body == first


def test_an_expired_event_under_a_known_id_is_a_conflict_too(wire: Wire) -> None:
    """The short lane of expired events knows what was answered before."""
    event = message(fresh("s"))
    wire.ask(event)
    letter = wire.dead_letter(wire.send({**event, "text": "another", "deadline_ms": 0}))
    assert letter.header("answerby.reason") == b"conflict"


def test_an_event_that_expired_is_repeated_as_it_was(wire: Wire) -> None:
    """What was answered `expired` stays so, however much time its repeat has."""
    event = message(fresh("s"))
    first = wire.ask({**event, "deadline_ms": 0})
    assert (first["outcome"], first["reason"]) == ("default", "expired")
    wire.send(event)
    wire.answer(event["event_id"], 2)
    assert same_record(*wire.answers[event["event_id"]])


def test_one_id_in_two_sessions_or_tenants_is_two_events(wire: Wire) -> None:
    """Ids belong to their session, sessions to their tenant."""
    event_id, session = fresh("e"), fresh("s")
    for fields in ({"session_id": session}, {"session_id": session, "tenant": "other"}, {"session_id": f"{session}-2"}):
        wire.send({**message(session, f"for {fields}"), "event_id": event_id, **fields})
    wire.answer(event_id, 3)
    found = {(seen.body["tenant"], seen.body["session_id"]): seen.body["response_id"] for seen in wire.answers[event_id]}
    assert found == {
        ("default", session): response_id("default", session, event_id),
        ("other", session): response_id("other", session, event_id),
        ("default", f"{session}-2"): response_id("default", f"{session}-2", event_id),
    }
    assert len(set(found.values())) == 3


def test_the_second_message_sees_the_first(wire: Wire) -> None:
    """The prompt grows by what was said and answered, turn after turn."""
    session = fresh("s")
    first, second, third = (prompt_tokens(wire.ask(message(session, "one two three"))) for _ in range(3))
    assert second == first + 3 + 5
    assert third == second + 3 + 5


def test_events_sent_at_once_see_each_other_in_order(wire: Wire) -> None:
    """A burst within one session is answered one after the other, each with the turns before it."""
    session = fresh("s")
    events = [message(session, "one two three") for _ in range(4)]
    for event in events:
        wire.send(event)
    found = [prompt_tokens(wire.answer(event["event_id"]).body) for event in events]
    assert [later - earlier for earlier, later in itertools.pairwise(found)] == [8, 8, 8]


def test_one_sessions_responses_leave_in_order_and_others_do_not_wait(wire: Wire) -> None:
    """A slow event holds back the later ones of its session, never those of another session on the same partition."""
    slow, quick = fresh("s"), fresh("s")
    first = message(slow, "one [[delay=800]]")
    partition, _ = wire.send(first)
    rest = [message(slow, f"more {number}") for number in range(3)]
    for event in rest:
        wire.send(event, partition=partition)
    overtaking = message(quick, "quick")
    wire.send(overtaking, partition=partition)
    seen = [wire.answer(event["event_id"]) for event in (first, *rest)]
    assert [item.body["outcome"] for item in seen] == ["model"] * 4
    assert [item.offset for item in seen] == sorted(item.offset for item in seen)
    assert wire.answer(overtaking["event_id"]).offset < seen[0].offset
    assert {item.partition for item in (*seen, wire.answer(overtaking["event_id"]))} == {partition}


def test_state_is_told_to_the_model_and_null_removes_it(wire: Wire) -> None:
    """A context event's state is in the next prompt; a null takes it away again."""
    session = fresh("s")
    bare = prompt_tokens(wire.ask(message(fresh("s"), "hi")))
    assert wire.ask({**message(session), "kind": "context", "text": None, "state": {"quest": "a b c"}})["outcome"] == "ack"
    assert prompt_tokens(wire.ask(message(session, "hi"))) > bare
    other = fresh("s")
    wire.ask({**message(other), "kind": "context", "text": None, "state": {"quest": "a b c"}})
    wire.ask({**message(other), "kind": "context", "text": None, "state": {"quest": None}})
    assert prompt_tokens(wire.ask(message(other, "hi"))) == bare


def test_a_reset_forgets_the_context_and_keeps_the_answers(wire: Wire) -> None:
    """After `reset` the prompt is as short as at the beginning, and an old event still gets its old bytes."""
    session = fresh("s")
    event = message(session)
    first = prompt_tokens(wire.ask(event))
    assert wire.ask({**message(session), "kind": "reset", "text": None})["outcome"] == "ack"
    assert prompt_tokens(wire.ask(message(session))) == first
    wire.send(event)
    wire.answer(event["event_id"], 2)
    assert same_record(*wire.answers[event["event_id"]])


def test_a_tombstone_ends_the_session_and_keeps_the_answers(rig: tuple[WorkerProcess, Wire]) -> None:
    """No response; counted and audited; the next message begins anew, and an old event still gets its old bytes."""
    worker, wire = rig
    session = fresh("s")
    event = message(session)
    first = prompt_tokens(wire.ask(event))
    before = worker.metric_sum("answerby_events_total", outcome="ack", reason="tombstone")
    end(wire, session)
    assert prompt_tokens(wire.ask(message(session))) == first
    wire.await_that(lambda: any(seen.body["session_id"] == session for seen in wire.audits), "an audit record")
    assert [seen.body["action"] for seen in wire.audits if seen.body["session_id"] == session] == ["session_ended"]
    assert worker.metric_sum("answerby_events_total", outcome="ack", reason="tombstone") == before + 1
    wire.send(event)
    wire.answer(event["event_id"], 2)
    assert same_record(*wire.answers[event["event_id"]])


def test_a_tombstone_ends_only_its_tenants_session(wire: Wire) -> None:
    """The header `answerby.tenant` says whose session ends; without it, the default tenant's."""
    session = fresh("s")
    first = prompt_tokens(wire.ask(message(session, tenant="red")))
    end(wire, session)
    assert prompt_tokens(wire.ask(message(session, tenant="red"))) > first
    wire.send_raw(None, session.encode(), headers=[("answerby.tenant", b"red")])
    assert prompt_tokens(wire.ask(message(session, tenant="red"))) == first


def test_a_tombstone_waits_for_the_events_before_it(wire: Wire) -> None:
    """What was asked before the session ended is answered with its context."""
    session = fresh("s")
    first = prompt_tokens(wire.ask(message(session)))
    slow = message(session, "one two three [[delay=300]]")
    wire.send(slow)
    end(wire, session)
    assert prompt_tokens(wire.answer(slow["event_id"]).body) > first
    assert prompt_tokens(wire.ask(message(session))) == first


def test_a_session_of_huge_turns_never_outgrows_a_record(wire: Wire) -> None:
    """Sixty texts of 20 kB, and one that fills a whole event, are all answered: what is stored is bounded before it is written."""
    session = fresh("s")
    events = [message(session, "word " * 4000) for _ in range(60)] + [message(session, "汉" * 170_000)]
    for event in events:
        wire.send(event)
    assert {wire.answer(event["event_id"]).body["outcome"] for event in events} == {"model"}


def test_a_merged_state_above_its_limit_is_put_aside(wire: Wire) -> None:
    """Each patch fits, together they do not: the last one is a dead letter, and the session goes on without it."""
    session = fresh("s")
    for number in range(2):
        assert wire.ask({**message(session), "kind": "context", "text": None, "state": {f"k{number}": "x" * 30_000}})["outcome"] == "ack"
    letter = wire.dead_letter(wire.send({**message(session), "kind": "context", "text": None, "state": {"k2": "x" * 30_000}}))
    assert letter.header("answerby.reason") == b"invalid_field"
    assert wire.ask(message(session))["outcome"] == "model"


def test_a_request_that_fails_fails_alone(rig: tuple[WorkerProcess, Wire]) -> None:
    """`[[raise]]` gets the default, `engine_error`, at once; its neighbours in the batch and the engine go on."""
    worker, wire = rig
    beside = message(fresh("s"), "beside [[delay=500]]")
    wire.send(beside)
    body = wire.ask(message(fresh("s"), "[[raise]]"))
    assert (body["outcome"], body["reason"], body["model"]) == ("default", "engine_error", None)
    assert body["latency_ms"]["total"] < LONG_MS / 2
    assert wire.answer(beside["event_id"]).body["outcome"] == "model"
    assert [engine["restarts"] for engine in worker.readiness()["engines"]] == [0]


def test_nothing_lags_at_the_end(rig: tuple[WorkerProcess, Wire]) -> None:
    """Every record of the module is released and counted once."""
    worker, wire = rig
    wire.await_no_lag()
    assert worker.metric_sum("answerby_events_total") + worker.metric_sum("answerby_dead_letters_total") == wire.sent
