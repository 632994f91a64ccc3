"""Texts with places to fill in, for rules and default answers; what fills them is data and never read as a template. Prompts are `agents.context`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import msgspec

MAX_TEMPLATE_CHARS = 8000
"""Of a text as it is written: above it the answer would not fit a chat window, and with all its places filled a response record."""

MAX_PLACES = 40
"""In one text: with MAX_VALUE_CHARS a filled text stays below 16,000 characters, whatever a person wrote."""

MAX_VALUE_CHARS = 200
"""Of a value that is filled in: a person's text of half a megabyte must not become our answer. What is longer ends in an ellipsis."""

MAX_WHOLE = 10**18
"""Python refuses to write numbers of thousands of digits; no amount or id that a person reads is larger."""

TREES = frozenset({"state"})
"""Names that hold a tree: a key within it is named (`state.order.id`). All others are one value."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_UNSEEN = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
"""Control characters, and those that turn the direction of the text around them: both can make an answer look like another one."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """A place to fill in: the way to its value, and what is said when there is none (None: then nothing is said at all)."""

    path: tuple[str, ...]
    fallback: str | None = None


class Template(msgspec.Struct, frozen=True, gc=False):
    """A text as it is, and places between."""

    pieces: tuple[str | Place, ...]

    @property
    def fixed(self) -> str | None:
        """The text, when it has no places."""
        return "".join(piece for piece in self.pieces if isinstance(piece, str)) if all(isinstance(piece, str) for piece in self.pieces) else None


class TemplateProblem(msgspec.Struct, frozen=True):
    """Why a text is no template, and what would be right."""

    wrong: str
    right: str


Parsed: TypeAlias = Template | TemplateProblem


def parse_template(source: str, names: Collection[str]) -> Parsed:
    """Read `{name}`, `{state.a.b}` and `{name|said when it is missing}`; `{{` and `}}` are braces. `names` are those that have a value, `state` with keys."""
    if len(source) > MAX_TEMPLATE_CHARS:
        return TemplateProblem(f"has {len(source)} characters", f"use at most {MAX_TEMPLATE_CHARS}")
    pieces: list[str | Place] = []
    at = 0
    for token in _TOKEN.finditer(source):
        pieces.append(source[at : token.start()])
        at = token.end()
        if token[1] is not None:
            place = _parse_place(token[1], names)
            if isinstance(place, TemplateProblem):
                return place
            pieces.append(place)
        elif token[0] in ("{{", "}}"):
            pieces.append(token[0][0])
        else:
            return TemplateProblem(f"has a single {token[0]} at character {token.start() + 1}", f"write {token[0] * 2} for the brace itself, or {{name}}")
    pieces.append(source[at:])
    if sum(isinstance(piece, Place) for piece in pieces) > MAX_PLACES:
        return TemplateProblem("has too many places to fill in", f"use at most {MAX_PLACES}")
    return Template(tuple(piece for piece in pieces if piece != ""))


def _parse_place(inner: str, names: Collection[str]) -> Place | TemplateProblem:
    name, bar, fallback = inner.partition("|")
    path = tuple(step.strip() for step in name.split("."))
    if path[0] not in names:
        known = ", ".join("{state.KEY}" if one in TREES else f"{{{one}}}" for one in sorted(names))
        return TemplateProblem(f"nothing is called {{{inner}}} here", f"use one of: {known}; or {{{{ for a brace")
    if "" in path or (path[0] in TREES) != (len(path) > 1):
        right = f"{{{path[0]}.KEY}}" if path[0] in TREES else f"{{{path[0]}}}"
        return TemplateProblem(f"{{{inner}}} names no value", f"write {right}")
    return Place(path, fallback if bar else None)


def render(template: Template, values: Mapping[str, Any]) -> str | None:
    """The text with its places filled; None when a value is missing for which no fallback was written. Values pass `clean_value`."""
    filled: list[str] = []
    for piece in template.pieces:
        if isinstance(piece, str):
            filled.append(piece)
            continue
        text = clean_value(value_of(values, piece.path))
        if text is None:
            text = piece.fallback
        if text is None:
            return None
        filled.append(text)
    return "".join(filled)


def value_of(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """What is at the end of the path; None where there is nothing."""
    value: Any = tree
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value


def clean_value(value: Any) -> str | None:
    """A value as one short line without control characters; None for what has no such form: nothing, a list, a table, an empty text."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) < MAX_WHOLE else None
        case float():
            if not math.isfinite(value):
                return None
            return str(int(value)) if value.is_integer() and abs(value) < MAX_WHOLE else repr(value)
        case str():
            line = " ".join(_UNSEEN.sub("", value[: 4 * MAX_VALUE_CHARS]).split())
            return (line if len(line) <= MAX_VALUE_CHARS else f"{line[: MAX_VALUE_CHARS - 1]}…") or None
        case _:
            return None
