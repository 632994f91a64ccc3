"""Live tests of the ladder around its rungs: scenarios, defaults, degraded rules, caches, feedback, and the account of it all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.harness import WorkerProcess
from bench.load import decode
from tests.live_support import PARTITIONS, Wire, assert_in_time, fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

LONG_MS = 10_000
"""A budget that is no part of what is tested."""

BOUND_S = 60.0
"""Generous: says only that something does not hang."""

RULES = """
[cache]
ttl_s = 60

[feedback]
topic = "reviews"

[scenarios.game]
instructions = "Play the innkeeper."
[scenarios.game.ladder]
rungs = ["small", "default"]
[scenarios.game.ladder.default_text]
en = "The innkeeper nods at you, {state.hero.name|stranger}."
zh = "店主向{state.hero.name}点头。"

[scenarios.faq]
context = ["plan"]
cache = { standalone = true }

[scenarios.help]
cache = { standalone = true }
semantic_cache = { threshold = 0.6 }

[[rules.inline]]
name = "hours"
match = { any = ["opening hours"] }
answer = { en = "We open at nine." }

[[rules.inline]]
name = "ticket"
when = "degraded"
match = { any = ["refund"] }
answer = { en = "Write to us about order {state.order}, please." }
"""

MODELS = (
    {"name": "main", "text": "main says so", "token_ms": 5},
    {"name": "small", "text": "small says so", "token_ms": 1},
)


@pytest.fixture(scope="module")
def rig(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerProcess, Wire, Path]]:
    """One worker for the whole module, with a client and its settings file: two scripted models, rules, a cache and three scenarios."""
    folder, name = tmp_path_factory.mktemp("ladder"), fresh("ladder")
    rungs = {"rungs": ["rules", "cache", "semantic_cache", "main", "default"]}
    with running_worker(folder, worker_toml(broker, name, models=MODELS, ladder=rungs) + RULES) as worker, Wire(broker, name) as wire:
        yield worker, wire, folder / "worker.toml"


@pytest.fixture
def wire(rig: tuple[WorkerProcess, Wire, Path]) -> Wire:
    """The client."""
    return rig[1]


def message(text: str, session: str | None = None, **more: Any) -> dict[str, Any]:
    """A message under a new id."""
    return {"event_id": fresh("e"), "session_id": session or fresh("s"), "text": text, "deadline_ms": LONG_MS, "answer": {"max_tokens": 3}, **more}


def feedback(event: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A complaint about the answer to `event`."""
    return {**event, "event_id": fresh("f"), "kind": "feedback", "ref": event["event_id"], "text": "wrong", **more}


