"""What a scenario changes, and default texts that always say something."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.ladder import Budget, Declined, Given, Question
from agents.scenarios import DefaultTexts, Scenarios, plan_scenarios
from schemas.errors import ConfigError
from schemas.settings import Settings, parse_settings
from tests.agents.intake import Intake
from tests.support import run

SHIPPED = Settings().ladder.default_text


class Names:
    """A rung that answers with its own name and what the model was told first."""

    floor_s = 0.0

    def __init__(self, name: str, *, is_first: bool) -> None:
        self.name = self.label = name
        self._is_first = is_first

    async def answer(self, question: Question, _budget: Budget) -> Given | Declined:
        """`fail` in the text is declined."""
        if "fail" in question.messages[-1].text:
            return Declined("failed", "told to", "engine_error")
        return Given("model" if self._is_first else "fallback_model", f"{self.name}: {question.messages[0].text}")

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Nothing to let go."""


def rungs_of(names: tuple[str, ...]) -> dict[str, Names]:
    """The two models that there are, the first of a ladder as its main one."""
    models = [name for name in names if name in ("main", "small")]
    return {name: Names(name, is_first=name == models[0]) for name in models}


def plans(tree: dict[str, Any]) -> tuple[Scenarios, list[tuple[str, ...]]]:
    """The plans under these settings, and the ladders that were asked for."""
    asked: list[tuple[str, ...]] = []

    def asking(names: tuple[str, ...]) -> dict[str, Names]:
        asked.append(names)
        return rungs_of(names)

    return plan_scenarios(parse_settings(tree), asking), asked


def answers(tree: dict[str, Any], *events: dict[str, Any]) -> list[dict[str, Any]]:
    """What each event is answered with, one after the other; each in a session of its own unless it names one."""

    async def asking() -> list[dict[str, Any]]:
        settings = parse_settings(tree)
        async with Intake(settings, rungs_of=rungs_of) as intake:
            for number, event in enumerate(events):
                intake.feed(f"e{number}", **{"session": f"s{number}", **event})
                await intake.until_released()
            assert intake.crashes == []
            return intake.publisher.said

    return run(asking())


TWO = {"models": [{"name": "main"}, {"name": "small"}], "ladder": {"rungs": ["main", "small", "default"]}}


def test_each_scenario_has_its_own_ladder_and_instructions() -> None:
    """The first model of a scenario's ladder is its main one; a name nobody configured uses the base."""
    tree = {**TWO, "scenarios": {"game": {"ladder": {"rungs": ["small", "default"]}, "instructions": "Play."}}, "session": {"instructions": "Help."}}
    game, other, none = answers(tree, {"scenario": "game"}, {"scenario": "no-such"}, {})
    assert (game["outcome"], game["text"]) == ("model", "small: Play.")
    assert [(response["outcome"], response["text"]) for response in (other, none)] == [("model", "main: Help.")] * 2
    assert [rung["rung"] for rung in game["rungs"]] == ["small"]


def test_scenarios_with_the_same_rungs_share_a_ladder() -> None:
    """What a rung costs, and whether its model is well, is learned once for all of them."""
    scenarios, asked = plans({**TWO, "scenarios": {"game": {"ladder": {"rungs": ["small", "main"]}}, "shop": {"instructions": "Sell."}}})
    assert sorted(asked) == [("main", "small"), ("small", "main")]
    assert scenarios.of("shop").ladder is scenarios.of("anything").ladder
    assert scenarios.of("game").ladder is not scenarios.of("shop").ladder


def test_a_rung_that_a_scenario_switches_off_is_not_in_its_ladder() -> None:
    """The semantic cache without a threshold, the exact one with a lifetime of zero: neither asked nor listed."""
    rungs = {"rungs": ["rules", "cache", "semantic_cache", "main", "default"]}
    on = {"cache": {"ttl_s": 60}, "semantic_cache": {"threshold": 0.9}}
    _, asked = plans({"ladder": rungs, "scenarios": {"faq": on, "chat": {"cache": {"ttl_s": 0}}}, "cache": {"ttl_s": 5}})
    assert sorted(asked) == sorted([("rules", "cache", "main"), ("rules", "cache", "semantic_cache", "main"), ("rules", "main")])


