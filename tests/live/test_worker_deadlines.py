"""Live tests of order, deadlines and what each kind of event is answered with, on one engine that speaks 50 words a second to one person at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.harness import WorkerProcess
from schemas.responses import STAGES, UNDEGRADED, response_id
from tests.live_support import LATE_MS, Wire, assert_in_time, fresh, late_ms, now_ms, wired

pytestmark = pytest.mark.live

DEFAULTS = {"en": "Sorry, later.", "de": "Bitte später.", "zh-TW": "請稍後。", "zh": "请稍后。"}
DISCLOSURE = {"en": "Written by a machine.", "de": "Von einer Maschine.", "zh": "机器所写。"}
TOKEN_MS = 20
LONG_MS = 20_000


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerProcess, Wire]]:
    """One worker for the whole module."""
    model = {"max_batch": 1, "token_ms": TOKEN_MS, "waiting": 16}
    texts = {"ladder": {"default_text": DEFAULTS}, "policy": {"disclosure": DISCLOSURE}}
    with wired(tmp_path_factory.mktemp("deadlines"), broker, "deadlines", models=[model], **texts) as found:
        yield found


@pytest.fixture
def wire(rig: tuple[WorkerProcess, Wire]) -> Wire:
    """The client."""
    return rig[1]


def message(text: str = "hello", *, session: str | None = None, tokens: int = 2, ms: float = LONG_MS, **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session or fresh("s"), "text": text, "deadline_ms": ms, "answer": {"max_tokens": tokens}, **more}


def other(kind: str, session: str, **more: Any) -> dict[str, Any]:
    """An event of another kind."""
    return {"event_id": fresh("e"), "session_id": session, "kind": kind, "deadline_ms": LONG_MS, **more}


def whys(body: dict[str, Any]) -> list[str]:
    """The reasons along the ladder."""
    return [rung["why"] for rung in body["rungs"]]


def await_running(worker: WorkerProcess, wire: Wire, event: dict[str, Any]) -> None:
    """Send an event and wait until the engine works on it."""
    steps = worker.metric_sum("answerby_engine_step_seconds_count")
    wire.send(event)
    wire.await_that(lambda: worker.metric_sum("answerby_engine_step_seconds_count") > steps, "a step of the engine")


def test_the_queue_uses_up_the_deadline_of_those_who_wait_not_of_those_who_can(rig: tuple[WorkerProcess, Wire]) -> None:
    """While A takes a second, B, C and D with 200 ms get the default at their due, E with more gets the model, and the model worked for A and E alone."""
    worker, wire = rig
    spoken = worker.metric_sum("answerby_tokens_total", kind="completion")
    a = message("A", tokens=50, ms=5000)
    short = [message(name, tokens=50, ms=200) for name in "BCD"]
    e = message("E", tokens=10, ms=4000)
    await_running(worker, wire, a)
    for event in (*short, e):
        wire.send(event)
    for event in short:
        seen = wire.answer(event["event_id"])
        assert (seen.body["outcome"], seen.body["text"]) == ("default", DEFAULTS["en"])
        assert seen.body["reason"] in ("deadline", "overload")
        assert seen.body["model"] is None
        assert seen.body["finish_reason"] is None
        assert seen.body["usage"]["completion_tokens"] == 0
        assert_in_time(seen)
    for event in (a, e):
        assert wire.answer(event["event_id"]).body["outcome"] == "model"
    assert worker.metric_sum("answerby_tokens_total", kind="completion") == spoken + 60


def test_a_later_event_that_is_due_earlier_pulls_the_ones_before_it(wire: Wire) -> None:
    """Order and deadline both hold: the earlier ones are answered by the later one's due, and say that they were pulled."""
    session = fresh("s")
    early = [message("slow [[delay=9000]]", session=session), message("waiting", session=session)]
    hasty = message("now", session=session, ms=600)
    for event in (*early, hasty):
        wire.send(event)
    seen = [wire.answer(event["event_id"]) for event in (*early, hasty)]
    assert [item.offset for item in seen] == sorted(item.offset for item in seen)
    due = seen[2].body["deadline"]["due_at_ms"]
    for item in seen[:2]:
        assert "pulled" in whys(item.body)
        assert item.body["deadline"]["budget_ms"] == LONG_MS
        assert item.body["deadline"]["due_at_ms"] <= due + 1
    assert "pulled" not in whys(seen[2].body)
    for item in seen:
        assert_in_time(item)
        assert item.body["deadline"]["met"]


