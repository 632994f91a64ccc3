"""TOML files read with errors that name the line, and the line of any key of such a file; what the keys mean is told by who reads them."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from schemas.errors import ConfigError
from schemas.settings_tree import Path as Key

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of one file: a log or a model named by mistake must not be read into memory whole. 20,000 rules are about 6 MiB."""

MAX_KEY_DOTS = 100
"""Of one key: reading takes time with the square of them, 2 s for 8,000 and minutes for 50,000. With 100 it is a third of a millisecond."""

MAX_WORD_CHARS = 1000
"""Of a number or a bare key: Python refuses to read, and to print, a number of more than 4300 digits. Hexadecimal ones become a fifth longer in print."""

_PLACE = re.compile(r" \(at line (\d+), column \d+\)")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
_LONG_WORD = re.compile(rf"(?<![A-Za-z0-9_+-])[A-Za-z0-9_+-]{{{MAX_WORD_CHARS + 1}}}")
_CLOSED = (
    r"#[^\n]*+"
    r'|"""(?:[^"\\]++|\\.|"{1,2}+(?!"))*+"{3,5}'
    r"|'''(?:[^']++|'{1,2}+(?!'))*+'{3,5}"
    r'|"(?!"")(?:[^"\\\n]++|\\[^\n])*+"'
    r"|'(?!'')[^'\n]*+'"
)
"""Comments and strings, within which nothing counts. Possessive: whatever the text, it is gone through once."""
_WORDS = re.compile(rf"(?:{_CLOSED}|[ \t\r]++)|(?P<open>[\"'])|(?P<dot>\.)|(?P<word>[A-Za-z0-9_+-]++)|(?P<end>[=,\[\]{{}}\n])", re.DOTALL)
_HEADERS = re.compile(rf"(?:{_CLOSED})|(?P<open>[\"'])|^[ \t]*\[\[[ \t]*(?P<table>[A-Za-z0-9_-]+)[ \t]*\]\]", re.DOTALL | re.MULTILINE)
_SCALAR = re.compile(r"[^,\]}\n#]+")


def read_toml(file: Path, *, missing: str = "name one that exists") -> tuple[dict[str, Any], str]:
    """The file as a plain tree, and its text with line ends as `locate_keys` wants them. `missing` is what to do when it is not there.

    Raises:
        ConfigError: it cannot be read, or is not TOML in UTF-8; names the line.
    """
    text = read_text(file, missing=missing)
    return parse_toml(file, text), text


def read_text(file: Path, *, missing: str) -> str:
    """The file's text, for who wants a look at it before `parse_toml` takes its time; errors as for `read_toml`."""
    data = _read_bytes(file, missing)
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}", f"byte {data[error.start]:#04x} is not UTF-8", "save the file as UTF-8") from None


def parse_toml(file: Path, text: str) -> dict[str, Any]:
    """The tree of a text that `read_text` gave; errors as for `read_toml`."""
    _refuse_long(file, text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else max(1, text.rstrip().count("\n") + 1)
        what = _PLACE.sub("", str(error)).removesuffix(" (at end of document)")
        raise ConfigError(f"{file}:{line}", f"not TOML ({what})", "mend this line") from None
    except ValueError:  # Python's own, of a number that it does not want to read
        raise ConfigError(str(file), "holds a number that cannot be read", "write numbers of at most 4300 digits") from None
    except RecursionError:
        raise ConfigError(str(file), "nested too deeply", "settings need four levels at most") from None


def _refuse_long(file: Path, text: str) -> None:
    """Keys and numbers that would take minutes to read, or cannot be."""
    lines = (line for line in text.split("\n") if len(line) > MAX_KEY_DOTS)  # in Python, which takes turns with the loop: one search over all lines does not
    if not any(line.count(".") > MAX_KEY_DOTS or _LONG_WORD.search(line) for line in lines):
        return
    dots = 0
    for found in _WORDS.finditer(text):
        match found.lastgroup:
            case "open":
                return  # no TOML from here on, as tomllib will say
            case "end":
                dots = 0
            case "dot":
                dots += 1
            case "word" if len(found[0]) > MAX_WORD_CHARS:
                wrong = f"a number or name has more than {MAX_WORD_CHARS} characters"
                raise ConfigError(f"{file}:{_line_at(text, found.start())}", wrong, "shorten it")
        if dots > MAX_KEY_DOTS:
            raise ConfigError(f"{file}:{_line_at(text, found.start())}", f"a key has more than {MAX_KEY_DOTS} dots", "shorten it")


def nth_table(text: str, name: str, number: int) -> int | None:
    """The line of the `number`th `[[name]]` of a text that need not be right; None when there are fewer. Tells a huge file in a fraction of its reading."""
    if text.count("[[") < number:
        return None
    for found in _HEADERS.finditer(text):
        if found["open"]:
            return None
        number -= found["table"] == name
        if number == 0:
            return _line_at(text, found.start("table"))
    return None


def _line_at(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def open_regular(file: Path) -> BinaryIO:
    """The file to read from. A pipe or a device, which would keep its reader waiting, is an OSError as what is missing is."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _read_bytes(file: Path, missing: str) -> bytes:
    try:
        with open_regular(file) as stream:
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
        with suppress(RecursionError):  # tomllib was called with a little more room; what was found so far is near enough
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
