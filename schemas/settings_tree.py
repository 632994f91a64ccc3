"""What the settings' types say about each key (kind, bounds, description, default), so that messages and files never repeat it; the keys are in `settings`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from schemas.errors import ConfigError

Path = tuple[str | int, ...]

_SHOWN_CHARS = 60
"""Of a wrong value in a message: enough to find it, and the message stays one line."""

_PLAIN = re.compile(r"[\w-]+")
"""Names that stand in a dotted key as they are; others are quoted there, or a dot or a line end in them would be read as the key's own."""

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def settings_type(cls: type[msgspec.Struct]) -> inspect.StructType:
    """The root of the tree that `cls` is."""
    found = inspect.type_info(cls)
    if not isinstance(found, inspect.StructType):
        raise TypeError(cls)
    return found


def bare_type(kind: inspect.Type) -> inspect.Type:
    """`kind` without its description, and without the None of a key that may be unset."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        inner = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
        return bare_type(inner[0]) if len(inner) == 1 else kind
    return kind


def type_at(kind: inspect.Type, path: Path) -> inspect.Type | None:
    """The type of the key at `path`, as written (None allowed, descriptions included); None when there is no such key."""
    for step in path:
        inner = bare_type(kind)
        if isinstance(inner, inspect.StructType):
            field = next((field for field in inner.fields if field.name == step), None)
            if field is None:
                return None
            kind = field.type
        elif isinstance(inner, inspect.VarTupleType) and isinstance(step, int):
            kind = inner.item_type
        elif isinstance(inner, inspect.DictType):
            kind = inner.value_type
        else:
            return None
    return kind


def describe_field(field: inspect.Field) -> str:
    """The key's description, as its Meta has it; empty for a section."""
    kind: inspect.Type = field.type
    while isinstance(kind, inspect.Metadata):
        if kind.extra_json_schema and "description" in kind.extra_json_schema:
            return str(kind.extra_json_schema["description"])
        kind = kind.type
    return ""


def describe_type(kind: inspect.Type) -> str:
    """What a value must be, in words: `a whole number from 1 to 1000`, `one of: memory, rocksdb`."""
    kind = bare_type(kind)
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number" + _describe_range(kind)
        case inspect.FloatType():
            return "a number" + _describe_range(kind)
        case inspect.StrType():
            return _describe_text(kind)
        case inspect.LiteralType():
            return "one of: " + ", ".join(str(value) for value in kind.values)
        case inspect.VarTupleType():
            return f"a list, each item {describe_type(kind.item_type)}" + (f", {kind.min_length} at least" if kind.min_length else "")
        case inspect.DictType():
            return f"a table, each value {describe_type(kind.value_type)}"
        case _:
            return "a table"


def is_secret(path: Sequence[str | int]) -> bool:
    """True for a key whose value no message, log or listing may show."""
    if tuple(path[-2:]) == ("cache", "shared"):  # an address may have a password in it
        return True
    return any("password" in step or "secret" in step for step in path if isinstance(step, str))


def format_path(path: Path) -> str:
    """`("models", 0, "threads")` as `models[0].threads`, and `("scenarios", "a b")` as `scenarios."a b"`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{_format_name(step)}" for step in path)
    return text.removeprefix(".")


def _format_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def iterate_keys(kind: inspect.Type, path: Path = ()) -> Iterator[Path]:
    """Every key below `kind` that holds a value; lists of sections are entered by their first entry, tables of them by `NAME`."""
    inner = bare_type(kind)
    if isinstance(inner, inspect.StructType):
        for field in inner.fields:
            yield from iterate_keys(field.type, (*path, field.name))
    elif isinstance(inner, inspect.VarTupleType) and isinstance(bare_type(inner.item_type), inspect.StructType):
        yield from iterate_keys(inner.item_type, (*path, 0))
    elif isinstance(inner, inspect.DictType) and isinstance(bare_type(inner.value_type), inspect.StructType):
        yield from iterate_keys(inner.value_type, (*path, "NAME"))
    else:
        yield path


def explain_rejection(root: inspect.StructType, tree: Any, rejection: str) -> ConfigError:
    """Say msgspec's "Expected `int` >= 1 - at `$.models[0].threads`" as key, what is wrong, what would be right."""
    what, _, place = rejection.partition(" - at `")
    if place.startswith("key` in `"):
        return _wrong_name(root, _parse_path(root, f"{place.removeprefix('key` in `').rstrip('`')}[...]", tree))
    path = _parse_path(root, place.rstrip("`"), tree)
    if what.startswith("Object contains unknown field"):
        return unknown_key(root, (*path, what.split("`")[1]))
    if what.startswith("Object missing required field"):
        needed = (*path, what.split("`")[1])
        kind = type_at(root, needed)
        return ConfigError(format_path(needed), "is missing", f"must be {describe_type(kind)}" if kind is not None else "add it")
    return wrong_value(root, path, value_at(tree, path))


