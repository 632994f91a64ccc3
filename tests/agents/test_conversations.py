"""Whole conversations through the real decider: what is known after each turn, which answers may go out, and what a decision is before its confirm."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from agents.context.prompt import MESSAGE_TOKENS, count_tokens
from agents.ladder import Budget, Declined, Given, Question
from schemas.facts import Text, load_facts
from schemas.responses import Usage
from schemas.session import SessionState, load_stored, session_key
from schemas.settings import DeadlineSection, Limits, Session, Settings, parse_settings
from tests.agents.facts.playing import MINUTE_MS, START_MS, name_of, read_script, show
from tests.agents.intake import Intake
from tests.support import run

SETTINGS = Settings(deadline=DeadlineSection(clock="arrival", default_ms=30_000.0), session=Session(turns=2))


class SaysAsTold:
    """A model that says what the event's metadata tells it to; `then` when it is asked again with a reminder."""

    name = "main"
    label = "main"
    floor_s = 0.0

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing to let go."""

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """At once."""
        self.asked.append(question)
        told = question.event.metadata
        is_again = len(self.asked) > 1 and self.asked[-2].event.event_id == question.event.event_id
        if is_again and "then" not in told and "stubborn" not in told:
            return Declined("skipped", "needs more time than is left", "deadline")
        text = told["then"] if is_again and "then" in told else told.get("say", "Noted.")
        data = msgspec.json.decode(text) if question.event.answer.json_schema is not None else None
        return Given("model", text, data=data, finish_reason="stop", usage=Usage(5, 0, 3))


class Talk:
    """One session, one event after the other."""

    def __init__(self, intake: Intake, model: SaysAsTold, locale: str = "en") -> None:
        self.intake, self.model, self._locale = intake, model, locale
        self.clock_ms = START_MS
        self._number = 0

    async def say(self, text: str | None, *, event_id: str | None = None, **fields: Any) -> dict[str, Any]:
        """The response to one event, a minute after the last one."""
        self._number += 1
        self.clock_ms += MINUTE_MS
        name = event_id or f"n{self._number}"
        self.intake.feed(name, **{"text": text, "occurred_at_ms": self.clock_ms, "locale": self._locale, **fields})
        await self.intake.until_released()
        assert self.intake.crashes == []
        assert self.intake.publisher.dead == []
        return next(one for one in reversed(self.intake.publisher.said) if one["event_id"] == name)

    async def hear(self, answer: str, **told: str) -> dict[str, Any]:
        """The response when the model says `answer`."""
        return await self.say("Hm.", metadata={"say": answer, **told})

    @property
    def state(self) -> SessionState:
        """The session as stored."""
        return load_stored(self.intake.tables.values["sessions", session_key("default", "s")], SessionState)

    def facts(self) -> dict[str, str]:
        """What is known, as scripts write it."""
        return {name_of(fact): show(fact, self._locale) for fact in load_facts(self.state.facts).facts}


def talking(scenario: Any, settings: Settings = SETTINGS, locale: str = "en") -> None:
    """Run `scenario` with a new session."""

    async def go() -> None:
        model = SaysAsTold()
        async with Intake(settings, model) as intake:
            await scenario(Talk(intake, model, locale))

    run(go())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_long_conversation_has_the_right_facts_and_only_consistent_answers(language: str) -> None:
    """After each of more than thirty turns the right facts are stored; every contradicting answer is mended or held back, and no other one is."""

    async def scenario(talk: Talk) -> None:
        stated: dict[str, str] = {}
        caught, passed, decided = 0, 0, 0
        turns = read_script(language, "known")
        for turn in turns:
            if turn.confirms is not None:
                before = talk.facts()
                asked = await talk.say(turn.text, event_id=turn.turn, kind="decision")
                assert asked["outcome"] == "confirm_request"
                assert len(talk.state.decisions) == decided
                for answer in turn.answers:  # not confirmed, so nothing can contradict it
                    assert (await talk.hear(answer.text))["text"] == answer.text
                assert (await talk.say(None, kind="confirm", ref=turn.turn))["data"] == {"confirmed": True}
                decided += 1
                assert before.items() <= talk.facts().items()
            else:
                await talk.say(turn.text, event_id=turn.turn)
            stated |= turn.sets
            assert talk.facts() == stated, turn.turn
            assert len(talk.state.decisions) == decided
            for answer in turn.answers:
                heard = await talk.hear(answer.text)
                if not answer.contradicts:
                    assert (heard["outcome"], heard["text"]) == ("model", answer.text), turn.turn
                    passed += 1
                    continue
                caught += 1
                first = heard["rungs"][0]
                if heard["outcome"] == "model":
                    assert heard["text"] != answer.text, (turn.turn, answer.text)
                    assert first["why"].startswith("mended: ")
                else:
                    assert (heard["outcome"], heard["reason"]) == ("default", "inconsistent")
                    assert (first["verdict"], first["why"][:12]) == ("failed", "contradicts ")
        assert len(turns) >= 30
        assert (caught, passed, decided) == {"en": (26, 43, 2), "zh": (25, 44, 2)}[language]

    talking(scenario, locale=language)


def test_a_contradicting_answer_is_mended_asked_for_again_or_not_sent() -> None:
    """By rule where one can; else the model is reminded once, of what it contradicted and of nothing more; else the next rung, and why."""

    async def scenario(talk: Talk) -> None:
        await talk.say("My name is Ann Lee and my delivery is on Tuesday. My budget is 250 euros.")
        mended = await talk.hear("Hello Bob, all is well.")
        assert (mended["outcome"], mended["degraded"], mended["text"]) == ("model", False, "Hello Ann Lee, all is well.")
        again = await talk.hear("Your delivery is on Friday.", then="Your delivery is on Tuesday.")
        assert (again["outcome"], again["text"], again["reason"]) == ("model", "Your delivery is on Tuesday.", None)
        assert [(rung["rung"], rung["verdict"]) for rung in again["rungs"]] == [("main", "failed"), ("main", "answered")]
        first, second = talk.model.asked[-2].messages, talk.model.asked[-1].messages
        assert second[0].text.startswith(first[0].text)
        reminder = second[0].text[len(first[0].text) :]
        assert "Tuesday" in reminder
        assert "Ann" not in reminder
        assert second[1:] == first[1:]
        before = len(talk.model.asked)
        stubborn = await talk.hear("Your delivery is on Friday.", stubborn="yes")
        assert (stubborn["outcome"], stubborn["degraded"], stubborn["reason"]) == ("default", True, "inconsistent")
        assert len(talk.model.asked) == before + 2
        late = await talk.hear("Your delivery is on Friday.")
        assert (late["outcome"], late["reason"], late["rungs"][1]["verdict"]) == ("default", "inconsistent", "skipped")
        given = await talk.say("Which day?", answer={"choice": ["Friday", "Monday"]}, metadata={"say": "Friday"})
        assert given["outcome"] == "model"

    talking(scenario)


def test_a_new_statement_holds_for_its_own_answer() -> None:
    """Whoever corrects themselves is answered by the correction, not by what was known before."""

    async def scenario(talk: Talk) -> None:
        await talk.say("My name is Ann Lee.")
        heard = await talk.say("My name is Eve Lee.", metadata={"say": "Your name is Eve Lee."})
        assert (heard["outcome"], heard["text"]) == ("model", "Your name is Eve Lee.")
        assert "Eve Lee" in talk.model.asked[-1].messages[0].text
        (fact,) = load_facts(talk.state.facts).facts
        assert [(past.value, past.superseded_by) for past in fact.history] == [(Text("Ann Lee"), fact.event_id)]

    talking(scenario)


def test_facts_outlive_the_window_and_end_with_a_reset() -> None:
    """What was said long ago still stands in the prompt; after a reset nothing does, and the acknowledgement says so."""

    async def scenario(talk: Talk) -> None:
        await talk.say("My name is Ann Lee.", state={"gold": 5})
        for _ in range(8):
            await talk.say("Go on.")
        shown = talk.model.asked[-1].messages
        assert "Ann Lee" in shown[0].text
        assert all("Ann Lee" not in message.text for message in shown[1:])
        ended = await talk.say(None, kind="reset")
        assert (ended["outcome"], ended["data"]["reset"], ended["data"]["context"]) == ("ack", True, 1)
        await talk.say("Who am I?")
        assert "Ann Lee" not in str(talk.model.asked[-1].messages)
        assert "gold" not in str(talk.model.asked[-1].messages)

    talking(scenario)


def test_state_from_before_a_reset_does_not_come_back() -> None:
    """A `context` event that happened before the reset and is read after it changes nothing, and its acknowledgement names its keys as stale."""

    async def scenario(talk: Talk) -> None:
        await talk.say(None, kind="context", state={"quest": "dragon"})
        before_ms = talk.clock_ms + 1
        await talk.say(None, kind="reset")
        late = await talk.say(None, kind="context", state={"quest": "dragon", "gold": 5}, occurred_at_ms=before_ms)
        assert (late["outcome"], late["data"]["stale"]) == ("ack", ["quest", "gold"])
        assert talk.state.state == {}
        since = await talk.say(None, kind="context", state={"quest": "cave"})
        assert (since["data"]["stale"], talk.state.state) == ([], {"quest": "cave"})

    talking(scenario)


def test_a_silence_ends_the_context_and_the_rungs_show_it() -> None:
    """After `session.idle_s` of the events' time earlier turns are not told; a stamp in 2099 counts as its arrival and ends nothing later."""
    settings = msgspec.structs.replace(SETTINGS, session=msgspec.structs.replace(SETTINGS.session, idle_s=3600.0))

    async def scenario(talk: Talk) -> None:
        await talk.say("The first word is quince.")
        await talk.say("The second one.")
        assert "quince" in str(talk.model.asked[-1].messages)
        talk.clock_ms += 2 * 3_600_000
        heard = await talk.say("Back again.")
        assert "quince" not in str(talk.model.asked[-1].messages)
        assert (heard["rungs"][0]["rung"], heard["rungs"][0]["verdict"]) == ("session", "changed")
        await talk.say("Far ahead.", occurred_at_ms=4_070_908_800_000)
        heard = await talk.say("And now.", occurred_at_ms=None)
        assert heard["rungs"][0]["rung"] == "main"
        assert "Far ahead." in str(talk.model.asked[-1].messages)

    talking(scenario, settings)


