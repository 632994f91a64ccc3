"""Bounds what an event may ask of the grammar compiler, which overflows its stack on deep input; whether one is valid is `grammar_probe`'s."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.runtime.backend import RequestRefused
from schemas.inference import Constraint

MAX_REGEX = 2000
"""Characters. Longer ones compile for longer than a step should last."""

MAX_SCHEMA = 32_768
"""Bytes of JSON Schema; compile time grows with it."""

MAX_DEPTH = 32
"""Nesting of a schema or a regex: the compiler recurses, and 3,000 levels end the process."""

MAX_REPEATS = 10_000
"""Product of the upper bounds of a regex's repeats: each multiplies the automaton's states."""

MAX_CHOICES = 1000

_REPEAT = re.compile(r"\{(\d*)(?:,(\d*))?\}")


def require_modest(constraint: Constraint) -> None:
    """Refuse what may cost more than it is worth.

    Raises:
        RequestRefused: names the bound.
    """
    if constraint.choice is not None and not 0 < len(constraint.choice) <= MAX_CHOICES:
        refuse(f"choice must have 1 to {MAX_CHOICES} entries")
    if constraint.choice is not None and sum(map(len, constraint.choice)) > MAX_SCHEMA:
        refuse(f"choice is above {MAX_SCHEMA} characters")
    if constraint.regex is not None:
        _require_modest_regex(constraint.regex)
    if constraint.json_schema is not None:
        if len(constraint.json_schema) > MAX_SCHEMA:
            refuse(f"json_schema is above {MAX_SCHEMA} characters")
        if _depth(constraint.json_schema, "[{", "]}") > MAX_DEPTH:
            refuse(f"json_schema is nested deeper than {MAX_DEPTH}")


def choice_regex(choice: tuple[str, ...]) -> str:
    """A regex that matches exactly the choices."""
    return "|".join(f"({_escaped(text)})" for text in choice)


def refuse(text: str) -> None:
    """End this request alone.

    Raises:
        RequestRefused: always.
    """
    message = f"constraint: {text}"
    raise RequestRefused(message)


def _require_modest_regex(regex: str) -> None:
    if len(regex) > MAX_REGEX:
        refuse(f"regex is above {MAX_REGEX} characters")
    if _depth(regex, "(", ")") > MAX_DEPTH:
        refuse(f"regex is nested deeper than {MAX_DEPTH}")
    repeats = 1
    for match in _REPEAT.finditer(regex):
        digits = match[2] or match[1] or "1"
        repeats *= max(1, int(digits[:9]))
        if repeats > MAX_REPEATS:
            refuse(f"regex repeats more than {MAX_REPEATS} times")


def _depth(text: str, opening: str, closing: str) -> int:
    """Brackets inside strings count too: an upper bound is enough."""
    depth = deepest = 0
    for character in text:
        if character in opening:
            depth += 1
            deepest = max(deepest, depth)
        elif character in closing:
            depth = max(0, depth - 1)
    return deepest


def _escaped(text: str) -> str:
    """Only what the grammar's regex dialect treats specially, so that other characters stay as they are."""
    return re.sub(r"([\\.^$*+?{}\[\]()|/-])", r"\\\1", text).replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def settled_label(choice: Sequence[str], said: str) -> str | None:
    """The one label that begins with what was said; None while several do. Whole answers are decided by their first differing token."""
    left = {label for label in choice if label.startswith(said)}
    return left.pop() if len(left) == 1 else None