def wrong_value(root: inspect.StructType, path: Path, value: Any, origin: str | None = None) -> ConfigError:
    """The error for a value that its key does not allow, `origin` where it came from when it is not the file; a secret's value is not told."""
    kind = type_at(root, path)
    right = describe_type(kind) if kind is not None else "another value"
    if not right.startswith("one of"):
        right = f"must be {right}"
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        right += ", or left out"
    shown = "the value" if is_secret(path) else _show(value)
    return ConfigError(format_path(path) or "the file", f"{shown}{f' from {origin}' if origin else ''} is wrong", right)


def _wrong_name(root: inspect.StructType, path: Path) -> ConfigError:
    """The error for an entry of a map whose name is none."""
    table = type_at(root, path[:-1])
    inner = bare_type(table) if table is not None else None
    right = describe_type(inner.key_type) if isinstance(inner, inspect.DictType) else "another name"
    return ConfigError(format_path(path), f"the name {_show(path[-1])} is wrong", f"must be {right}")


def unknown_key(root: inspect.StructType, path: Path) -> ConfigError:
    """The error for a key that does not exist, with the one that was probably meant."""
    section = type_at(root, path[:-1])
    inner = bare_type(section) if section is not None else None
    siblings = [field.name for field in inner.fields] if isinstance(inner, inspect.StructType) else []
    near = difflib.get_close_matches(str(path[-1]), siblings, n=1)
    if near:
        return ConfigError(format_path(path), "unknown key", f"did you mean {format_path((*path[:-1], near[0]))}?")
    everywhere = list(iterate_keys(root))
    # Only the last part counts: with what stands before it, any two keys of one section look alike.
    names = difflib.get_close_matches(str(path[-1]), [str(key[-1]) for key in everywhere], n=1)
    elsewhere = next((key for key in everywhere if key[-1] in names), None)
    if elsewhere:
        return ConfigError(format_path(path), "unknown key", f"did you mean {format_path(elsewhere)}?")
    return ConfigError(format_path(path), "unknown key", f"known here: {', '.join(siblings)}")


def value_at(tree: Any, path: Path) -> Any:
    """The value in a plain tree; None where there is none."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _parse_path(root: inspect.StructType, text: str, tree: Any) -> Path:
    """Read msgspec's path; where it says `[...]` for an entry of a map, the first one that the map does not allow is meant."""
    path: Path = ()
    for name, index in _STEP.findall(text.removeprefix("$")):
        if index == "...":
            entries = value_at(tree, path)
            path = (*path, _wrong_entry(root, path, entries) if isinstance(entries, dict) else "?")
        else:
            path = (*path, name or int(index))
    return path


def _wrong_entry(root: inspect.StructType, path: Path, entries: dict[str, Any]) -> str:
    """The first name in the map at `path` that the map does not take, or not with its value: each is tried alone in its section."""
    section = type_at(root, path[:-1])
    inner = bare_type(section) if section is not None else None
    if not isinstance(inner, inspect.StructType):
        return "?"
    field = str(path[-1])
    for key, value in entries.items():
        try:
            msgspec.convert({field: {key: value}}, inner.cls)
        except msgspec.ValidationError as error:
            if f"`$.{field}" in str(error):  # not that the section lacks another key
                return key
    return "?"


def _describe_range(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:.12g} to {kind.le:.12g}"
    bounds = ((">", kind.gt), (">=", kind.ge), ("<", kind.lt), ("<=", kind.le))
    said = [f"{sign} {bound:.12g}" for sign, bound in bounds if bound is not None]
    return f" {' and '.join(said)}" if said else ""


def _describe_text(kind: inspect.StrType) -> str:
    if kind.pattern:
        return f"text matching {kind.pattern}"
    if kind.min_length is not None and kind.max_length is not None:
        return f"text of {kind.min_length} to {kind.max_length} characters"
    if kind.max_length is not None:
        return f"text of at most {kind.max_length} characters"
    return f"text of at least {kind.min_length} character{'s' if kind.min_length > 1 else ''}" if kind.min_length else "text"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple) and (not value or isinstance(value[0], dict)):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
