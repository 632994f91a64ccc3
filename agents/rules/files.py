"""Rules from the settings and their files, checked, with the line of whatever is wrong; reading them again while the worker runs is `live`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agents.rules.compiled import CompiledRule, Key, compile_rule
from agents.rules.courteous import let_go, let_others_in
from agents.rules.index import MAX_LOOSE_PATTERNS, RuleSet, is_loose
from agents.toml_files import line_of, locate_keys, nth_table, parse_toml, read_text, read_toml
from schemas.errors import ConfigError
from schemas.rules import Rule
from schemas.settings_ladder import Rules
from schemas.settings_tree import explain_rejection, format_path, settings_type


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rule file holds."""

    rules: tuple[Rule, ...]


_FILE = settings_type(RuleFile)


class Problem(msgspec.Struct, frozen=True):
    """One thing to mend: where it stands, what is wrong, what would be right. `line` is None for what no file is known of."""

    file: str | None
    line: int | None
    key: str
    rule: str | None
    wrong: str
    right: str

    def as_error(self, others: int = 0) -> ConfigError:
        """The same as what ends a start."""
        more = f" (and {others} more: `answerby rules check` lists them)" if others else ""
        return ConfigError(self.place, self.wrong, self.right + more)

    @property
    def place(self) -> str:
        """`rules.toml:12: rules[3].match.pattern (rule refund)`."""
        at = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return f"{at}{self.key}{f' (rule {self.rule})' if self.rule else ''}".removesuffix(": ")

    def __str__(self) -> str:
        """One line."""
        return f"{self.place}: {self.wrong}; {self.right}"


@dataclass(slots=True)
class Source:
    """Where rules were written: a file with its text, or the settings, whose text may not be at hand."""

    file: str | None
    text: str | None
    prefix: Key
    """The key of the list: `rules`, or `rules.inline` in messages about settings."""
    _lines: dict[Key, int] | None = field(default=None, repr=False)
    _lines_by_name: dict[str, int] = field(default_factory=dict, repr=False)

    def problem(self, key: Key, wrong: str, right: str, *, rule: str | None = None) -> Problem:
        """Something wrong at `key` of the list."""
        return Problem(self.file, self.line(key), format_path((*self.prefix, *key)), rule, wrong, right)

    def line(self, key: Key) -> int | None:
        """The line of `key` of the list, as near as it is known."""
        lines = self._located()
        if self.text is None:
            return None
        return line_of(lines, ("rules", *key) if ("rules", 0) in lines else ("rules", "inline", *key))

    def line_of_name(self, name: str) -> int | None:
        """The line of a key by its name in messages; None where it is not written."""
        self._located()
        return self._lines_by_name.get(name)

    def _located(self) -> dict[Key, int]:
        """All lines; read only when something is wrong, for most files are right."""
        if self._lines is None:
            self._lines = locate_keys(self.text or "")
            self._lines_by_name = {format_path(key): line for key, line in self._lines.items()}
        return self._lines


@dataclass(frozen=True, slots=True)
class Written:
    """A rule and where it was written."""

    rule: Rule
    source: Source
    index: int


@dataclass(frozen=True, slots=True)
class Read:
    """What reading has found; with problems there is no set."""

    rules: tuple[Written, ...]
    problems: tuple[Problem, ...]
    ruleset: RuleSet


class ReadingStopped(Exception):
    """Raised where reading was told to stop."""


def load_rules(settings: Rules) -> RuleSet:
    """All rules of the settings, ready to match.

    Raises:
        ConfigError: a file is missing or wrong, or a rule is; names file, line, key and what would be right.
    """
    read = read_rules(settings)
    if read.problems:
        raise read.problems[0].as_error(len(read.problems) - 1)
    return read.ruleset


def read_rules(settings: Rules, *, settings_file: Path | None = None, in_pieces: bool = False, stop: threading.Event | None = None) -> Read:
    """The same, with every problem as a value. `settings_file` is where the inline rules stand, when that is known; `in_pieces` as for a RuleSet.

    Raises:
        ReadingStopped: `stop` was set from another thread; it is looked at between two rules.
    """
    written: list[Written] = []
    problems: list[Problem] = []
    source = _settings_source(settings_file) if settings.inline else Source(None, None, ())
    written += [Written(rule, source, index) for index, rule in enumerate(settings.inline)]
    left = settings.max_rules - len(written)
    if left < 0:
        return _too_many(settings.max_rules, None, None)
    for name in settings.files:
        _let_others_in(stop)
        found = _read_file(Path(name), left, stop)
        if isinstance(found, _TooMany):
            return _too_many(settings.max_rules, name, found.line)
        left -= found.entries
        written += found.written
        problems += found.problems
    compiled = _compile(written, problems, stop)
    if problems:
        let_go(compiled)
    order = {name: place for place, name in enumerate((None, *settings.files))}
    problems.sort(key=lambda problem: (order.get(problem.file, 0), problem.line or 0))
    return Read(tuple(written), tuple(problems), RuleSet(compiled, text_chars=settings.text_chars, in_pieces=in_pieces))


