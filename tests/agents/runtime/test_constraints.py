"""Constraints that cost too much are refused before they reach the grammar compiler."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.backend import RequestRefused
from agents.runtime.constraints import MAX_DEPTH, MAX_REGEX, choice_regex, require_modest, settled_label
from schemas.inference import Constraint


def _schema_of(properties: int, *, required: int = 0) -> str:
    names = [f"k{number}" for number in range(properties)]
    return json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": names[:required]})


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(regex="a" * (MAX_REGEX + 1)),
        Constraint(regex="(" * 40 + "a" + ")" * 40),
        Constraint(regex="(a{1,1000}){1,1000}"),
        Constraint(regex="a{99999999999}"),
        Constraint(json_schema='{"items":' * 40 + "{}" + "}" * 40),
        Constraint(json_schema=" " * 40_000),
        Constraint(regex="\0"),
        Constraint(choice=("a", "\0")),
        Constraint(json_schema='{"type":"string","pattern":"\\u0000"}'),
        Constraint(json_schema=_schema_of(101)),
        Constraint(json_schema=f"[{_schema_of(80)},{_schema_of(80)}]"),
        Constraint(regex=".{1,200}"),
        Constraint(regex=r"[\s\S]{25}"),
        Constraint(regex="(.{1,10}){1,10}"),
        Constraint(regex="[^a]{30}"),
        Constraint(regex="[A-Za-z ,.]{1,}" * 25),
        Constraint(regex=r"(\w+ ){5}" * 6),
        Constraint(regex=".*a" * 100),
        Constraint(regex="[一-龥]{30}"),
        Constraint(json_schema='{"type":"string","maxLength":200}'),
        Constraint(json_schema='{"properties":{"a":{"type":"string","maxLength":20},"b":{"type":"string","minLength":10}}}'),
        Constraint(json_schema='{"items":[{"type":"string","pattern":"^.{1,300}$"}]}'),
        Constraint(choice=()),
        Constraint(choice=("x" * 40_000,)),
    ],
)
def test_what_could_take_the_engine_down_is_refused(constraint: Constraint) -> None:
    """Each bound has a constraint that is beyond it."""
    with pytest.raises(RequestRefused, match=r"^constraint: "):
        require_modest(constraint)


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(regex=r"[A-Z]{2}\d{4}(-\w+)?"),
        Constraint(json_schema='{"type":"object"}'),
        Constraint(choice=("yes", "no")),
        Constraint(regex="(" * MAX_DEPTH + ")" * MAX_DEPTH),
        Constraint(json_schema=_schema_of(90)),
        Constraint(json_schema=_schema_of(200, required=150)),
        Constraint(regex="[0-9]{1,200}[abc]{1,50}"),
        Constraint(regex=r".*, [A-Z]{2}-[a-z]{3,10}\.\[x\]{99}"),
        Constraint(json_schema='{"properties":{"maxLength":{"type":"string"},"n":{"type":"string","maxLength":10},"m":{"type":"string","maxLength":10}}}'),
        Constraint(json_schema='{"type":"array","maxItems":100,"items":{"type":"string"}}'),
    ],
)
def test_ordinary_constraints_pass(constraint: Constraint) -> None:
    """Bounds leave room for what people use."""
    refused: RequestRefused | None = None
    try:
        require_modest(constraint)
    except RequestRefused as error:
        refused = error
    assert refused is None


@given(st.lists(st.text("ab.*+?()[]{}|^$\\/-\n你", min_size=1, max_size=6), min_size=1, max_size=4, unique=True))
def test_choices_become_a_regex_of_exactly_them(choices: list[str]) -> None:
    """Characters with a meaning in a regex lose it."""
    pattern = re.compile(choice_regex(tuple(choices)))
    assert all(pattern.fullmatch(choice) for choice in choices)
    assert not any(pattern.fullmatch(other) for other in ("zz", "", "ab" * 9) if other not in choices)


@pytest.mark.parametrize(
    ("said", "label"),
    [("", None), ("b", "blue"), ("re", None), ("red", None), ("red w", "red wine"), ("x", None)],
)
def test_choice_is_settled_by_the_first_difference(said: str, label: str | None) -> None:
    """A label is known as soon as no other one begins with what was said."""
    assert settled_label(("blue", "red", "red wine"), said) == label


def test_what_labels_begin_with_in_common_is_written_once() -> None:
    """Written out for each label it would be compiled for seconds."""
    assert choice_regex(("yes", "never", "no", "nor", "yes")) == "(n(ever|o(r)?)|yes)"
