"""TOML files: errors by line, and the line of every key."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agents.cli.config_text import render_template
from agents.toml_files import MAX_FILE_BYTES, MAX_KEY_DOTS, MAX_WORD_CHARS, line_of, locate_keys, nth_table, read_toml
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
        (b"a = 1\nb = " + b"9" * 5000, f":2: a number or name has more than {MAX_WORD_CHARS} characters; shorten it"),
        (b"a = 1\nb = 0x" + b"f" * 5000, f":2: a number or name has more than {MAX_WORD_CHARS} characters; shorten it"),
        (b"a = 1\nb = " + b"9_" * 5000 + b"9", f":2: a number or name has more than {MAX_WORD_CHARS} characters; shorten it"),
        (b"a = 1\nb" + b".b" * 1_000_000 + b" = 1", f":2: a key has more than {MAX_KEY_DOTS} dots; shorten it"),
        (b"a = 1\n[b" + b" . 'b'" * 8000 + b"]", f":2: a key has more than {MAX_KEY_DOTS} dots; shorten it"),
        (b"a = 1\nc = { x = 1, b" + b".b" * 8000 + b" = 1 }", f":2: a key has more than {MAX_KEY_DOTS} dots; shorten it"),
        (b'a = 1\nc = """\n"""" # """\nb' + b".b" * 8000 + b" = 1", f":4: a key has more than {MAX_KEY_DOTS} dots; shorten it"),
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


@pytest.mark.parametrize(
    "text",
    [
        "a = [" + "1.5, " * 1000 + "]",
        "a = '" + "." * 1000 + "' # " + "." * 1000,
        'a = """\n' + "." * 1000 + "9" * 5000 + '\n"""',
        "b" + ".b" * MAX_KEY_DOTS + " = " + "9" * MAX_WORD_CHARS,
    ],
)
def test_dots_and_digits_elsewhere_are_no_matter(tmp_path: Path, text: str) -> None:
    """Only what is slow or impossible to read is refused, not texts or lists of numbers."""
    file = tmp_path / "a.toml"
    file.write_text(text, encoding="utf-8")
    assert read_toml(file) == (tomllib.loads(text), text)


def test_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """Nobody waits for a writer who never comes."""
    os.mkfifo(tmp_path / "a.toml")
    with pytest.raises(ConfigError, match=r"a\.toml: cannot be read \(not a regular file\); name a readable file"):
        read_toml(tmp_path / "a.toml")


def test_tables_are_counted_before_they_are_read() -> None:
    """The line of the table that is one too many; strings, comments and tables within are not taken for one."""
    assert [nth_table(TEXT, "rules", number) for number in range(1, 4)] == [9, 19, None]
    assert nth_table("[[rules]]\n" * 3 + 'x = "open\n[[rules]]', "rules", 4) is None


def test_lines_of_deep_nesting_are_as_near_as_they_are_known() -> None:
    """What can just be read is not an error when its line is asked for."""
    lines = locate_keys("a = 1\nb = " + "[" * 5000 + "]" * 5000)
    assert line_of(lines, ("b", 0, 0)) == 2


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    """Who reads a file knows how one gets it."""
    with pytest.raises(ConfigError, match=r"none\.toml: no such file; write one"):
        read_toml(tmp_path / "none.toml", missing="write one")
