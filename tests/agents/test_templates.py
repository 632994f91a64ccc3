"""Texts with places to fill in: what they may hold, and that what fills them stays data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.templates import MAX_PLACES, MAX_TEMPLATE_CHARS, MAX_VALUE_CHARS, Template, TemplateProblem, clean_value, parse_template, render

NAMES = ("text", "locale", "state", "order")

SCALARS = st.one_of(st.text(max_size=60), st.integers(), st.floats(), st.booleans(), st.none())


def parsed(source: str) -> Template:
    """The template, which must be right."""
    found = parse_template(source, NAMES)
    assert isinstance(found, Template), found
    return found


@pytest.mark.parametrize(
    ("source", "values", "said"),
    [
        ("Hello.", {}, "Hello."),
        ("", {}, ""),
        ("{text}", {"text": "hi"}, "hi"),
        ("{ state.user.name }!", {"state": {"user": {"name": "Mei"}}}, "Mei!"),
        ("{state.name|friend}", {"state": {}}, "friend"),
        ("{state.name|}.", {"state": {}}, "."),
        ("{state.name|a|b}", {"state": {}}, "a|b"),
        ("{state.name|friend}", {"state": {"name": "  "}}, "friend"),
        ("{{text}} {{{order}}}", {"order": 7}, "{text} {7}"),
        ("{order} {order}", {"order": 12.0}, "12 12"),
        ("{order}", {"order": 2.5}, "2.5"),
        ("{order}", {"order": True}, "true"),
        ("{state.订单.编号}", {"state": {"订单": {"编号": "甲1"}}}, "甲1"),
    ],
)
def test_places_are_filled(source: str, values: dict[str, Any], said: str) -> None:
    """Names, nested keys, fallbacks and doubled braces come out as written."""
    assert render(parsed(source), values) == said


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("{order}", {}),
        ("{order}", {"order": None}),
        ("{order}", {"order": ["a"]}),
        ("{order}", {"order": {"a": 1}}),
        ("{order}", {"order": float("nan")}),
        ("{order}", {"order": 10**40}),
        ("{state.a.b}", {"state": {"a": "text"}}),
        ("{state.a}", {}),
    ],
)
def test_missing_value_says_nothing(source: str, values: dict[str, Any]) -> None:
    """Without a value that can be shown there is no text, rather than half of one."""
    assert render(parsed(source), values) is None


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("a { b", "has a single { at character 3"),
        ("a } b", "has a single } at character 3"),
        ("{nmae}", "nothing is called {nmae} here"),
        ("{}", "nothing is called {} here"),
        ("{state}", "{state} names no value"),
        ("{state.}", "{state.} names no value"),
        ("{text.upper}", "{text.upper} names no value"),
        ("{text!r}", "nothing is called {text!r} here"),
        ("{order}" * (MAX_PLACES + 1), "has too many places to fill in"),
        ("x" * (MAX_TEMPLATE_CHARS + 1), f"has {MAX_TEMPLATE_CHARS + 1} characters"),
    ],
)
def test_wrong_template_is_told_at_load(source: str, wrong: str) -> None:
    """What cannot be filled is a problem when the text is read, not when somebody waits for it."""
    found = parse_template(source, NAMES)
    assert isinstance(found, TemplateProblem)
    assert found.wrong == wrong
    assert found.right


@given(st.text(alphabet="{}|.stateorx \n\u202e中", max_size=30), st.text(alphabet="{}|.stateorx%s$\\ 中", max_size=40))
@example("{state.secret}", "{{state.secret}}")
def test_what_a_person_wrote_is_never_a_template(name: str, text: str) -> None:
    """A value that looks like a template, a format or an escape stands in the answer as it is, and brings up nothing else."""
    values = {"text": text, "order": name, "state": {"secret": "SECRET", "name": name}}
    said = render(parsed("<{text|-}|{order|-}|{state.name|-}>"), values)
    shown = [clean_value(value) or "-" for value in (text, name, name)]
    assert said == f"<{'|'.join(shown)}>"
    assert "SECRET" not in said


@given(SCALARS)
@example("a" * 5000)
@example("\u202eevil\x00\x07\r\n\tend\u2028x")
def test_values_are_short_lines_without_controls(value: object) -> None:
    """Whatever the value, what is shown is one bounded line that can be printed and encoded."""
    shown = clean_value(value)
    if shown is None:
        return
    assert 0 < len(shown) <= MAX_VALUE_CHARS
    assert shown == " ".join(shown.split())
    assert all(char.isprintable() or ord(char) > 127 for char in shown)
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\x00\x1b\x7f\x85\x9b") & set(shown)
    shown.encode("utf-8")


@given(st.text(max_size=80))
def test_any_text_is_a_template_or_a_problem(source: str) -> None:
    """Reading never raises; what was read can always be filled."""
    found = parse_template(source, NAMES)
    if isinstance(found, Template):
        said = render(found, {"text": "t", "locale": "en", "order": 1, "state": {}})
        assert said is None or isinstance(said, str)


def test_text_without_places_is_known_beforehand() -> None:
    """`fixed` is the text when nothing has to be filled, and None when something has."""
    assert parsed("a {{b}}").fixed == "a {b}"
    assert parsed("a {order}").fixed is None
