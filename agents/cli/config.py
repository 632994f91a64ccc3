"""Settings from a file and the environment, and `answerby config init|check|show`; what the keys are is `schemas.settings`."""

from __future__ import annotations

import copy
import difflib
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import msgspec
from msgspec import inspect

from agents.cli.config_text import mask_secrets, render_effective, render_template
from agents.toml_files import read_toml
from schemas.errors import ConfigError, UsageError
from schemas.settings import Settings, find_unused, parse_settings
from schemas.settings_tree import Path as Key
from schemas.settings_tree import bare_type, explain_rejection, format_path, iterate_keys, settings_type, type_at, value_at, wrong_value

app = cyclopts.App(name="config", help="Write, check and show the settings.")

DEFAULT_FILE = Path("answerby.toml")
PREFIX = "ANSWERBY__"

_ROOT = settings_type(Settings)

Config = Annotated[Path | None, cyclopts.Parameter(name=["--config", "-c"], help="settings file; default: answerby.toml here, when there is one")]
Json = Annotated[bool, cyclopts.Parameter(name="--json", negative="", help="print JSON")]
Force = Annotated[bool, cyclopts.Parameter(negative="", help="overwrite the file when it exists")]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings in force, and for each value that was given, by dotted key: the file or the variable it came from."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None


@app.command
def init(file: Path = DEFAULT_FILE, /, *, force: Force = False) -> int:
    """Write a commented file with every key and its default.

    Example: answerby config init answerby.toml

    Args:
        file: Where to; an existing file is kept unless --force is given.
        force: Overwrite.
    """
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(render_template())
    except FileExistsError:
        msg = f"{file} exists; add --force to overwrite it, or name another file"
        raise UsageError(msg) from None
    except OSError as error:
        msg = f"{file} cannot be written ({error.strerror}); name another file"
        raise UsageError(msg) from None
    sys.stdout.write(f"wrote {file}\n")
    return 0


@app.command
def check(*, config: Config = None) -> int:
    """Check the settings and all they name, as a worker does before it starts: exit 0 when they are right, else 2 and one line that says which key is wrong.

    What is allowed and does nothing is told as a warning, and so is a model or an encoder that is still to be pulled.

    Example: answerby config check -c answerby.toml
    """
    from agents.cli.parts import find_missing, refuse_wrong_parts

    loaded = load_with_origins(config)
    refuse_wrong_parts(loaded.settings)
    sys.stdout.writelines(f"warning: {line}\n" for line in (*find_unused(loaded.settings), *find_missing(loaded.settings)))
    sys.stdout.write(f"ok: {loaded.file or 'no file, all defaults'}, {len(loaded.origins)} values given\n")
    return 0


@app.command
def show(*, config: Config = None, json: Json = False) -> int:
    """Show the settings in force, secrets masked, and where each value came from that is not the default.

    Example: answerby config show -c answerby.toml --json
    """
    loaded = load_with_origins(config)
    if json:
        plain = {"settings": mask_secrets(msgspec.to_builtins(loaded.settings)), "origins": loaded.origins}
        sys.stdout.write(msgspec.json.encode(plain).decode() + "\n")
    else:
        sys.stdout.write(render_effective(loaded.settings, loaded.origins))
    return 0