def way(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Rungs and verdicts."""
    return [(step["rung"], step["verdict"]) for step in body["rungs"]]


def test_each_scenario_walks_its_own_ladder(wire: Wire) -> None:
    """The same text: the base's main model, the scenario's own first model, and the base again for a name that nobody configured."""
    text = fresh("tell me about")
    base, game, unknown = (wire.ask(message(text, scenario=name)) for name in ("default", "game", "no-such-scenario"))
    assert [body["text"] for body in (base, game, unknown)] == ["main says so", "small says so", "main says so"]
    assert [body["outcome"] for body in (base, game, unknown)] == ["model"] * 3
    assert way(game) == [("small", "answered")]
    assert [rung for rung, _ in way(base)] == ["rules", "cache", "main"]


def test_a_rule_answers_before_any_model(wire: Wire) -> None:
    """It is no degraded answer, and no model is named."""
    body = wire.ask(message("What are your opening hours?"))
    assert (body["outcome"], body["degraded"], body["reason"], body["model"], body["text"]) == ("rule", False, None, None, "We open at nine.")
    assert way(body) == [("rules", "answered")]


def test_a_degraded_rule_stands_in_for_the_default(wire: Wire) -> None:
    """Where the model fails and the rule matches; with values of the session; where it does not match, the default is said."""
    session = fresh("s")
    wire.ask(message("", session, kind="context", state={"order": 17}))
    body = wire.ask(message("a refund [[raise]]", session))
    assert (body["outcome"], body["text"], body["reason"], body["degraded"]) == ("rule", "Write to us about order 17, please.", None, False)
    assert way(body)[-2:] == [("main", "failed"), ("rules", "answered")]
    other = wire.ask(message("a refund [[raise]]"))
    assert (other["outcome"], other["reason"]) == ("default", "engine_error")
    assert wire.ask(message("a refund, please"))["outcome"] == "model"


def test_the_default_is_the_scenarios_own_and_filled_in(wire: Wire) -> None:
    """In the person's language, from earlier state; a missing value falls back; an expired event gets the same text."""
    session = fresh("s")
    wire.ask(message("", session, kind="context", state={"hero": {"name": "Mira"}}))
    failed = wire.ask(message("[[raise]]", session, scenario="game"))
    assert (failed["outcome"], failed["reason"], failed["text"]) == ("default", "engine_error", "The innkeeper nods at you, Mira.")
    assert wire.ask(message("[[raise]]", session, scenario="game", locale="zh-CN"))["text"] == "店主向Mira点头。"
    assert wire.ask(message("x", session, scenario="game", deadline_ms=0))["text"] == "The innkeeper nods at you, Mira."
    assert wire.ask(message("[[raise]]", scenario="game"))["text"] == "The innkeeper nods at you, stranger."


def test_a_default_at_the_deadline_is_filled_in_and_on_time(wire: Wire) -> None:
    """The model is silent until its time is up: what is said then was in hand before."""
    session = fresh("s")
    wire.ask(message("", session, kind="context", state={"hero": {"name": "Mira"}}))
    event = message("[[delay=5000]]", session, scenario="game", deadline_ms=700)
    wire.send(event)
    seen = wire.answer(event["event_id"])
    assert (seen.body["outcome"], seen.body["reason"], seen.body["text"]) == ("default", "deadline", "The innkeeper nods at you, Mira.")
    assert_in_time(seen)


def test_a_question_asked_again_is_answered_from_the_cache_in_its_tenant_and_context(wire: Wire) -> None:
    """Another session of the tenant gets it; another tenant, another scenario or another relevant context does not."""
    text = fresh("which is it")
    first = wire.ask(message(text, tenant="red", scenario="faq", state={"plan": "basic"}))
    assert first["outcome"] == "model"
    again = wire.ask(message(text, tenant="red", scenario="faq", state={"plan": "basic", "mood": "good"}))
    assert (again["outcome"], again["degraded"], again["reason"], again["text"]) == ("cache", False, None, first["text"])
    changes: tuple[dict[str, Any], ...] = ({"tenant": "blue"}, {"state": {"plan": "gold"}}, {"scenario": "default"})
    for change in changes:
        other = wire.ask({**message(text), "tenant": "red", "scenario": "faq", "state": {"plan": "basic"}, **change})
        assert other["outcome"] == "model", change


def test_feedback_evicts_the_answer_and_hides_its_turn(rig: tuple[WorkerProcess, Wire, Path]) -> None:
    """The next to ask is answered anew, the session's next prompt is as short as if the turn had never been, and it is on record."""
    worker, wire, _config = rig
    text, session = fresh("what is right"), fresh("s")
    fresh_prompt = wire.ask(message(f"{text} now"))["usage"]["prompt_tokens"]
    event = message(text, session)
    assert wire.ask(event)["outcome"] == "model"
    assert wire.ask(message(text))["outcome"] == "cache"
    complaint = feedback(event)
    told = wire.ask(complaint)
    assert (told["outcome"], told["kind"]) == ("ack", "feedback")
    assert told["data"] == {"found": True, "verdict": "wrong", "marked": True, "evicted": 1, "handed": True}
    assert wire.ask(message(text))["outcome"] == "model"
    follow_up = wire.ask(message(f"{text} then", session))
    assert (follow_up["outcome"], follow_up["usage"]["prompt_tokens"]) == ("model", fresh_prompt)
    wire.await_that(lambda: any(seen.body["event_id"] == complaint["event_id"] for seen in wire.audits), "an audit record")
    (record,) = (seen.body for seen in wire.audits if seen.body["event_id"] == complaint["event_id"])
    assert (record["action"], record["ref"]) == ("feedback", event["event_id"])
    assert worker.metric_sum("answerby_reviews_total", result="handed") >= 1


def test_what_means_the_same_is_given_once_more_and_leaves_both_caches_when_it_is_wrong(wire: Wire) -> None:
    """The second wording gets the first one's answer; called wrong for the second, it is given to neither again."""
    first, second = "please tell me when the shop opens on monday", "tell me please when the shop opens on monday"
    long = {"max_tokens": 12}
    assert wire.ask(message(first, scenario="help", answer=long))["outcome"] == "model"
    reworded = message(second, scenario="help", answer=long)
    hit = wire.ask(reworded)
    assert (hit["outcome"], hit["degraded"], hit["reason"]) == ("semantic_cache", True, None)
    assert wire.ask(message(first, scenario="help", answer=long))["outcome"] == "cache"
    told = wire.ask(feedback(reworded))
    assert told["data"]["evicted"] == 2
    assert [wire.ask(message(text, scenario="help", answer=long))["outcome"] for text in (first, second)] == ["model", "model"]


def test_feedback_about_what_is_not_known_changes_nothing(wire: Wire) -> None:
    """It is acknowledged, and the acknowledgement says so."""
    told = wire.ask(feedback(message("never sent")))
    assert (told["outcome"], told["data"]) == ("ack", {"found": False})


def test_people_get_what_the_person_consented_to(wire: Wire) -> None:
    """The review topic holds the complaint; texts are in it only with consent."""
    private, public = message(fresh("private matter")), message(fresh("public matter"))
    wire.ask(private)
    wire.ask(public)
    wire.ask(feedback(private))
    wire.ask(feedback(public, consent={"store_history": True}, text="unsafe"))
    reviews = {review["ref"]: review for review in read_all(wire, f"{wire.name}-reviews", 2, {private["event_id"], public["event_id"]})}
    assert (reviews[private["event_id"]]["verdict"], reviews[private["event_id"]]["said"], reviews[private["event_id"]]["answered"]) == ("wrong", None, None)
    assert (reviews[public["event_id"]]["verdict"], reviews[public["event_id"]]["said"]) == ("unsafe", public["text"])


def read_all(wire: Wire, topic: str, count: int, refs: set[str]) -> list[dict[str, Any]]:
    """`count` records of a topic about these events."""
    consumer = Consumer({"bootstrap.servers": wire.bootstrap, "group.id": "reviews", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[dict[str, Any]] = []

    def poll() -> bool:
        record = consumer.poll(0.05)
        if record is not None and record.error() is None and (body := decode(record.value() or b""))["ref"] in refs:
            found.append(body)
        return len(found) >= count

    try:
        wire.await_that(poll, f"{count} reviews")
    finally:
        consumer.close()
    return found


def explain(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`answerby explain`, as a program."""
    command = [sys.executable, "-m", "agents.cli", "explain", *arguments, "-c", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)


def test_explain_shows_the_way_down_and_no_text(rig: tuple[WorkerProcess, Wire, Path]) -> None:
    """Each rung with its verdict and why, the outcome, and what was left; texts only when asked for."""
    _worker, wire, config = rig
    event = message("secret words [[raise]]", scenario="game", metadata={"who": "Ann"})
    body = wire.ask(event)
    shown = explain(config, event["event_id"], "--session", event["session_id"])
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert event["event_id"] in lines[0]
    assert lines[1].startswith("default engine_error")
    assert any(line.startswith("small") and "failed" in line for line in lines)
    assert any(line.startswith("default") and "answered" in line for line in lines)
    assert "ms left" in shown.stdout
    assert "innkeeper" not in shown.stdout
    assert "Ann" not in shown.stdout
    told = explain(config, event["event_id"], "--texts")
    assert body["text"] in told.stdout
    assert "Ann" in told.stdout


def test_explain_in_json_is_the_response_without_texts(rig: tuple[WorkerProcess, Wire, Path]) -> None:
    """One line for programs, with where the record stands."""
    _worker, wire, config = rig
    event = message("anything")
    body = wire.ask(event)
    shown = explain(config, event["event_id"], "--json")
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["rungs"] == body["rungs"]
    assert "text" not in found
    assert found["place"]["topic"] == wire.topics.responses
    assert json.loads(explain(config, event["event_id"], "--json", "--texts").stdout)["text"] == body["text"]


def test_explain_says_when_there_is_no_such_answer(rig: tuple[WorkerProcess, Wire, Path]) -> None:
    """Exit 1 and one line."""
    shown = explain(rig[2], "no-such-event")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert shown.stderr.startswith("error: no response to no-such-event in ")
    assert len(shown.stderr.splitlines()) == 1


def test_every_step_is_counted(rig: tuple[WorkerProcess, Wire, Path]) -> None:
    """The default that was said stands in the figures with its reason, and the events still sum up."""
    worker, wire, _config = rig
    before = worker.metric_sum("answerby_rungs_total", rung="default", verdict="answered", reason="engine_error")
    wire.ask(message("[[raise]]"))
    assert worker.metric_sum("answerby_rungs_total", rung="default", verdict="answered", reason="engine_error") == before + 1
    wire.await_no_lag()
    assert worker.metric_sum("answerby_events_total") + worker.metric_sum("answerby_dead_letters_total") == wire.sent
