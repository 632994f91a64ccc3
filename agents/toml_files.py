"""TOML files read with errors that name the line, and the line of any key of such a file; what the keys mean is told by who reads them."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError
from schemas.settings_tree import Path as Key

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of one file: a log or a model named by mistake must not be read into memory whole. 20,000 rules are about 6 MiB."""

_PLACE = re.compile(r" \(at line (\d+), column \d+\)")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def read_toml(file: Path, *, missing: str = "name one that exists") -> tuple[dict[str, Any], str]:
    """The file as a plain tree, and its text with line ends as `locate_keys` wants them. `missing` is what to do when it is not there.

    Raises:
        ConfigError: it cannot be read, or is not TOML in UTF-8; names the line.
    """
    data = _read_bytes(file, missing)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        return tomllib.loads(text), text
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}", f"byte {data[error.start]:#04x} is not UTF-8", "save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else max(1, len(data.rstrip().splitlines()))
        what = _PLACE.sub("", str(error)).removesuffix(" (at end of document)")
        raise ConfigError(f"{file}:{line}", f"not TOML ({what})", "mend this line") from None
    except RecursionError:
        raise ConfigError(str(file), "nested too deeply", "settings need four levels at most") from None


def _read_bytes(file: Path, missing: str) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(str(file), "no such file", missing) from None
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read ({error.strerror})", "name a readable file") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(str(file), f"is larger than {MAX_FILE_BYTES // 2**20} MiB", "name a TOML file")
    return data


def locate_keys(text: str) -> dict[Key, int]:
    """The line, counted from 1, of every key and list entry of a TOML text that `tomllib` has read; tables by their first header."""
    return _Locator(text).run()


def line_of(lines: dict[Key, int], key: Key) -> int:
    """The line of `key`, or of the nearest thing around it that is written: what is missing has no line."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key, 1)


class _Locator:
    """Walks through a text that is known to be right, and so needs to tell apart only where things begin and end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [index for index, char in enumerate(text) if char == "\n"]
        self._lines: dict[Key, int] = {}
        self._arrays: dict[Key, int] = {}
        """The last index of each [[array of tables]]."""

    def run(self) -> dict[Key, int]:
        table: Key = ()
        self._skip_blank()
        while self._at < len(self._text):
            table = self._header() if self._text[self._at] == "[" else self._pair(table)
            self._skip_blank()
        return self._lines

    def _header(self) -> Key:
        many = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if many else 1
        steps = self._key()
        self._at = self._text.index("]", self._at) + (2 if many else 1)
        table: Key = ()
        for depth, step in enumerate(steps):
            table = (*table, step)
            self._lines.setdefault(table, line)
            if many and depth == len(steps) - 1:
                self._arrays[table] = self._arrays.get(table, -1) + 1
            if table in self._arrays:
                table = (*table, self._arrays[table])
                self._lines.setdefault(table, line)
        return table

    def _pair(self, table: Key) -> Key:
        """`a.b = value`; gives back `table`, to which the next pair belongs as well."""
        line = self._line()
        key = table
        for step in self._key():
            key = (*key, step)
            self._lines.setdefault(key, line)
        self._at = self._text.index("=", self._at) + 1
        self._value(key)
        return table

    def _value(self, key: Key) -> None:
        self._skip_blank()
        opening = self._text[self._at]
        if opening in "[{":
            self._at += 1
            self._entries(key, many=opening == "[")
        else:
            pattern = _STRING if opening in "\"'" else _SCALAR
            found = pattern.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)

    def _entries(self, key: Key, *, many: bool) -> None:
        index = 0
        while True:
            self._skip_blank()
            char = self._text[self._at]
            if char in "]}":
                self._at += 1
                return
            if char == ",":
                self._at += 1
            elif many:
                self._lines.setdefault((*key, index), self._line())
                self._value((*key, index))
                index += 1
            else:
                self._pair(key)

    def _key(self) -> list[str]:
        steps: list[str] = []
        while True:
            self._skip_blank()
            if self._text[self._at] in "\"'":
                found = _STRING.match(self._text, self._at)
                assert found
                steps.append(tomllib.loads(f"key = {found[0]}")["key"])
            else:
                found = _BARE_KEY.match(self._text, self._at)
                assert found
                steps.append(found[0])
            self._at = found.end()
            self._skip_blank()
            if self._text[self._at] != ".":
                return steps
            self._at += 1

    def _skip_blank(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _line(self) -> int:
        return bisect_right(self._breaks, self._at - 1) + 1
