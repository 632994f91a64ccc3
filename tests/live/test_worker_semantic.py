"""Live tests of the semantic cache in a worker: who gets an answer again, who does not, and what a complaint does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live_support import Wire, assert_in_time, fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

SETTINGS = """
[semantic_cache]
wait_ms = 1000  # a busy machine is no part of what is tested

[scenarios.faq]
context = ["plan"]
semantic_cache = { threshold = 0.8 }
cache = { standalone = true }
"""


@pytest.fixture(scope="module")
def wire(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A client of one worker with a scripted model."""
    name = fresh("semantic")
    rungs = {"rungs": ["semantic_cache", "main", "default"]}
    with running_worker(tmp_path_factory.mktemp("semantic"), worker_toml(broker, name, ladder=rungs) + SETTINGS), Wire(broker, name) as found:
        yield found


def ask(wire: Wire, text: str, **more: Any) -> dict[str, Any]:
    """What is answered in a session of its own."""
    event = {"event_id": fresh("e"), "session_id": fresh("s"), "text": text, "scenario": "faq", "deadline_ms": 10_000, **more}
    wire.ask(event)
    seen = wire.answer(str(event["event_id"]))
    assert_in_time(seen)
    return seen.body


@pytest.mark.parametrize(
    ("text", "otherwise", "opposite"),
    [
        ("How do I turn on dark mode?", "Could you tell me how to enable dark mode?", "How do I turn dark mode off?"),
        ("怎么开启夜间模式？", "请问如何打开夜间模式", "怎么关闭夜间模式？"),
    ],
)
def test_the_same_meaning_gets_the_answer_and_the_opposite_does_not(wire: Wire, text: str, otherwise: str, opposite: str) -> None:
    """In another session, by other words, degraded and with the writer's name; not for another tenant or another plan."""
    first = ask(wire, text)
    again = ask(wire, otherwise)
    assert (first["outcome"], again["outcome"], again["degraded"]) == ("model", "semantic_cache", True)
    assert (again["text"], again["model"]) == (first["text"], first["model"])
    assert again["rungs"][0]["why"].startswith("similarity ")
    for other in (ask(wire, opposite), ask(wire, text, tenant=fresh("t")), ask(wire, text, state={"plan": "gold"}), ask(wire, text, scenario="default")):
        assert other["outcome"] == "model"


def test_a_complaint_takes_the_answer_away(wire: Wire) -> None:
    """By a person who was given it again; the model answers from then on."""
    text, session = "How do I paint a wooden fence?", fresh("s")
    ask(wire, text)
    given = ask(wire, text, session_id=session)
    assert given["outcome"] == "semantic_cache"
    told = ask(wire, "wrong", kind="feedback", ref=given["event_id"], session_id=session)
    assert told["outcome"] == "ack"
    assert ask(wire, text)["outcome"] == "model"
    assert ask(wire, text)["outcome"] == "model"
