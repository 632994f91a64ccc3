"""Bounds what an event may ask of the grammar compiler, which overflows its stack on deep input; whether one is valid is `grammar_probe`'s."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

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

MAX_WIDE = 24
"""Places of a form, its repeats written out, where almost any character fits: for each the compiler looks through the whole vocabulary, 5 to 25 ms in which
nobody else's step runs. `maxLength` 200 took 5 s, and the engine was taken for a hung one. At worst half a second."""

MAX_OPTIONAL = 100
"""Optional properties of one object, or as many in several as cost the same: it grows with their square. 300 took 1.7 s, 900 took 15 s; at worst 0.2 s."""

WIDE_SET = 16
"""Characters of a set from which on it counts as wide: digits and a few letters cost nothing."""

MAX_CHOICES = 1000

_REPEAT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_PIECE = re.compile(r"\\(?P<escaped>.)|\[(?P<set>\^?\]?(?:\\.|[^\]\\])*)\]|\{(?P<least>\d+)(?P<more>,(?P<most>\d*))?\}|(?P<other>.)", re.DOTALL)
_RANGE = re.compile(r"\\.|([^\\])-([^\\])|.", re.DOTALL)
_WIDE_ESCAPES = frozenset("wWSDpP")


def require_modest(constraint: Constraint) -> None:
    """Refuse what may cost more than it is worth.

    Raises:
        RequestRefused: names the bound.
    """
    if constraint.choice is not None and not 0 < len(constraint.choice) <= MAX_CHOICES:
        refuse(f"choice must have 1 to {MAX_CHOICES} entries")
    if constraint.choice is not None and sum(map(len, constraint.choice)) > MAX_SCHEMA:
        refuse(f"choice is above {MAX_SCHEMA} characters")
    if any("\0" in text for text in (constraint.regex or "", *(constraint.choice or ()))) or "\\u0000" in (constraint.json_schema or ""):
        refuse("holds a NUL, at which the compiler takes the text for ended; for an empty one it ends the process")
    if constraint.regex is not None:
        _require_modest_regex(constraint.regex)
    if constraint.json_schema is not None:
        if len(constraint.json_schema) > MAX_SCHEMA:
            refuse(f"json_schema is above {MAX_SCHEMA} characters")
        if _depth(constraint.json_schema, "[{", "]}") > MAX_DEPTH:
            refuse(f"json_schema is nested deeper than {MAX_DEPTH}")
        _require_modest_schema(constraint.json_schema)


def choice_regex(choice: tuple[str, ...]) -> str:
    """A regex that matches exactly the choices, what they begin with in common written once: 64 long labels with one head compiled for 7 s otherwise."""
    return _branches(sorted(set(choice)))


def _branches(labels: Sequence[str]) -> str:
    first, last = labels[0], labels[-1]
    head = first[: next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))]
    rest = [label[len(head) :] for label in labels if label != head]
    if not rest:
        return _escaped(head)
    ways = "|".join(_branches(tuple(group)) for _, group in groupby(rest, key=lambda text: text[0]))
    return f"{_escaped(head)}({ways}){'?' if len(rest) < len(labels) else ''}"


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
    _require_narrow(_wide_places(regex))


def _require_narrow(places: int) -> None:
    if places > MAX_WIDE:
        refuse(f"more than {MAX_WIDE} places where almost any character fits (`.{{1,200}}`, `maxLength`); leave such a bound out and set max_tokens")


def _wide_places(regex: str) -> int:
    """How many there are with all bounded repeats written out; an upper bound is enough."""
    sums, last = [0], 0
    for piece in _PIECE.finditer(regex):
        if piece["least"] is not None:
            times = int((piece["most"] or piece["least"])[:9]) + (piece["more"] is not None and not piece["most"])
            sums[-1] += last * max(0, times - 1)
            last *= max(1, times)
        elif piece["other"] == "(":
            sums.append(0)
            last = 0
        elif piece["other"] == ")" and len(sums) > 1:
            last = sums.pop()
            sums[-1] += last
        elif piece["other"] is None or piece["other"] not in "*+?":
            last = int(_is_wide(piece))
            sums[-1] += last
    return sum(sums)


def _is_wide(piece: re.Match[str]) -> bool:
    if piece["escaped"] is not None:
        return piece["escaped"] in _WIDE_ESCAPES
    body = piece["set"]
    if body is None:
        return piece["other"] == "."
    if body.startswith("^"):
        return True
    count = 0
    for part in _RANGE.finditer(body):
        if part[0].startswith("\\"):
            count += WIDE_SET if part[0][1:] in _WIDE_ESCAPES else 1
        else:
            count += 1 if part[1] is None else max(1, ord(part[2]) - ord(part[1]) + 1)
    return count >= WIDE_SET


def _require_modest_schema(schema: str) -> None:
    """Bounds on the length of a text and patterns count once where they are equal: they are compiled once."""
    wide: dict[object, int] = {}
    choices = 0
    for value in _objects(schema):
        bounds = [bound for name in ("minLength", "maxLength") if isinstance(bound := value.get(name), int | float)]
        if bounds:
            wide[tuple(bounds)] = round(min(max(bounds), 1e9))
        if isinstance(pattern := value.get("pattern"), str):
            wide[pattern] = _wide_places(pattern)
        if isinstance(properties := value.get("properties"), dict):
            required = value.get("required")
            choices += len(set(properties).difference(filter(_is_text, required if isinstance(required, list) else ()))) ** 2
    _require_narrow(sum(wide.values()))
    if choices > MAX_OPTIONAL**2:
        refuse(f"json_schema has more than {MAX_OPTIONAL} optional properties")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _objects(schema: str) -> Iterator[dict[str, Any]]:
    """Every map in a schema; none of one that is no JSON, of which the compiler says what is wrong."""
    try:
        left: list[Any] = [msgspec.json.decode(schema)]
    except msgspec.DecodeError:
        return
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            yield value


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
