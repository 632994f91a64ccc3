"""TOML files: errors by line, and the line of every key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from agents.cli.config_text import render_template
from agents.toml_files import MAX_FILE_BYTES, line_of, locate_keys, read_toml
from schemas.errors import ConfigError
from schemas.settings_tree import Path as Key

TEXT = '''# a comment with [[rules]] and "quotes
title = "with \\" and ]"
a.b = [1, 2,
  { x = "}", 'y z' = """
[[rules]]
name = "not a rule"
""""" }, ]

[[rules]]
name = "one"   # [[rules]]
match = { any = ["[[rules]]", 'b'], state = { "a.b" = 1, c.d = {min = 1} } }
answer.en = \'\'\'
it's [[rules]]
\'\'\'
[rules.answer2]
en = "s"
"zh-\\u0041" = 's'

[[rules]]
[[rules.examples]]
text = "a"
[[rules.examples]]
text = 1979-05-27T07:32:00Z
[other."x.y"]
z = true
'''


def paths(tree: Any, at: Key = ()) -> list[Key]:
    """Every key and entry of a plain tree."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path for key, value in entries for path in ((*at, key), *paths(value, (*at, key)))]


def test_every_key_has_its_line() -> None:
    """Strings that look like headers, nested tables, lists and comments do not lead astray."""
    lines = locate_keys(TEXT)
    assert sorted(map(repr, lines)) == sorted(map(repr, paths(tomllib.loads(TEXT))))
    written = TEXT.splitlines()
    for key, line in lines.items():
        name = str(key[-1])
        if not isinstance(key[-1], int) and name not in ("zh-A", "rules", "examples"):
            assert name in written[line - 1], (key, line)
    assert [lines["rules", 0], lines["rules", 1], lines["rules", 1, "examples", 1]] == [9, 19, 22]
    assert [lines["a", "b", 2, "y z"], lines["rules", 0, "match", "state", "a.b"], lines["rules", 0, "answer2", "zh-A"]] == [4, 11, 17]


def test_settings_template_is_located() -> None:
    """Real files hold more than tests think of: the written defaults are located key by key."""
    text = render_template()
    assert sorted(map(repr, locate_keys(text))) == sorted(map(repr, paths(tomllib.loads(text))))


def test_missing_key_has_the_line_around_it() -> None:
    """What is not written is told by the entry that it should be in."""
    lines = locate_keys(TEXT)
    assert line_of(lines, ("rules", 1, "answer", "en")) == 19
    assert line_of(lines, ("nothing",)) == 1


def test_file_is_read_with_its_text(tmp_path: Path) -> None:
    """A byte order mark and Windows' line ends are no obstacle."""
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert read_toml(file) == ({"a": 1, "b": 2}, "a = 1\nb = 2\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = [1,\n", ":2: not TOML"),
        (b"a = 1\r\nb = \xff\n", ":2: byte 0xff is not UTF-8"),
        (b"a = " + b"[" * 5000, ": nested too deeply"),
        (b"#" * (MAX_FILE_BYTES + 1), ": is larger than 16 MiB"),
    ],
)
def test_wrong_file_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    """The error begins with the file, and the line where there is one."""
    file = tmp_path / "a.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(file)
    assert str(caught.value).startswith(f"{file}{message}")
    assert "\n" not in str(caught.value)


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    """Who reads a file knows how one gets it."""
    with pytest.raises(ConfigError, match=r"none\.toml: no such file; write one"):
        read_toml(tmp_path / "none.toml", missing="write one")
