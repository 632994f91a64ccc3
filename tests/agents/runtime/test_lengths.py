"""Bounds on texts' lengths leave the grammar and are held against the answer instead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agents.runtime.backend import RequestRefused
from agents.runtime.constraints import require_modest
from agents.runtime.lengths import keeps_lengths, without_lengths
from schemas.inference import Constraint

SHORT = {"type": "string", "maxLength": 5}


def written(schema: Any) -> str:
    """As events carry it."""
    return msgspec.json.encode(schema).decode()


def test_only_bounds_leave_the_schema() -> None:
    """Properties of that name and values that only look like a schema stay, and what has no bound is not even written anew."""
    schema = {
        "properties": {"maxLength": {"type": "string", "maxLength": 900}, "a": {"enum": [{"maxLength": 3}]}},
        "items": [{"minLength": 30, "type": "string"}],
        "default": {"minLength": 1},
    }
    bare = {"properties": {"maxLength": {"type": "string"}, "a": {"enum": [{"maxLength": 3}]}}, "items": [{"type": "string"}], "default": {"minLength": 1}}
    assert msgspec.json.decode(without_lengths(written(schema))) == bare
    assert without_lengths('{ "type": "string" }') == '{ "type": "string" }'
    assert without_lengths("{{{") == "{{{"


def test_an_ordinary_schema_is_modest_without_them() -> None:
    """`maxLength: 500` is what people write, and no reason to go without an answer."""
    schema = written({"type": "object", "properties": {"note": {"type": "string", "maxLength": 500}, "title": {"type": "string", "maxLength": 80}}})
    with pytest.raises(RequestRefused):
        require_modest(Constraint(json_schema=schema))
    require_modest(Constraint(json_schema=without_lengths(schema)))


@pytest.mark.parametrize(
    ("schema", "fits", "too_long"),
    [
        (SHORT, "12345", "123456"),
        ({"minLength": 2}, "12", "1"),
        ({"properties": {"a": SHORT}}, {"a": "1", "b": "123456"}, {"a": "123456"}),
        ({"additionalProperties": SHORT}, {"b": "1"}, {"b": "123456"}),
        ({"items": SHORT}, ["1", 123456], ["1", "123456"]),
        ({"prefixItems": [{}, SHORT], "items": {"maxLength": 1}}, ["123456", "1", "1"], ["1", "1", "12"]),
        ({"anyOf": [SHORT, {"maxLength": 1}]}, "12345", "123456"),
        ({"allOf": [{}, SHORT]}, "1", "123456"),
        ({"$defs": {"a/b": SHORT}, "items": {"$ref": "#/$defs/a~1b"}}, ["1"], ["123456"]),
        ({"properties": {"next": {"$ref": "#"}, "text": SHORT}}, {"next": {"text": "1"}}, {"next": {"next": {"text": "123456"}}}),
    ],
)
def test_a_text_of_the_wrong_length_is_found(schema: Any, fits: Any, too_long: Any) -> None:
    """Wherever a schema may put the bound."""
    assert keeps_lengths(written(schema), fits)
    assert not keeps_lengths(written(schema), too_long)


def test_no_schema_makes_the_check_long() -> None:
    """Alternatives that refer to themselves end as a refusal, in bounded time."""
    assert not keeps_lengths(written({"$ref": "#"}), "a")
    assert not keeps_lengths(written({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), "a")