def _too_many(most: int, file: str | None, line: int | None) -> Read:
    """Told alone: none of the rules was looked at, for that could take minutes."""
    problem = Problem(file, line, "rules.max_rules", None, f"there are more than {most} rules", "raise it, or write fewer")
    return Read((), (problem,), RuleSet())


def _let_others_in(stop: threading.Event | None) -> None:
    """The event loop, and whoever stops the reading."""
    let_others_in()
    if stop is not None and stop.is_set():
        raise ReadingStopped


def _settings_source(file: Path | None) -> Source:
    prefix: Key = ("rules", "inline")
    if file is None:
        return Source(None, None, prefix)
    tree, text = read_toml(file)
    return Source(str(file), text, ("rules",) if isinstance(tree.get("rules"), list) else prefix)


class _TooMany(msgspec.Struct, frozen=True):
    """A file has more rules than are left; at which line they begin, when that is known."""

    line: int | None


@dataclass(frozen=True, slots=True)
class _Found:
    """What is in one file: its rules, what is wrong, and how many entries that were, right or wrong."""

    written: Sequence[Written]
    problems: Sequence[Problem]
    entries: int = 0


def _read_file(file: Path, most: int, stop: threading.Event | None) -> _Found | _TooMany:
    try:
        text = read_text(file, missing="name one that exists, relative to the settings file")
        if (line := nth_table(text, "rules", most + 1)) is not None:
            return _TooMany(line)
        tree = parse_toml(file, text)
    except ConfigError as error:
        wrong, _, right = str(error).removeprefix(f"{error.key}: ").partition("; ")
        at = error.key.removeprefix(f"{file}:")
        return _Found((), [Problem(str(file), int(at) if at.isdecimal() else None, "", None, wrong, right)])
    source = Source(str(file), text, ("rules",))
    entries = tree.get("rules")
    extra = next((key for key in tree if key != "rules"), None)
    if extra is not None:
        right = "a rule file holds [[rules]] alone; settings are given by -c"
        return _Found((), [Problem(str(file), source.line_of_name(extra), extra, None, "unknown key", right)])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return _Found((), [source.problem((), "no rules", "write [[rules]] entries")])
    if len(entries) > most:
        return _TooMany(None)
    return _convert(entries, tree, source, stop)


def _convert(entries: list[dict[str, Any]], tree: dict[str, Any], source: Source, stop: threading.Event | None) -> _Found:
    written: list[Written] = []
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        _let_others_in(stop)
        try:
            written.append(Written(msgspec.convert(entry, Rule), source, index))
        except msgspec.ValidationError as error:
            problems.append(_rejected(source, index, entry, tree, str(error)))
        else:
            entries[index] = {}  # let go one by one: the whole tree at once would hold the interpreter
    return _Found(written, problems, len(entries))


def _rejected(source: Source, index: int, entry: dict[str, Any], tree: dict[str, Any], rejection: str) -> Problem:
    """What msgspec says of one entry, as said of settings, with its line."""
    what, _, place = rejection.partition(" - at `$")
    error = explain_rejection(_FILE, tree, f"{what} - at `$.rules[{index}]{place or '`'}")
    wrong, _, right = str(error).removeprefix(f"{error.key}: ").partition("; ")
    name = entry.get("name")
    line = source.line_of_name(error.key) or source.line((index,))
    return Problem(source.file, line, error.key, name if isinstance(name, str) else None, wrong, right)


def _compile(written: Sequence[Written], problems: list[Problem], stop: threading.Event | None) -> list[CompiledRule]:
    compiled: list[CompiledRule] = []
    first: dict[str, Written] = {}
    loose = 0
    for entry in written:
        _let_others_in(stop)
        rule, source = entry.rule, entry.source
        found = compile_rule(rule)
        if isinstance(found, list):
            problems += [source.problem((entry.index, *problem.key), problem.wrong, problem.right, rule=rule.name) for problem in found]
            continue
        compiled.append(found)
        if rule.name in first:
            problems.append(_named_twice(entry, first[rule.name]))
        first.setdefault(rule.name, entry)
        loose += is_loose(found)
        if is_loose(found) and loose > MAX_LOOSE_PATTERNS:
            wrong = f"more than {MAX_LOOSE_PATTERNS} patterns without a fixed piece of text make every match slow"
            problems.append(source.problem((entry.index, "match", "pattern"), wrong, "add a keyword (match.any) to this rule", rule=rule.name))
    return compiled


def _named_twice(entry: Written, before: Written) -> Problem:
    other = before.source
    place = f"{other.file or 'the settings'}{f', line {line}' if (line := other.line((before.index, 'name'))) else ''}"
    return entry.source.problem((entry.index, "name"), f"{entry.rule.name!r} is there twice (before: {place})", "give each rule its own name")
