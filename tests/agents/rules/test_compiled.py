"""One rule: what it asks, what it says, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest

from agents.rules.predicates import widen_locale
from tests.agents.rules.writing import problems, ruleset


@pytest.mark.parametrize(
    ("written", "key", "wrong"),
    [
        ('match.any = ["x", " "]', "match.any.1", "is empty"),
        (f'match.none = ["{"x" * 201}"]', "match.none.0", "has 201 characters"),
        ('match.pattern = "(a"', "match.pattern", "is no RE2 pattern"),
        ('match.pattern = "(?P<state>a)"', "match.pattern", "a group is called 'state'"),
        ("match = {}", "match", "looks for nothing"),
        ('match.any = ["x"]\nanswer.en = "{order}"', "answer.en", "nothing is called {order} here"),
        ('match.any = ["x"]\nanswer.en = " "', "answer.en", "is empty"),
        ('match.any = ["x"]\nanswer.zh = "好"', "answer", "has no text for `en`"),
        ('match.any = ["x"]\nmatch.locales = ["zh", "de-AT"]\nanswer.zh = "好"', "answer", "has no text for `de-at`"),
        ("match.state.a = []", "match.state.a", "the value is wrong"),
        ("match.state.a = [1, [2]]", "match.state.a", "the value is wrong"),
        ("match.state.a = 1979-05-27", "match.state.a", "the value is wrong"),
        ("match.state.a = nan", "match.state.a", "the value is wrong"),
        ("match.state.a = {}", "match.state.a", "the range is wrong"),
        ("match.state.a = { min = 2, max = 1 }", "match.state.a", "the range is wrong"),
        ('match.state.a = { min = "1" }', "match.state.a", "the range is wrong"),
        ("match.state.a.b = { max = true }", "match.state.a.b", "the range is wrong"),
        ('match.state."a..b" = 1', "match.state.a..b", "an empty key is nowhere"),
    ],
)
def test_wrong_rule_is_told_by_key(written: str, key: str, wrong: str) -> None:
    """Everything that types leave open is checked at load."""
    found = problems(written)
    assert list(found) == [key]
    assert found[key].startswith(wrong)


def test_all_problems_are_told_at_once() -> None:
    """Who mends a rule mends it once."""
    assert set(problems('match.any = [""]\nmatch.pattern = "("\nmatch.state.a = []')) == {"match.any.0", "match.pattern", "match.state.a"}


@pytest.mark.parametrize(
    ("wanted", "state", "holds"),
    [
        ("a = 1", {"a": 1}, True),
        ("a = 1", {"a": 1.0}, True),
        ("a = 1", {"a": True}, False),
        ("a = true", {"a": True}, True),
        ("a = true", {"a": 1}, False),
        ("a = 1", {"a": "1"}, False),
        ("a = 1", {}, False),
        ("a = 1", {"a": None}, False),
        ("a = 1", {"a": [1]}, False),
        ('a = ["x", 2]', {"a": 2}, True),
        ('a = ["x", 2]', {"a": "y"}, False),
        ('"a.b" = "x"', {"a": {"b": "x"}}, True),
        ('a.b = "x"', {"a": {"b": "x"}}, True),
        ('a.b = "x"', {"a.b": "x"}, False),
        ('a.b = "x"', {"a": "x"}, False),
        ("a = { min = 1 }", {"a": 1}, True),
        ("a = { min = 1, max = 2 }", {"a": 2.5}, False),
        ("a = { max = 2 }", {"a": -5}, True),
        ("a = { min = 0 }", {"a": True}, False),
        ("a = { min = 0 }", {"a": "5"}, False),
        ("a = 1\nb = 2", {"a": 1}, False),
    ],
)
def test_state_is_as_asked(wanted: str, state: dict[str, Any], holds: bool) -> None:
    """Values, lists and ranges, by the way to them; what is missing or of another kind does not hold."""
    rules = ruleset(f"[match.state]\n{wanted}")
    assert (rules.match("hi", state=state) is not None) is holds


@pytest.mark.parametrize(
    ("locales", "locale", "holds"),
    [
        ('["zh"]', "zh-CN", True),
        ('["zh"]', "ZH_tw", True),
        ('["zh-CN"]', "zh", False),
        ('["zh-Hans"]', "zh-Hans-CN", True),
        ('["z"]', "zh", False),
        ('["de", "fr"]', "fr", True),
        ("[]", "xx", True),
    ],
)
def test_locale_is_one_of_them_or_of_their_languages(locales: str, locale: str, holds: bool) -> None:
    """A rule for a language is for all its regions, not the other way."""
    rules = ruleset(f'match.any = ["x"]\nmatch.locales = {locales}')
    assert (rules.match("x", locale=locale) is not None) is holds


def test_locale_falls_back_from_region_to_language() -> None:
    """Nearest first."""
    assert widen_locale("zh_Hans-CN") == ("zh-hans-cn", "zh-hans", "zh")


@pytest.mark.parametrize(("locale", "said"), [("zh-Hans-CN", "简"), ("zh-TW", "中"), ("de", "e"), ("en-GB", "e")])
def test_answer_is_in_the_nearest_locale(locale: str, said: str) -> None:
    """The region's text, else the language's, else English."""
    rules = ruleset('match.any = ["x"]\nanswer = { en = "e", zh = "中", zh-Hans = "简" }')
    found = rules.match("x", locale=locale)
    assert found is not None
    assert found.text == said


def test_answer_is_filled_from_text_state_and_groups() -> None:
    """Every source of values, in the text as the person wrote it."""
    rules = ruleset("match.pattern = 'order (?P<id>\\w+)'\nanswer.en = \"{id} {state.user.name} {locale} {text}\"")
    found = rules.match("ORDER ＡＢ12", locale="en-GB", state={"user": {"name": "{id}"}})
    assert found is not None
    assert found.text == "AB12 {id} en-GB ORDER ＡＢ12"


def test_missing_value_leaves_the_word_to_the_next_rule() -> None:
    """A rule that cannot be said does not match."""
    rules = ruleset('priority = 5\nmatch.any = ["x"]\nanswer.en = "{state.name}"', 'match.any = ["x"]\nanswer.en = "other"')
    found = rules.match("x")
    assert found is not None
    assert (found.rule, found.text) == ("r1", "other")
    named = rules.match("x", state={"name": "Mei"})
    assert named is not None
    assert named.text == "Mei"


def test_group_that_took_no_part_is_missing() -> None:
    """An optional group has its fallback, or the rule does not match."""
    rules = ruleset("match.pattern = 'order( (?P<id>\\d+))?'\nanswer.en = \"{id|which one}?\"")
    found = rules.match("my order")
    assert found is not None
    assert found.text == "which one?"