def test_nothing_may_stand_below_the_default() -> None:
    """It would never be reached: told at start, by the key's place."""
    with pytest.raises(ConfigError, match=r"ladder\.rungs\[1\]"):
        plans({"ladder": {"rungs": ["default", "main"]}})


@pytest.mark.parametrize("pattern", ["(", "(?=x)", "x*", "(x{1,100}){1,100}"])
def test_a_decision_pattern_that_cannot_work_is_told_at_start(pattern: str) -> None:
    """By its key and its place."""
    with pytest.raises(ConfigError, match=r"scenarios\.shop\.decision_patterns\[1\]"):
        plans({"scenarios": {"shop": {"decision_patterns": ["buy", pattern]}}})


def test_a_slot_of_facts_that_cannot_work_is_told_at_start() -> None:
    """Settings of facts are read with the scenarios' plans."""
    with pytest.raises(ConfigError, match=r"facts\.slots\[0\]"):
        plans({"facts": {"slots": [{"name": "hero", "patterns": {"en": ["("]}}]}})


@pytest.mark.parametrize("text", ["{", "{order}", "{state}", "{state.}", "}", "{text}"])
def test_a_default_that_is_no_template_is_told_at_start(text: str) -> None:
    """By its key, scenario and locale included."""
    with pytest.raises(ConfigError, match=r"scenarios\.shop\.ladder\.default_text\.en"):
        plans({"scenarios": {"shop": {"ladder": {"default_text": {"en": text}}}}})


def test_a_default_is_filled_from_the_session() -> None:
    """With the state of earlier events and its own; in the person's language; whichever way the event came to its default."""
    texts = {"en": "Order {state.order.id} is being looked at.", "zh": "正在查询订单 {state.order.id}。"}
    tree = {"scenarios": {"shop": {"ladder": {"default_text": texts}}}}
    shop: dict[str, Any] = {"scenario": "shop", "session": "one"}
    _, failed, empty, late, chinese = answers(
        tree,
        {"kind": "context", "text": None, "state": {"order": {"id": 17}}, **shop},
        {"text": "fail", **shop},
        {"text": " ", **shop},
        {"late": True, **shop},
        {"text": "fail", "locale": "zh-TW", **shop},
    )
    assert [response["text"] for response in (failed, empty, late)] == ["Order 17 is being looked at."] * 3
    assert [response["reason"] for response in (failed, empty, late)] == ["engine_error", "empty_input", "expired"]
    assert chinese["text"] == "正在查询订单 17。"


def test_a_missing_value_falls_back_to_the_next_text() -> None:
    """First a text in the same language, then an English one, in the end the shipped one."""
    texts = DefaultTexts({"own": {"en": "{state.a}", "zh": "{state.b}"}, "base": {"en": "base", "zh": "{state.c}"}})
    assert texts.render("zh-CN", {"b": 1}) == "1"
    assert texts.render("zh", {"c": 2}) == "2"
    assert texts.render("zh", {}) == SHIPPED["zh"]
    assert texts.render("en-GB", {"b": 1}) == "base"
    assert texts.render("fr", {"a": 3}) == "3"
    assert DefaultTexts({"own": {"en": "{state.a}"}}).render("fr", {}) == SHIPPED["en"]


def test_a_fallback_inside_a_text_is_used_before_another_text() -> None:
    """`{state.name|there}` never sends the reader elsewhere."""
    assert DefaultTexts({"own": {"en": "Hello {state.name|there}."}}).render("en", {}) == "Hello there."


def test_what_a_person_wrote_is_no_template() -> None:
    """A value with braces stays as it is."""
    assert DefaultTexts({"own": {"en": "<{state.name}>"}}).render("en", {"name": "{state.secret}", "secret": "x"}) == "<{state.secret}>"


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "name"]), VALUES, max_size=3), st.text(max_size=20))
def test_a_default_never_fails_and_never_is_empty(state: dict[str, Any], locale: str) -> None:
    """Whatever a session holds and however a locale is spelt."""
    texts = DefaultTexts({"own": {"en": "{state.a.b} {state.name}", "zh": "{state.b}"}})
    assert texts.render(locale, state)