def load_settings(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of the file `path` (None: ./answerby.toml when it is there), over which `ANSWERBY__SECTION__KEY` of the environment wins.

    Raises:
        ConfigError: the file cannot be read, or a key or value is wrong; the text says which and what would be right.
    """
    return load_with_origins(path, environ).settings


def load_with_origins(path: Path | None, environ: Mapping[str, str] = os.environ) -> Loaded:
    """The same, with where each value came from.

    Raises:
        ConfigError: as `load_settings`.
    """
    file = path if path is not None else (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)
    tree = _read_file(file) if file is not None else {}
    _refuse_wrong_file(tree)
    origins = {format_path(key): str(file) for key in _given_keys(tree)}
    given = sorted(((_key_of(variable), variable) for variable in environ if variable.startswith(PREFIX)), key=lambda item: [str(s).zfill(9) for s in item[0]])
    for key, variable in given:
        _put(tree, key, _parse_value(key, variable, environ[variable]))
        origins = {name: came for name, came in origins.items() if not name.startswith((f"{format_path(key)}.", f"{format_path(key)}["))}
        origins[format_path(key)] = f"environment {variable}"
    return Loaded(_with_absolute_files(parse_settings(tree), origins, file), origins, file)


def _with_absolute_files(settings: Settings, origins: Mapping[str, str], file: Path | None) -> Settings:
    """Rule files named in the settings file lie beside it, those named by a variable in the working directory: afterwards no part needs to know."""
    files = tuple(
        str((file.parent if file is not None and not _from_environment(origins, index) else Path()).absolute() / name)
        for index, name in enumerate(settings.rules.files)
    )
    return msgspec.structs.replace(settings, rules=msgspec.structs.replace(settings.rules, files=files)) if files else settings


def _from_environment(origins: Mapping[str, str], index: int) -> bool:
    came = origins.get(f"rules.files[{index}]") or origins.get("rules.files", "")
    return came.startswith("environment ")


def _refuse_wrong_file(tree: dict[str, Any]) -> None:
    """Tell the file's own errors before the environment is laid over it; contradictions between its keys may still be mended by that.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or range.
    """
    for key in _given_keys(tree):
        value = value_at(tree, key)
        if isinstance(value, float) and not math.isfinite(value):
            raise wrong_value(_ROOT, key, value)
    try:
        msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise explain_rejection(_ROOT, tree, str(error)) from None


def _read_file(file: Path) -> dict[str, Any]:
    """The file's tree, `[[rules]]` as the list of inline rules that it is short for."""
    try:
        tree, _ = read_toml(file, missing="name one that exists, or write it by `answerby config init`")
    except ConfigError as error:
        raise _with_rules_hint(error, file) from None
    return {**tree, "rules": {"inline": tree["rules"]}} if isinstance(tree.get("rules"), list) else tree


def _with_rules_hint(error: ConfigError, file: Path) -> ConfigError:
    """The same error, or one that names `[[rules.inline]]` where rules and keys of `[rules]` meet: TOML allows one name one meaning."""
    place, _, line = error.key.rpartition(":")
    if place != str(file) or not line.isdigit():
        return error
    lines = file.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    headers = {"".join(text.split("#")[0].split()) for text in lines}
    here = "".join("".join(lines[int(line) - 1 : int(line)]).split("#")[0].split())
    if here != "[[rules]]" and not (here == "[rules]" and "[[rules]]" in headers):
        return error
    return ConfigError(error.key, "`[[rules]]` cannot stand beside other keys of [rules]", "write [[rules.inline]] for each rule of this file")


def _given_keys(tree: Any, path: Key = ()) -> Iterator[Key]:
    """Every key of a plain tree that holds a value; lists of plain values count as one."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _given_keys(value, (*path, key))
    elif isinstance(tree, list) and tree and isinstance(tree[0], dict):
        for index, value in enumerate(tree):
            yield from _given_keys(value, (*path, index))
    elif path:
        yield path


def _key_of(variable: str) -> Key:
    """`ANSWERBY__MODELS__0__ENGINE` as `("models", 0, "engine")`.

    Raises:
        ConfigError: there is no such key, or it is a section; names the variable.
    """
    key: Key = tuple(int(part) if part.isdigit() else part.lower() for part in variable.removeprefix(PREFIX).split("__"))
    kind = type_at(_ROOT, key)
    if kind is None:
        # The prefix is left out, and the last part must be near by itself: else any two variables of one section look alike.
        known = [_variable_of(name).removeprefix(PREFIX) for name in iterate_keys(_ROOT) if difflib.get_close_matches(str(key[-1]), [str(name[-1])])]
        near = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1)
        raise ConfigError(variable, "unknown key", f"did you mean {PREFIX}{near[0]}?" if near else "see `answerby config init` for every key")
    if isinstance(bare_type(kind), inspect.StructType):
        first = next(iterate_keys(kind, key))
        raise ConfigError(variable, "is a section", f"name one of its keys, such as {_variable_of(first)}")
    return key


def _variable_of(key: Key) -> str:
    return PREFIX + "__".join(str(step).upper() for step in key)


def _parse_value(key: Key, variable: str, raw: str) -> Any:
    """What the variable says: the TOML literal when the key takes it, else the bare text.

    Raises:
        ConfigError: the key takes neither.
    """
    try:
        document = tomllib.loads(f"value = {raw}")
        literal = document["value"] if len(document) == 1 else raw
    except (tomllib.TOMLDecodeError, RecursionError):
        literal = raw
    for value in (literal, raw):
        if _fits(key, value):
            return value
    raise wrong_value(_ROOT, key, literal, variable)


def _fits(key: Key, value: Any) -> bool:
    """Whether the settings' own types take `value` at `key`."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    for step in reversed(key):
        value = [value] if isinstance(step, int) else {step: value}
    try:
        msgspec.convert(value, Settings)
    except msgspec.ValidationError:
        return False
    return True


def _put(tree: dict[str, Any], key: Key, value: Any) -> None:
    """Set one value; lists and maps that the file does not give start as their defaults, so that `MODELS__0__ENGINE` changes the default model.

    Raises:
        ConfigError: an index skips entries.
    """
    place: Any = tree
    defaults: Any = msgspec.to_builtins(Settings())
    for depth, step in enumerate(key):
        last = depth == len(key) - 1
        if isinstance(step, int) and step >= len(place):
            if step > len(place):
                raise ConfigError(_variable_of(key), f"index {step} skips entries", f"{format_path(key[:depth])} has {len(place)}, so the next is {len(place)}")
            place.append(value if last else {})
        elif last:
            place[step] = value
        elif isinstance(place, dict) and step not in place:
            known = value_at(defaults, key[: depth + 1])
            is_section = isinstance(bare_type(type_at(_ROOT, key[: depth + 1]) or _ROOT), inspect.StructType)
            place[step] = {} if is_section else _as_plain(known)
        place = place[step] if not last else place


def _as_plain(default: Any) -> Any:
    """A default that can be changed: a map or a list of its own; an unset list starts empty."""
    return dict(default) if isinstance(default, dict) else list(copy.deepcopy(default or ()))
