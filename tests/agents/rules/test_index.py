"""Thousands of rules: the one that answers is the one that asking each in turn would find."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.rules.compiled import CompiledRule, compile_rule
from agents.rules.index import LOOP_WORK, RuleSet, TooMuchWork, is_loose
from schemas.rules import Rule, RuleMatch
from tests.agents.rules.writing import ruleset

WORDS = st.sampled_from(["a", "b", "ab", "a b", "退", "退款", "款a", "b*", "*a", "1", "A"])
STATES = st.fixed_dictionaries({}, optional={"x": st.sampled_from([1, 2, True, "1"]), "y": st.fixed_dictionaries({"z": st.integers(0, 3)})})
WANTED = st.fixed_dictionaries(
    {}, optional={"x": st.sampled_from([1, "1", True, [1, 2]]), "y.z": st.sampled_from([1, [0, 2], {"min": 2}, {"min": 1, "max": 1}])}
)
CONDITIONS: dict[str, st.SearchStrategy[Any]] = {
    "any": st.lists(WORDS, min_size=1, max_size=2).map(tuple),
    "all": st.lists(WORDS, min_size=1, max_size=2).map(tuple),
    "none": st.lists(WORDS, min_size=1, max_size=1).map(tuple),
    "pattern": st.sampled_from(["a.b", "退.?a", "[ab]1", "b+1?a", "[0-9]", "^a", "款|b$"]),
    "scenarios": st.sampled_from([("default",), ("shop",), ("shop", "default")]),
    "locales": st.sampled_from([("en",), ("zh",), ("zh-cn", "en")]),
    "state": WANTED,
}
MATCHES = st.sets(st.sampled_from(sorted(CONDITIONS)), min_size=1, max_size=3).flatmap(
    lambda names: st.builds(RuleMatch, **{name: CONDITIONS[name] for name in names})
)
TEXTS = st.lists(st.sampled_from(["a", "b", "ab", "A", "1", "退", "款", " ", " ", ","]), max_size=10).map("".join)
RULES = st.lists(
    st.builds(
        Rule,
        name=st.just("r"),
        match=MATCHES,
        answer=st.sampled_from([{"en": "fixed"}, {"en": "{state.y.z}"}]),
        when=st.sampled_from(["always", "degraded"]),
        priority=st.integers(0, 2),
    ),
    max_size=10,
).map(lambda rules: [msgspec.structs.replace(rule, name=f"r{number}") for number, rule in enumerate(rules)])


def naive(rules: list[Rule], text: str, scenario: str, locale: str, state: Mapping[str, Any], when: str) -> str | None:
    """The same, asked in the plainest way: every rule in order, every condition by itself."""
    for rule in sorted(rules, key=lambda one: -one.priority):
        match = rule.match
        wanted = all(_state_is(state, path.split("."), value) for path, value in match.state.items())
        words = all(_stands(word, text) for word in match.all) and not any(_stands(word, text) for word in match.none)
        words = words and (not match.any or any(_stands(word, text) for word in match.any))
        pattern = match.pattern is None or re.search(match.pattern.replace("$", r"\Z"), text, re.IGNORECASE)
        place = (not match.scenarios or scenario in match.scenarios) and (
            not match.locales or any(locale.lower() == one or locale.lower().startswith(f"{one}-") for one in match.locales)
        )
        sayable = rule.answer["en"] == "fixed" or state.get("y", {}).get("z") is not None
        if rule.when == when and wanted and words and pattern and place and sayable:
            return rule.name
    return None


def _stands(word: str, text: str) -> bool:
    """By a regular expression with look-arounds: letters and digits of the Latin kind delimit words, Han characters do not."""
    bare = word.strip("*").lower()
    before = "(?<![a-z0-9])" if bare[0].isascii() and not word.startswith("*") else ""
    after = "(?![a-z0-9])" if bare[-1].isascii() and not word.endswith("*") else ""
    return re.search(before + r"\s+".join(map(re.escape, bare.split())) + after, text.lower()) is not None


def _state_is(state: Mapping[str, Any], path: list[str], wanted: Any) -> bool:
    value: Any = state
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    if isinstance(wanted, dict):
        return type(value) is int and wanted.get("min", 0) <= value <= wanted.get("max", 9)
    return any(type(value) is type(one) and value == one for one in (wanted if isinstance(wanted, list) else [wanted]))


def compiled(rules: list[Rule]) -> list[CompiledRule]:
    """Those that are right; the others would not have been loaded."""
    return [found for rule in rules if isinstance(found := compile_rule(rule), CompiledRule)]


@settings(max_examples=500)
@given(RULES, TEXTS, st.sampled_from(["default", "shop"]), st.sampled_from(["en", "zh", "zh-CN"]), STATES)
def test_match_is_what_asking_every_rule_finds(rules: list[Rule], text: str, scenario: str, locale: str, state: dict[str, Any]) -> None:
    """However a rule is filed, priority and order decide, for both kinds of rule."""
    right = compiled(rules)
    rules = [one.rule for one in right]
    for when in ("always", "degraded"):
        found = RuleSet(right).match(text, scenario=scenario, locale=locale, state=state, when=when)
        assert (found.rule if found else None) == naive(rules, text, scenario, locale, state, when)


def test_thousands_of_rules_are_as_a_few() -> None:
    """Among many, too, the one that answers is the one that asking all in turn finds."""
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 4))) for _ in range(300)]

    def make(number: int) -> Rule:
        match = RuleMatch(
            any=tuple(chance.sample(words, chance.randint(0, 2))),
            all=tuple(chance.sample(words, chance.randint(0, 1))),
            none=tuple(chance.sample(words, chance.randint(0, 1))),
            pattern=f"{chance.choice(words)}.*[a-c]{chance.choice(words)}" if number % 5 == 0 else None,
            scenarios=("shop",) if number % 7 == 0 else (),
            state={"x": chance.randint(0, 9)},
        )
        return Rule(name=f"r{number}", match=match, answer={"en": "fixed"}, priority=chance.randint(0, 3))

    right = compiled([make(number) for number in range(1500)])
    rules_in_force = RuleSet(right)
    winners = set()
    for number in range(60):
        text, scenario, state = " ".join(chance.choices(words, k=12)), ("shop", "default")[number % 2], {"x": number % 10}
        found = rules_in_force.match(text, scenario=scenario, state=state)
        winner = naive([one.rule for one in right], text, scenario, "en", state, "always")
        assert (found.rule if found else None) == winner
        winners.add(winner)
    assert len(winners) > 10


@given(RULES, TEXTS, STATES)
def test_rule_that_does_not_answer_can_say_why(rules: list[Rule], text: str, state: dict[str, Any]) -> None:
    """`why_not` has words for every rule that did not answer, and never for the reason that another one did when none did."""
    right = compiled(rules)
    rules_in_force = RuleSet(right)
    for one in right:
        found = rules_in_force.match(text, state=state, when=one.rule.when)
        if found is None or found.rule != one.rule.name:
            why = rules_in_force.why_not(one.rule.name, text, scenario="default", locale="en", state=state)
            assert found is not None or "answers first" not in why


def test_highest_priority_wins_then_the_first() -> None:
    """Priority before order, order among equals."""
    any_x = 'match.any = ["x"]'
    rules = ruleset(any_x, f"priority = 2\n{any_x}", f"priority = 2\n{any_x}", f"priority = -1\n{any_x}")
    found = rules.match("x")
    assert found is not None
    assert found.rule == "r1"


def test_degraded_rules_answer_only_when_asked_for() -> None:
    """A rule that is for the worst case does not come before a model."""
    rules = ruleset('when = "degraded"\nmatch = {}\nanswer.en = "later"')
    assert rules.match("x") is None
    found = rules.match("x", when="degraded")
    assert found is not None
    assert found.text == "later"


def test_long_text_is_not_looked_into() -> None:
    """Above `text_chars` no rule that reads the text answers, a negative one included; those that do not read it still do."""
    rules = ruleset('match.any = ["x"]', "match.pattern = 'x'", 'match.none = ["q"]\nmatch.scenarios = ["default"]', "match.state.a = 1", text_chars=5)
    found = rules.match("x x x")
    assert found is not None
    assert found.rule == "r0"
    assert rules.match("x x x ") is None
    by_state = rules.match("x x x ", state={"a": 1})
    assert by_state is not None
    assert by_state.rule == "r3"


def test_work_is_bounded() -> None:
    """Many searches for one text are not done on the loop, and not without end."""
    rules = ruleset(*(f"match.pattern = 'a.{{{number}}}b[^b]{{40}}c'" for number in range(1, 200)))
    text = "ab" * 450 + "c"
    assert isinstance(rules.match_within(LOOP_WORK, text, scenario="default", locale="en", state={}, when="always"), TooMuchWork)
    assert rules.match(text) is None


@pytest.mark.timeout(20)
def test_hostile_texts_are_matched_at_once() -> None:
    """Texts that repeat a keyword, expand under folding, or are half characters end in bounded time, without an error."""
    rules = ruleset('match.any = ["a", "aa*", "ﷺ", "退款"]', "match.pattern = '(?P<q>[ab]*a[ab]{100}c)'")
    for text in ("a " * 500, "a" * 1000, "ﷺ" * 1000, "\ud800退款", "\u0301" * 1000, "\x00" * 1000, ""):
        rules.match(text)
    found = rules.match("\ud800退款")
    assert found is not None


def test_loose_patterns_are_those_without_any_hold() -> None:
    """A keyword, a state or a scenario holds a pattern back; a range or a locale does not."""
    written = ["", 'any = ["x"]', 'scenarios = ["s"]', "state = { a = 1 }", "state = { a = { min = 1 } }", 'locales = ["zh"]']
    found = [compile_rule(msgspec.convert({"name": "r", "match": {"pattern": r"\d{11}", **_inline(one)}, "answer": {"en": "x"}}, Rule)) for one in written]
    assert [isinstance(one, CompiledRule) and is_loose(one) for one in found] == [True, False, False, False, True, True]


def _inline(text: str) -> dict[str, Any]:
    return tomllib.loads(text)