QUEST = {
    "deadline": {"clock": "arrival"},
    "facts": {"slots": [{"name": "hero_class", "patterns": {"en": ["i choose the (?P<value>[a-z]+)"]}, "decision": True}]},
    "scenarios": {
        "quest": {
            "decision_patterns": ["sell (my|the) house"],
            "decision_field": "action",
            "state_schema": {"required": ["quest"], "types": {"gold": "integer"}},
        }
    },
}


def test_decisions_are_asked_back_however_they_are_declared() -> None:
    """A pattern, a slot, or the model's own proposal: nothing of it is known before the confirm, all of it after."""

    async def scenario(talk: Talk) -> None:
        asked = await talk.say("Please sell my house. My name is Ann Lee.", event_id="d1", scenario="quest")
        assert (asked["outcome"], asked["degraded"]) == ("confirm_request", False)
        assert asked["text"].endswith("Please sell my house. My name is Ann Lee.")
        assert asked["data"]["expires_at_ms"] > 0
        assert (talk.facts(), talk.state.decisions) == ({}, ())
        asked = await talk.say("I choose the mage.", event_id="d2", scenario="quest")
        assert asked["outcome"] == "confirm_request"
        assert talk.facts() == {}
        schema = {"type": "object"}
        plain = await talk.say("What now?", scenario="quest", answer={"json_schema": schema}, metadata={"say": '{"action": null}'})
        assert (plain["outcome"], plain["data"]) == ("model", {"action": None})
        asked = await talk.say("Do it.", event_id="d3", scenario="quest", answer={"json_schema": schema}, metadata={"say": '{"action": "attack"}'})
        assert (asked["outcome"], asked["data"]["action"]) == ("confirm_request", "attack")
        assert asked["data"]["expires_at_ms"] > 0
        assert talk.model.asked[-1].event.event_id == "d3"
        for name, known in (
            ("d2", {"hero_class": "mage"}),
            ("d1", {"hero_class": "mage", "name": "Ann Lee"}),
            ("d3", {"hero_class": "mage", "name": "Ann Lee"}),
        ):
            assert (await talk.say(None, kind="confirm", ref=name))["data"] == {"confirmed": True}
            assert talk.facts() == known
        assert [item.event_id for item in talk.state.decisions] == ["d2", "d1", "d3"]
        other = await talk.say("Please sell my house.")
        assert other["outcome"] == "model"

    talking(scenario, parse_settings(QUEST))


