"""Answers that contradict what is known, rung by rung: a kept one is passed over, a model may try once more, and a bug of the check costs no answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agents.answer_check import AnswerCheck
from agents.facts import load_slots
from agents.ladder import Budget, Declined, Given, Ladder, Look, Question, Walk
from schemas.events import InteractionEvent
from schemas.facts import Fact, Facts, Text
from schemas.inference import Message
from schemas.responses import Outcome, Usage
from schemas.session import SessionState
from schemas.settings_facts import Facts as FactsSettings
from tests.support import run

KNOWN = Facts((Fact("city", Text("Bristol"), "e0", 1, pinned=True), Fact("name", Text("Ann"), "e0", 1, pinned=True, personal=True)))
RIGHT, UNMENDABLE = "You live in Bristol.", "You do not live in Bristol."


class Says:
    """A rung that says its texts, one after the other, and counts."""

    def __init__(self, name: str, outcome: Outcome, *texts: str, floor_s: float = 0.0) -> None:
        self.name = self.label = name
        self.floor_s = floor_s
        self.asked: list[Question] = []
        self.ends = 0
        self._outcome: Outcome = outcome
        self._texts = texts

    async def answer(self, question: Question, _budget: Budget) -> Given | Declined:
        """The next text, the last one again and again."""
        text = self._texts[min(len(self.asked), len(self._texts) - 1)]
        self.asked.append(question)
        return Given(self._outcome, text, usage=Usage(9, 0, 4))

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Counted."""
        self.ends += 1


class Open:
    """A budget with time enough."""

    def __init__(self) -> None:
        self.stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stop_at = time.monotonic() + 30.0


def walk(*rungs: Says, look: Look | None = None, settings: FactsSettings | None = None) -> Walk:
    """One event of a person who lives in Bristol."""

    async def going() -> Walk:
        check = AnswerCheck(load_slots(settings or FactsSettings())).look if look is None else look
        event = InteractionEvent(event_id="e", session_id="s", text="Where do I live?")
        question = Question(event, SessionState(), (Message("user", "Where do I live?"),), 8, 0.0, (), None, "en", facts=KNOWN)
        return await Ladder(rungs, look=check).walk(question, Open(), "Sorry.")

    return run(going())


def test_a_kept_answer_that_contradicts_is_passed_over_and_its_reason_is_not_the_models() -> None:
    """The model is asked in its place; a cache is not asked twice."""
    cache, model = Says("cache", "cache", UNMENDABLE, floor_s=0.0001), Says("main", "model", RIGHT)
    found = walk(cache, model)
    assert (found.given.outcome, found.given.text, found.given.reason) == ("model", RIGHT, None)
    assert [(rung.rung, rung.verdict) for rung in found.rungs] == [("cache", "cut"), ("main", "answered")]
    assert (len(cache.asked), found.wasted) == (1, ())


def test_a_walk_has_one_other_try_whichever_models_contradict() -> None:
    """Two models that both contradict are asked three times in all, hear of the end once each, and their tokens count as wasted."""
    main, fallback = Says("main", "model", UNMENDABLE), Says("fallback", "fallback_model", UNMENDABLE)
    found = walk(main, fallback)
    assert (found.given.outcome, found.given.reason) == ("default", "inconsistent")
    assert [(rung.rung, rung.verdict) for rung in found.rungs] == [("main", "failed"), ("main", "failed"), ("fallback", "failed"), ("default", "answered")]
    assert (main.ends, fallback.ends) == (1, 1)
    assert found.wasted == (("main", 4), ("main", 4), ("fallback", 4))
    reminded = main.asked[1].messages
    assert [message.role for message in reminded] == ["system", "user"]
    assert "Bristol" in reminded[0].text


def test_the_next_rungs_answer_says_why_it_is_degraded() -> None:
    """A fallback model that agrees answers, with the reason."""
    found = walk(Says("main", "model", UNMENDABLE), Says("fallback", "fallback_model", RIGHT))
    assert (found.given.outcome, found.given.text, found.given.reason) == ("fallback_model", RIGHT, "inconsistent")


@pytest.mark.parametrize("outcome", ["rule", "default"])
def test_what_an_operator_wrote_is_not_checked(outcome: Outcome) -> None:
    """Rules and defaults are said as they are."""
    assert walk(Says("rules", outcome, UNMENDABLE)).given.text == UNMENDABLE


def test_the_check_can_be_turned_off() -> None:
    """`facts.check_answers = false` lets everything pass."""
    assert walk(Says("main", "model", UNMENDABLE), settings=FactsSettings(check_answers=False)).given.text == UNMENDABLE


def test_a_bug_of_the_check_costs_no_answer() -> None:
    """Whatever it raises, the answer goes out as it is."""

    def broken(_question: Question, _given: Given) -> Given:
        raise RuntimeError

    assert walk(Says("main", "model", UNMENDABLE), look=broken).given.text == UNMENDABLE