def test_an_expired_event_pulls_nothing_and_waits_its_turn(wire: Wire) -> None:
    """An event that came too late is no hurry: the one before it keeps its time and its place."""
    session = fresh("s")
    slow = message("slow [[delay=600]]", session=session, ms=5000)
    late = message("late", session=session, ms=0)
    wire.send(slow)
    wire.send(late)
    first, second = wire.answer(slow["event_id"]), wire.answer(late["event_id"])
    assert first.body["outcome"] == "model"
    assert "pulled" not in whys(first.body)
    assert (second.body["outcome"], second.body["reason"]) == ("default", "expired")
    assert first.offset < second.offset
    assert not second.body["deadline"]["met"]


@pytest.mark.parametrize("ms", [0, -50, 0.4, 19])
def test_a_budget_below_the_least_is_answered_at_once_without_the_model(rig: tuple[WorkerProcess, Wire], ms: float) -> None:
    """The default, `expired`, and the engine is not asked."""
    worker, wire = rig
    steps = worker.metric_sum("answerby_engine_step_seconds_count")
    body = wire.ask(message("hi", ms=ms))
    assert (body["outcome"], body["reason"], body["text"]) == ("default", "expired", DEFAULTS["en"])
    assert worker.metric_sum("answerby_engine_step_seconds_count") == steps


def test_an_event_that_waited_in_kafka_has_only_the_rest(wire: Wire) -> None:
    """Time before the worker saw the event counts: half a budget is left, and none of it is more than it was."""
    stamp = now_ms() - 700
    event = message("long", tokens=60, ms=1000, occurred_at_ms=stamp)
    wire.send(event)
    seen = wire.answer(event["event_id"])
    assert seen.body["deadline"]["due_at_ms"] == stamp + 1000
    assert seen.body["latency_ms"]["queue"] >= 650
    assert seen.body["outcome"] in ("partial", "default")
    assert_in_time(seen)


def test_an_answer_cut_by_time_is_partial(wire: Wire) -> None:
    """What was said by the due is sent, says so, and is no less than the least that is worth sending."""
    event = message("long", tokens=60, ms=600)
    wire.send(event)
    seen = wire.answer(event["event_id"])
    assert (seen.body["outcome"], seen.body["reason"], seen.body["degraded"]) == ("partial", "deadline", True)
    assert 6 <= seen.body["usage"]["completion_tokens"] < 60
    assert len(seen.body["text"].split()) >= 6
    assert seen.body["model"] == {"name": "main", "version": "scripted"}
    assert_in_time(seen)


def test_a_cancel_ends_the_event_that_is_being_answered(wire: Wire) -> None:
    """At once and out of line; its own `ack` follows."""
    session = fresh("s")
    slow = message("slow [[delay=15000]]", session=session)
    wire.send(slow)
    began = time.monotonic()
    cancel = other("cancel", session, ref=slow["event_id"])
    wire.send(cancel)
    refused, ack = wire.answer(slow["event_id"]), wire.answer(cancel["event_id"])
    assert time.monotonic() - began < 10
    assert (refused.body["outcome"], refused.body["reason"], refused.body["text"]) == ("refused", "cancelled", "")
    assert (ack.body["outcome"], ack.body["reason"]) == ("ack", None)
    assert refused.offset < ack.offset


def test_a_cancel_ends_an_event_that_waits_and_no_other(wire: Wire) -> None:
    """The event in front keeps its answer."""
    session = fresh("s")
    front, behind = message("front [[delay=500]]", session=session), message("behind", session=session)
    for event in (front, behind, other("cancel", session, ref=behind["event_id"])):
        wire.send(event)
    assert wire.answer(front["event_id"]).body["outcome"] == "model"
    assert wire.answer(behind["event_id"]).body["reason"] == "cancelled"


def test_a_cancel_of_what_is_answered_or_unknown_is_acknowledged(wire: Wire) -> None:
    """It comes too late or means nothing: an `ack`, and no answer changes."""
    session = fresh("s")
    event = message(session=session)
    wire.ask(event)
    assert wire.ask(other("cancel", session, ref=event["event_id"]))["outcome"] == "ack"
    assert wire.ask(other("cancel", session, ref="nobody"))["outcome"] == "ack"
    assert len(wire.answers[event["event_id"]]) == 1