def test_confirms_that_change_nothing_are_answered_clearly_and_audited() -> None:
    """Repeated, foreign, declined and late ones, each with its reason."""

    async def scenario(talk: Talk) -> None:
        await talk.say("Cancel my order A-12.", event_id="d1", kind="decision")
        await talk.say("Delete my account.", event_id="d2", kind="decision")
        heard = [
            (await talk.say(None, kind="confirm", ref=ref, accept=accept))["data"]
            for ref, accept in (("d1", True), ("d1", True), ("nobody", True), ("d2", False), ("d2", True))
        ]
        assert heard == [
            {"confirmed": True},
            {"confirmed": False, "why": "already"},
            {"confirmed": False, "why": "unknown"},
            {"confirmed": False, "why": "declined"},
            {"confirmed": False, "why": "already"},
        ]
        assert [item.event_id for item in talk.state.decisions] == ["d1"]
        actions = [record.action for record in talk.intake.publisher.audits]
        assert actions == ["confirm_requested"] * 2 + ["confirmed", "confirm_ignored", "confirm_ignored", "declined", "confirm_ignored"]

    talking(scenario)


def test_a_decision_lapses() -> None:
    """After `session.confirm_ms` a confirm changes nothing."""
    settings = msgspec.structs.replace(SETTINGS, session=msgspec.structs.replace(SETTINGS.session, confirm_ms=1000))

    async def scenario(talk: Talk) -> None:
        asked = await talk.say("Delete my account.", event_id="d1", kind="decision")
        while talk.intake.clock.wall_ms() < asked["data"]["expires_at_ms"]:  # noqa: ASYNC110 -- a clock sets no event
            await asyncio.sleep(0.01)
        assert (await talk.say(None, kind="confirm", ref="d1"))["data"] == {"confirmed": False, "why": "expired"}
        assert talk.state.decisions == ()

    talking(scenario, settings)


