"""What a rule asks of the session's state and of the locale; what it asks of the text is `keywords` and `patterns`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias, assert_never

import msgspec

from agents.templates import value_of

Scalar: TypeAlias = str | int | float | tuple[str, bool]
"""A value in a form in which equal ones are equal: Python holds `True == 1`, people do not."""

_RIGHT = "give a text, a number, true or false, a list of such, or {min = ..., max = ...}"


class OneOf(msgspec.Struct, frozen=True, gc=False):
    """The value at the path is one of these."""

    path: tuple[str, ...]
    values: frozenset[Scalar]


class Between(msgspec.Struct, frozen=True, gc=False):
    """The value at the path is a number within bounds that belong to it."""

    path: tuple[str, ...]
    low: float
    high: float


Predicate: TypeAlias = OneOf | Between


class PredicateProblem(msgspec.Struct, frozen=True):
    """What is wrong with the predicate under `keys`, as it is written."""

    keys: tuple[str, ...]
    wrong: str
    right: str = _RIGHT


def parse_state(tree: Mapping[str, Any], keys: tuple[str, ...] = ()) -> tuple[list[Predicate], list[PredicateProblem]]:
    """Read `match.state`. `"a.b" = 1` and TOML's own nesting, `a.b = 1`, are the same."""
    predicates: list[Predicate] = []
    problems: list[PredicateProblem] = []
    for key, wanted in tree.items():
        here = (*keys, key)
        if isinstance(wanted, dict) and wanted and not wanted.keys() <= {"min", "max"}:
            inner, wrong = parse_state(wanted, here)
            predicates += inner
            problems += wrong
            continue
        found = _parse_wanted(here, wanted)
        if isinstance(found, PredicateProblem):
            problems.append(found)
        else:
            predicates.append(found)
    return predicates, problems


def _parse_wanted(keys: tuple[str, ...], wanted: Any) -> Predicate | PredicateProblem:
    path = tuple(step for key in keys for step in key.split("."))
    if "" in path:
        return PredicateProblem(keys, "an empty key is nowhere", "write the way to a value, as a.b")
    if isinstance(wanted, dict):
        low, high = wanted.get("min", -math.inf), wanted.get("max", math.inf)
        numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
        if not wanted or not numbers or not low <= high:
            return PredicateProblem(keys, "the range is wrong", "give min, max or both, as numbers, min not above max")
        return Between(path, low, high)
    listed = wanted if isinstance(wanted, list | tuple) else [wanted]
    values = [as_scalar(value) for value in listed]
    if not values or None in values:
        return PredicateProblem(keys, "the value is wrong")
    return OneOf(path, frozenset(value for value in values if value is not None))


def as_scalar(value: Any) -> Scalar | None:
    """`value` to compare with; None for what no rule can ask for."""
    match value:
        case bool():
            return ("bool", value)
        case float() if math.isnan(value):
            return None
        case str() | int() | float():
            return value
        case _:
            return None


def holds(predicate: Predicate, state: Mapping[str, Any]) -> bool:
    """Whether the session's state is as asked; what is missing or of another kind is not."""
    value = value_of(state, predicate.path)
    match predicate:
        case OneOf():
            scalar = as_scalar(value)
            return scalar is not None and scalar in predicate.values
        case Between():
            return isinstance(value, int | float) and not isinstance(value, bool) and predicate.low <= value <= predicate.high
        case _:
            assert_never(predicate)


@lru_cache(maxsize=1024)
def widen_locale(locale: str) -> tuple[str, ...]:
    """The locale and what it falls back on, nearest first: `zh-Hans-CN`, `zh-Hans`, `zh`; in small letters."""
    parts = locale.lower().replace("_", "-").split("-")
    return tuple("-".join(parts[:count]) for count in range(len(parts), 0, -1))