def test_a_decision_waits_for_its_confirm(wire: Wire) -> None:
    """`confirm_request` with its end; the confirm that accepts it is told so, a second one and an unknown one are not."""
    session = fresh("s")
    decision = other("decision", session, text="Sell the ring?")
    asked = wire.ask(decision)
    assert (asked["outcome"], asked["degraded"], asked["reason"]) == ("confirm_request", False, None)
    assert "Sell the ring?" in asked["text"]
    assert asked["data"]["expires_at_ms"] > now_ms()
    confirmed = wire.ask(other("confirm", session, ref=decision["event_id"]))
    assert (confirmed["outcome"], confirmed["data"]) == ("ack", {"confirmed": True})
    assert wire.ask(other("confirm", session, ref=decision["event_id"]))["data"] == {"confirmed": False, "why": "already"}
    assert wire.ask(other("confirm", session, ref="nobody"))["data"] == {"confirmed": False, "why": "unknown"}


def test_a_declined_decision_is_not_confirmed_later(wire: Wire) -> None:
    """`accept: false` ends it."""
    session = fresh("s")
    decision = other("decision", session, text="Sell the ring?")
    wire.ask(decision)
    assert wire.ask(other("confirm", session, ref=decision["event_id"], accept=False))["data"] == {"confirmed": False, "why": "declined"}
    assert wire.ask(other("confirm", session, ref=decision["event_id"]))["data"] == {"confirmed": False, "why": "already"}


@pytest.mark.parametrize("kind", ["context", "reset", "feedback", "cancel", "confirm"])
def test_what_needs_no_answer_is_acknowledged(rig: tuple[WorkerProcess, Wire], kind: str) -> None:
    """`ack`, not degraded, without text or model, and the engine is not asked."""
    worker, wire = rig
    steps = worker.metric_sum("answerby_engine_step_seconds_count")
    body = wire.ask(other(kind, fresh("s"), ref="something", metadata={"k": "v"}))
    assert (body["outcome"], body["reason"], body["degraded"], body["text"], body["model"]) == ("ack", None, False, "", None)
    assert (body["kind"], body["metadata"]) == (kind, {"k": "v"})
    assert worker.metric_sum("answerby_engine_step_seconds_count") == steps


def test_without_consent_nothing_is_generated(rig: tuple[WorkerProcess, Wire]) -> None:
    """`refused`, `no_consent`, audited without the text, and the engine is not asked."""
    worker, wire = rig
    steps = worker.metric_sum("answerby_engine_step_seconds_count")
    event = message("secret words", consent={"ai_reply": False})
    body = wire.ask(event, headers=[("traceparent", b"00-trace")])
    assert (body["outcome"], body["reason"], body["degraded"], body["text"]) == ("refused", "no_consent", True, "")
    assert worker.metric_sum("answerby_engine_step_seconds_count") == steps
    wire.await_that(lambda: any(seen.body["event_id"] == event["event_id"] for seen in wire.audits), "an audit record")
    (audit,) = (seen for seen in wire.audits if seen.body["event_id"] == event["event_id"])
    assert (audit.body["action"], audit.body["reason"]) == ("refused", "no_consent")
    assert b"secret" not in (audit.value or b"")
    assert audit.header("traceparent") == b"00-trace"


@pytest.mark.parametrize("text", ["", "   \n"], ids=["empty", "blank"])
def test_an_empty_text_gets_the_default(wire: Wire, text: str) -> None:
    """`default`, `empty_input`."""
    body = wire.ask(message(text))
    assert (body["outcome"], body["reason"], body["text"]) == ("default", "empty_input", DEFAULTS["en"])


@pytest.mark.parametrize(
    ("locale", "default", "disclosure"),
    [(None, "en", "en"), ("de", "de", "de"), ("de-AT", "de", "de"), ("zh-TW", "zh-TW", "zh"), ("zh_CN", "zh", "zh"), ("fr", "en", "en")],
)
def test_default_and_disclosure_speak_the_persons_language(wire: Wire, locale: str | None, default: str, disclosure: str) -> None:
    """The exact locale, else its language, else English."""
    body = wire.ask(message("hi", ms=0, locale=locale))
    assert (body["text"], body["disclosure"]) == (DEFAULTS[default], DISCLOSURE[disclosure])
    assert wire.ask(message("hi", locale=locale))["disclosure"] == DISCLOSURE[disclosure]