def test_state_is_versioned_and_late_writes_are_named() -> None:
    """The acknowledgement of a `context` event tells the version and what came too late; wrong state is a dead letter and changes nothing."""

    async def scenario(talk: Talk) -> None:
        at_ms = talk.clock_ms
        first = await talk.say(None, kind="context", state={"quest": "a", "gold": 5}, occurred_at_ms=at_ms + 2000)
        late = await talk.say(None, kind="context", state={"gold": 1, "hat": "red"}, occurred_at_ms=at_ms + 1000)
        whole = await talk.say(None, kind="context", state={"quest": "b"}, occurred_at_ms=at_ms + 3000, metadata={"state": "replace"})
        assert [one["data"] for one in (first, late, whole)] == [
            {"version": 1, "stale": []},
            {"version": 2, "stale": ["gold"]},
            {"version": 3, "stale": []},
        ]
        assert talk.state.state == {"quest": "b"}
        intake = talk.intake
        intake.feed("wrong", text=None, kind="context", scenario="quest", state={"gold": "many"})
        await intake.until_released()
        assert [verdict.reason for _, verdict in intake.publisher.dead] == ["invalid_field"]
        assert "'gold' is no integer" in str(intake.publisher.dead[0][1].detail)
        intake.publisher.dead.clear()
        assert talk.state.state == {"quest": "b"}

    talking(scenario, parse_settings(QUEST))


