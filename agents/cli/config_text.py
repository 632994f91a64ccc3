"""The settings written as TOML: every key in order, with its description or where its value came from; reading is `agents.cli.config`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect

from schemas.settings import Settings
from schemas.settings_tree import Path, bare_type, describe_field, describe_type, format_path, is_secret, settings_type

MASK = "(hidden)"

_HEADER = (
    "# answerby: every setting with its default. Delete what you do not change, so that a new release may give you better defaults.",
    "# The environment wins: ANSWERBY__DEADLINE__DEFAULT_MS=300, ANSWERBY__MODELS__0__THREADS=2.",
)


def render_template() -> str:
    """The defaults as a file that says what each key is for; it loads back equal to `Settings()`."""
    return "\n".join([*_HEADER, *_render(settings_type(Settings), Settings(), (), None)]) + "\n"


def render_effective(settings: Settings, origins: Mapping[str, str]) -> str:
    """The settings in force, secrets masked; a value that is not the default says where it came from."""
    return "\n".join(_render(settings_type(Settings), settings, (), origins)).lstrip("\n") + "\n"


def mask_secrets(tree: Any, path: Path = ()) -> Any:
    """The same plain tree with every secret that is set replaced by a mask."""
    if isinstance(tree, dict):
        return {key: mask_secrets(value, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [mask_secrets(value, (*path, index)) for index, value in enumerate(tree)]
    return MASK if is_secret(path) and tree else tree


def _render(kind: inspect.StructType, section: Any, path: Path, origins: Mapping[str, str] | None) -> Iterator[str]:
    """Values first, then the sections below: TOML gives a key after a header to that header."""
    later: list[inspect.Field] = []
    for field in kind.fields:
        if _is_section(field):
            later.append(field)
        else:
            yield from _render_value(field, getattr(section, field.name), (*path, field.name), origins)
    for field in later:
        inner, value, place = bare_type(field.type), getattr(section, field.name), (*path, field.name)
        if isinstance(inner, inspect.StructType):
            yield from _render_section(_header(place), inner, value, place, origins)
        elif isinstance(inner, inspect.VarTupleType):
            for index, entry in enumerate(value):
                yield from _render_section(_header(place, many=True), _struct_in(inner), entry, (*place, index), origins)
            if not value:
                yield from _render_absent(_header(place, many=True), _struct_in(inner), place, origins)
        else:
            for name, entry in value.items():
                yield from _render_section(_header((*place, name)), _struct_in(inner), entry, (*place, name), origins)
            if not value:
                yield from _render_absent(_header((*place, "NAME")), _struct_in(inner), (*place, "NAME"), origins)


def _header(path: Path, *, many: bool = False) -> str:
    """As TOML has it: the entries of an array are told apart by their order alone."""
    name = ".".join(_format_key(step) for step in path if not isinstance(step, int))
    return f"[[{name}]]" if many else f"[{name}]"


def _struct_in(kind: inspect.Type) -> inspect.StructType:
    """The sections that an array or a table holds."""
    inner = bare_type(kind.item_type if isinstance(kind, inspect.VarTupleType) else kind.value_type)  # type: ignore[attr-defined]
    assert isinstance(inner, inspect.StructType)
    return inner


def _render_absent(header: str, kind: inspect.StructType, path: Path, origins: Mapping[str, str] | None) -> Iterator[str]:
    """A section of which there is none, as it could be written: all of it commented out."""
    if origins is not None:
        return
    yield ""
    if kind.cls.__doc__:
        yield f"# {kind.cls.__doc__.splitlines()[0]}"
    yield f"# {header}"
    sections = [field for field in kind.fields if _is_section(field)]
    for field in kind.fields:
        if field not in sections:
            yield f"# # {describe_field(field)} ({describe_type(field.type)})"
            yield f"# {field.name} = {_default(field)}"
    for field in sections:
        inner = bare_type(field.type)
        many = isinstance(inner, inspect.VarTupleType)
        below = inner if isinstance(inner, inspect.StructType) else _struct_in(inner)
        yield from _render_absent(_header((*path, field.name), many=many), below, (*path, field.name), None)


def _default(field: inspect.Field) -> str:
    if field.required:
        return "..."
    value = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return "(unset)" if value is None else _format(value)


def _render_section(header: str, kind: inspect.StructType, section: Any, path: Path, origins: Mapping[str, str] | None) -> Iterator[str]:
    yield ""
    if origins is None and kind.cls.__doc__:
        yield f"# {kind.cls.__doc__.splitlines()[0]}"
    yield header
    yield from _render(kind, section, path, origins)


def _render_value(field: inspect.Field, value: Any, path: Path, origins: Mapping[str, str] | None) -> Iterator[str]:
    shown = MASK if origins is not None and is_secret(path) and value else value
    line = f"# {field.name} = (unset)" if value is None else f"{field.name} = {_format(shown)}"
    if origins is None:
        yield f"# {describe_field(field)} ({describe_type(field.type)})"
    else:
        came = _origin(path, origins)
        line += f"  # {came}" if came else ""
    yield line


def _origin(path: Path, origins: Mapping[str, str]) -> str | None:
    """Where the value, or an entry of it, came from."""
    key = format_path(path)
    found = {came: None for name, came in origins.items() if name == key or name.startswith((f"{key}.", f"{key}["))}
    return ", ".join(found) or None


def _is_section(field: inspect.Field) -> bool:
    """Whether a key has a header of its own: a section, or an array or a table of sections."""
    kind = bare_type(field.type)
    if isinstance(kind, inspect.VarTupleType | inspect.DictType):
        kind = bare_type(kind.item_type if isinstance(kind, inspect.VarTupleType) else kind.value_type)
    return isinstance(kind, inspect.StructType)


def _format(value: Any) -> str:
    """A TOML literal; its strings have JSON's escapes, and DEL besides."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_format(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_format_key(key)} = {_format(item)}' for key, item in value.items())} }}" if value else "{}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _format(key)
