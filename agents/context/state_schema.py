"""Whether a session's external state is what its scenario asks for: a small part of JSON Schema; merging is `sessions`."""

from __future__ import annotations

from typing import Any, assert_never

from schemas.settings_ladder import StateSchema, StateType


def find_wrong(state: dict[str, Any], schema: StateSchema) -> str | None:
    """What is wrong with a state in a few words, with names of keys and no values; None when nothing is. An empty state is no state yet."""
    if not state:
        return None
    for key in schema.required:
        if key not in state:
            return f"{key!r} is missing"
    for key, kind in schema.types.items():
        if key in state and not _is_of(state[key], kind):
            return f"{key!r} is no {kind}"
    if schema.closed and state.keys() - schema.types.keys() - set(schema.required):
        return "it has keys that the scenario does not know"
    return None


def _is_of(value: Any, kind: StateType) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, dict)
        case _:
            assert_never(kind)