def test_three_hundred_turns_and_a_huge_message_keep_the_bounds() -> None:
    """However long a conversation and however large a message, each prompt is bounded and holds the newest text's end, and what was known at first."""

    async def scenario(talk: Talk) -> None:
        await talk.say("My name is Ann Lee.")
        for number in range(300):
            await talk.say(f"Turn {number}: " + "please tell me more about it " * 8)
            prompt = talk.model.asked[-1].messages
            assert sum(count_tokens(message.text) + MESSAGE_TOKENS for message in prompt) <= SETTINGS.session.prompt_tokens
            assert prompt[-1].text.startswith(f"Turn {number}: ")
            assert "Ann Lee" in prompt[0].text
        for huge in ("word " * 60_000 + "the very end", "汉字" * 50_000 + "最后"):
            heard = await talk.say(huge)
            assert heard["outcome"] == "model"
            prompt = talk.model.asked[-1].messages
            assert sum(count_tokens(message.text) + MESSAGE_TOKENS for message in prompt) <= SETTINGS.session.prompt_tokens
            assert huge.endswith(prompt[-1].text)
            assert len(prompt[-1].text) > 500
        assert talk.state.turn_count == 303

    talking(scenario)


def test_what_came_too_late_to_be_answered_still_tells_its_facts() -> None:
    """The person said it, and the next answer may need it; without consent it is not looked at."""

    async def scenario(talk: Talk) -> None:
        late = await talk.say("My name is Ann Lee.", deadline_ms=-1)
        assert (late["outcome"], late["reason"]) == ("default", "expired")
        await talk.say("My order number is AB-1234.", deadline_ms=-1, consent={"ai_reply": False})
        await talk.say("And now?")
        assert "Ann Lee" in str(talk.model.asked[-1].messages[0])
        assert "AB-1234" not in str(talk.model.asked[-1].messages[0])

    talking(scenario)


def test_state_that_may_not_become_of_a_session_is_a_dead_letter_however_late() -> None:
    """An expired event with such a `state` is put aside like any other: an answer would say that it was taken."""

    async def scenario(talk: Talk) -> None:
        await talk.say("Hello", state={"note": "x" * 40})
        talk.intake.feed("late", late=True, state={"more": "y" * 40})
        await talk.intake.until_released()
        assert [verdict.reason for _offset, verdict in talk.intake.publisher.dead] == ["invalid_field"]

    talking(scenario, msgspec.structs.replace(SETTINGS, limits=Limits(state_bytes=64)))


def test_a_cancelled_decision_is_off() -> None:
    """Who withdraws a decision that waits for its confirm has declined it, on record; a confirm that comes after all changes nothing."""

    async def scenario(talk: Talk) -> None:
        await talk.say("Delete my account.", event_id="d1", kind="decision")
        assert (await talk.say(None, kind="cancel", ref="d1"))["data"] == {"declined": True}
        assert (await talk.say(None, kind="confirm", ref="d1"))["data"] == {"confirmed": False, "why": "already"}
        assert (talk.state.pending, talk.state.decisions) == ((), ())
        assert [audit.action for audit in talk.intake.publisher.audits] == ["confirm_requested", "declined", "confirm_ignored"]
        assert (await talk.say(None, kind="cancel", ref="nothing"))["data"] is None

    talking(scenario)
