"""What a scenario may ask of the external state."""

from __future__ import annotations

from typing import Any

import pytest

from agents.context.state_schema import find_wrong
from schemas.settings_ladder import StateSchema

SCHEMA = StateSchema(required=("quest",), types={"quest": "string", "gold": "integer", "luck": "number", "hat": "object", "bag": "array", "alive": "boolean"})


@pytest.mark.parametrize("state", [{}, {"quest": "q"}, {"quest": "q", "gold": 5, "luck": 0.5, "hat": {}, "bag": [], "alive": False, "more": 1}])
def test_what_fits_is_taken(state: dict[str, Any]) -> None:
    """An empty state, the required keys, and keys that nothing is said of."""
    assert find_wrong(state, SCHEMA) is None


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"gold": 5}, "quest"),
        ({"quest": 5}, "quest"),
        ({"quest": "q", "gold": 5.5}, "gold"),
        ({"quest": "q", "gold": True}, "gold"),
        ({"quest": "q", "luck": "high"}, "luck"),
        ({"quest": "q", "hat": []}, "hat"),
        ({"quest": "q", "bag": {}}, "bag"),
        ({"quest": "q", "alive": 1}, "alive"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(state: dict[str, Any], named: str) -> None:
    """A missing key or a value of another type, without the value."""
    assert (found := find_wrong(state, SCHEMA)) is not None
    assert named in found


def test_a_closed_state_takes_no_other_keys() -> None:
    """Only when the scenario says so."""
    assert find_wrong({"quest": "q", "more": 1}, StateSchema(required=("quest",), closed=True)) is not None
