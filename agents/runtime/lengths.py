"""Bounds on the length of texts in a JSON schema, kept beside the grammar, where each costs seconds; what a grammar may cost is `constraints`."""

from __future__ import annotations

from typing import Any

import msgspec

BOUNDS = ("minLength", "maxLength")
_VALUES = frozenset({"const", "enum", "default", "examples"})
"""What stands below these is an answer's value and no schema."""

_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Maps of names to schemas: a property may be called `maxLength`."""

MAX_DEPTH = 100
"""Schemas within each other on the way to one text; a reference to itself never ends, and an answer is not nested deeper."""

MAX_LOOKS = 10_000
"""Places of schema and answer compared: alternatives within alternatives multiply, and no answer of a few hundred tokens needs so many. Some 10 ms."""


def without_lengths(schema: str) -> str:
    """The schema without such bounds; as it is when it has none, or is no JSON."""
    try:
        tree = msgspec.json.decode(schema)
    except msgspec.DecodeError:
        return schema
    bare = _bare(tree)
    return schema if bare == tree else msgspec.json.encode(bare).decode()


def keeps_lengths(schema: str, data: Any) -> bool:
    """Whether every text in an answer that fits `without_lengths(schema)` is as long as `schema` asks."""
    tree = msgspec.json.decode(schema)
    return _Check(tree).holds(tree, data)


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name in BOUNDS:
            continue
        if name in _NAMED and isinstance(value, dict):
            found[name] = {key: _bare(one) for key, one in value.items()}
        else:
            found[name] = value if name in _VALUES else _bare(value)
    return found


class _Check:
    """One answer held against one schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._looks = 0
        self._depth = 0

    def holds(self, schema: Any, data: Any) -> bool:
        """False also for what takes too long to tell."""
        self._looks += 1
        if self._looks > MAX_LOOKS or self._depth >= MAX_DEPTH:
            return False
        self._depth += 1
        try:
            return self._holds(schema, data)
        finally:
            self._depth -= 1

    def _holds(self, schema: Any, data: Any) -> bool:
        if not isinstance(schema, dict):
            return True
        if isinstance(data, str) and not _has_length(schema, data):
            return False
        if isinstance(ref := schema.get("$ref"), str) and not self.holds(self._named(ref), data):
            return False
        for name in ("anyOf", "oneOf"):
            ways = schema.get(name)
            if isinstance(ways, list) and ways and not any(self.holds(way, data) for way in ways):
                return False
        if any(not self.holds(part, data) for part in _listed(schema.get("allOf"))):
            return False
        return self._holds_below(schema, data)

    def _holds_below(self, schema: dict[str, Any], data: Any) -> bool:
        if isinstance(data, dict):
            known = schema.get("properties")
            known = known if isinstance(known, dict) else {}
            return all(self.holds(known.get(key, schema.get("additionalProperties")), value) for key, value in data.items())
        if isinstance(data, list):
            first = _listed(schema.get("prefixItems"))
            places = [*first, *[schema.get("items")] * max(0, len(data) - len(first))]
            return all(self.holds(place, value) for place, value in zip(places, data, strict=False))
        return True

    def _named(self, ref: str) -> Any:
        """What a reference within the schema points at; nothing for others, which the compiler refuses."""
        at = self._root
        for part in ref.removeprefix("#").strip("/").split("/") if ref.strip("#/") else ():
            at = at.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
        return at


def _has_length(schema: dict[str, Any], text: str) -> bool:
    least, most = (bound if isinstance(bound := schema.get(name), int | float) else None for name in BOUNDS)
    return (least is None or len(text) >= least) and (most is None or len(text) <= most)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
