"""Live tests of conversations in a real worker: facts, contradicting answers, confirms, state and silence, over Kafka and a scripted engine's process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.live_support import Wire, fresh, now_ms, wired

pytestmark = pytest.mark.live

LONG_MS = 10_000
"""A budget that is no part of what is tested."""

CONFIRM_MS = 1500


@pytest.fixture(scope="module")
def wire(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A client of one worker for the whole module, whose engine reads a word in 0.2 ms."""
    sections: dict[str, Any] = {
        "models": ({"prefill_ms_per_token": 0.2, "max_tokens": 32},),
        "session": {"idle_s": 3600, "confirm_ms": CONFIRM_MS, "prompt_tokens": 1024},
        "scenarios.quest": {"decision_patterns": ["sell (my|the) house"], "state_schema": {"types": {"gold": "integer"}}},
    }
    with wired(tmp_path_factory.mktemp("conversations"), broker, "conversations", **sections) as (_, found):
        yield found


class Talk:
    """One session."""

    def __init__(self, wire: Wire, **common: Any) -> None:
        self.session = fresh("s")
        self._wire, self._common = wire, common

    def say(self, text: str | None, **fields: Any) -> dict[str, Any]:
        """The response's body."""
        event = {"event_id": fresh("e"), "session_id": self.session, "deadline_ms": LONG_MS, **self._common, **fields}
        return self._wire.ask(event if text is None else {**event, "text": text})


@pytest.mark.parametrize(
    ("locale", "stated", "right", "wrong", "mended"),
    [
        (
            "en",
            ["My name is Ann Lee.", "My order number is KX-4471.", "My delivery is on Tuesday."],
            "Your order KX-4471 arrives on Tuesday.",
            "Hello Sandra, all is well.",
            "Hello Ann Lee, all is well.",
        ),
        (
            "zh",
            ["我叫周晓梅。", "订单号是HD20931。", "我对花生过敏。"],
            "您的订单HD20931已经打包。",
            "您的名字是刘红。",
            "您的名字是周晓梅。",
        ),
    ],
)
def test_answers_agree_with_what_was_stated(wire: Wire, locale: str, stated: list[str], right: str, wrong: str, mended: str) -> None:
    """A right answer passes, a wrong name is mended, and what no rule can mend is not sent."""
    talk = Talk(wire, locale=locale)
    for text in stated:
        assert talk.say(text)["outcome"] == "model"
    heard = talk.say(f"[[say={right}]]")
    assert (heard["outcome"], heard["text"]) == ("model", right)
    heard = talk.say(f"[[say={wrong}]]")
    assert (heard["outcome"], heard["text"]) == ("model", mended)
    heard = talk.say("[[say=Your delivery is on Friday.]]" if locale == "en" else "[[say=还好您不对花生过敏。]]")
    assert (heard["outcome"], heard["reason"]) == ("default", "inconsistent")
    assert [(rung["rung"], rung["verdict"]) for rung in heard["rungs"]] == [("main", "failed"), ("main", "failed"), ("default", "answered")]


def test_a_decision_holds_only_after_its_confirm(wire: Wire) -> None:
    """Declared by its kind or by a pattern; late, foreign and repeated confirms are told why they change nothing, and all of it is audited."""
    talk = Talk(wire, scenario="quest")
    first, second, other = fresh("d"), fresh("d"), Talk(wire)
    asked = talk.say("Refund 40 euros to Peter.", event_id=first, kind="decision")
    assert (asked["outcome"], asked["degraded"]) == ("confirm_request", False)
    contradicting = "[[say=I refunded 400 euros to Peter.]]"
    assert talk.say(contradicting)["outcome"] == "model"
    assert other.say(None, kind="confirm", ref=first)["data"] == {"confirmed": False, "why": "unknown"}
    assert talk.say(None, kind="confirm", ref=first)["data"] == {"confirmed": True}
    assert talk.say(None, kind="confirm", ref=first)["data"] == {"confirmed": False, "why": "already"}
    held = talk.say(contradicting)
    assert held["outcome"] == "default" or "400" not in held["text"]
    asked = talk.say("Sell my house.", event_id=second)
    assert asked["outcome"] == "confirm_request"
    wire.read_for((asked["data"]["expires_at_ms"] - now_ms()) / 1000 + 0.1)
    assert talk.say(None, kind="confirm", ref=second)["data"] == {"confirmed": False, "why": "expired"}
    wanted = {("confirm_requested", first), ("confirm_requested", second), ("confirmed", first), ("confirm_ignored", first), ("confirm_ignored", second)}
    wire.await_that(lambda: wanted <= {(seen.body["action"], seen.body["ref"] or seen.body["event_id"]) for seen in wire.audits}, "audit records of each act")


def test_state_is_merged_by_time_and_replaced_on_demand(wire: Wire) -> None:
    """A late write is told as stale; wrong state of a scenario is a dead letter."""
    talk, at_ms = Talk(wire, kind="context"), now_ms() - 5000
    heard = [
        talk.say(None, state={"gold": 5, "hat": "red"}, occurred_at_ms=at_ms + 2000)["data"],
        talk.say(None, state={"gold": 1}, occurred_at_ms=at_ms + 1000)["data"],
        talk.say(None, state={"quest": "dragon"}, occurred_at_ms=at_ms + 3000, metadata={"state": "replace"})["data"],
    ]
    assert heard == [{"version": 1, "stale": []}, {"version": 1, "stale": ["gold"]}, {"version": 2, "stale": []}]
    wrong = {"event_id": fresh("e"), "session_id": talk.session, "kind": "context", "scenario": "quest", "state": {"gold": "many"}}
    assert wire.dead_letter(wire.send(wrong)).header("answerby.reason") == b"invalid_field"


def test_reset_and_silence_begin_new_contexts(wire: Wire) -> None:
    """Both show: one in its acknowledgement, the other in `rungs`; an event from 2099 ends nothing."""
    talk, at_ms = Talk(wire), now_ms()
    talk.say("My name is Ann Lee.", occurred_at_ms=at_ms - 7_300_000, deadline_ms=7_400_000)
    assert talk.say("Hm.", occurred_at_ms=at_ms)["rungs"][0]["rung"] == "session"
    talk.say("Far ahead.", occurred_at_ms=4_070_908_800_000)
    assert talk.say("Hm.")["rungs"][0]["rung"] == "main"
    before = talk.say("Hm.")["usage"]["prompt_tokens"]
    assert talk.say(None, kind="reset")["data"] == {"reset": True, "context": 2, "turns": 4}
    assert talk.say("Hm.")["usage"]["prompt_tokens"] < before


def test_three_hundred_turns_and_a_huge_message_are_answered_in_time(wire: Wire) -> None:
    """Every turn within its deadline with a bounded prompt; 300 kB in one message too, in either language, by a model and not by a default."""
    talk = Talk(wire, answer={"max_tokens": 8})
    talk.say("My name is Ann Lee.")
    for number in range(300):
        heard = talk.say(f"Turn {number}: " + "please tell me more about it " * 6, deadline_ms=2000)
        assert (heard["outcome"], heard["deadline"]["met"]) == ("model", True)
        assert heard["usage"]["prompt_tokens"] < 1024
    for huge in ("word " * 60_000, "汉字 " * 40_000):
        heard = talk.say(huge + "[[say=Your name is Ann Lee.]]", deadline_ms=2000)
        assert (heard["outcome"], heard["text"], heard["deadline"]["met"]) == ("model", "Your name is Ann Lee.", True)
        assert heard["usage"]["prompt_tokens"] < 1024