def test_a_choice_is_one_of_the_choices(wire: Wire) -> None:
    """The text is a label, and the finish says so; an answer that is none of them is never sent."""
    body = wire.ask(message("which?", tokens=20, answer={"choice": ["north gate", "south gate"]}))
    assert (body["outcome"], body["text"], body["finish_reason"]) == ("model", "north gate", "choice")
    body = wire.ask(message("which? [[say=west]]", answer={"choice": ["north gate", "south gate"]}))
    assert (body["outcome"], body["reason"], body["text"]) == ("default", "engine_error", DEFAULTS["en"])


def test_a_json_schema_answer_has_its_data(wire: Wire) -> None:
    """`data` is what the text says; a text that is no JSON is never sent."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = wire.ask(message('json [[say={"a": 1}]]', tokens=20, answer={"json_schema": schema}))
    assert (body["outcome"], body["data"]) == ("model", {"a": 1})
    assert wire.ask(message("json [[say=no json]]", answer={"json_schema": schema}))["reason"] == "engine_error"


def test_a_stop_text_ends_the_answer_and_is_not_in_it(wire: Wire) -> None:
    """Nothing from the stop on is delivered."""
    body = wire.ask(message("go [[say=Hello there User: nobody]]", answer={"stop": ["User:"], "max_tokens": 20}))
    assert (body["text"].strip(), body["finish_reason"]) == ("Hello there", "stop")


def test_a_response_carries_what_the_event_brought(wire: Wire) -> None:
    """Encoding, trace, metadata and ids come back untouched, on the event's own partition number."""
    event = message("hi", metadata={"名": "値", "empty": ""}, tenant="t-1")
    partition = 2
    wire.send(event, encoding="json", partition=partition, headers=[("traceparent", b"00-abc"), ("other", b"x")])
    seen = wire.answer(event["event_id"])
    assert (seen.value or b"")[:1] == b"{"
    assert seen.headers == (("content-type", b"application/json"), ("traceparent", b"00-abc"))
    assert seen.partition == partition
    assert seen.key == event["session_id"].encode()
    body = seen.body
    assert body["metadata"] == event["metadata"]
    assert (body["event_id"], body["session_id"], body["tenant"], body["schema_version"]) == (event["event_id"], event["session_id"], "t-1", 1)
    assert body["response_id"] == response_id("t-1", event["session_id"], event["event_id"])


def test_more_than_can_be_served_is_answered_in_time_all_the_same(rig: tuple[WorkerProcess, Wire]) -> None:
    """Of 200 events in a burst a few get the model, the others the default, each by its due (R29)."""
    worker, wire = rig
    events = [message(f"burst {number}", tokens=6, ms=1500) for number in range(200)]
    for event in events:
        wire.send(event)
    outcomes = set()
    for event in events:
        seen = wire.answer(event["event_id"])
        outcomes.add(seen.body["outcome"])
        assert_in_time(seen)
    assert {"model", "default"} <= outcomes <= {"model", "partial", "default"}
    wire.await_that(lambda: worker.metric_sum("answerby_in_flight_events") == 0, "nothing in flight")


def test_every_answer_adds_up(wire: Wire) -> None:
    """Of all responses of this module: stages sum to the total, `degraded` follows the outcome, `met` the clock, and none came twice."""
    assert len(wire.in_order) > 250
    for seen in wire.in_order:
        body, stages = seen.body, seen.body["latency_ms"]
        assert set(stages) == {*STAGES, "total"}
        assert all(value >= 0 for value in stages.values())
        assert abs(sum(stages[name] for name in STAGES) - stages["total"]) <= 1, body
        assert body["degraded"] == (body["outcome"] not in UNDEGRADED)
        deadline = body["deadline"]
        assert abs(deadline["answered_at_ms"] - (deadline["due_at_ms"] - deadline["budget_ms"]) - stages["total"]) <= 3 or "pulled" in whys(body), body
        assert deadline["answered_at_ms"] <= seen.written_ms + 1
        assert not deadline["met"] or late_ms(seen) <= LATE_MS
        assert body["rungs"] or body["outcome"] in ("ack", "refused", "confirm_request") or body["reason"] == "empty_input"
    assert all(len(seen) == 1 for seen in wire.answers.values())


def test_nothing_lags_at_the_end(rig: tuple[WorkerProcess, Wire]) -> None:
    """Every record of the module is released and counted once."""
    worker, wire = rig
    wire.await_no_lag()
    assert worker.metric_sum("answerby_events_total") == wire.sent
