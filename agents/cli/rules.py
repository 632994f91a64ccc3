"""`answerby rules check|test`: whether rules are right, and whether they do what their examples say; the rules' meaning is `agents.rules`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
import msgspec

from agents.cli.config import load_with_origins
from schemas.errors import UsageError
from schemas.settings_ladder import Rules

if TYPE_CHECKING:
    from agents.rules.files import Read

app = cyclopts.App(name="rules", help="Check rules, and run their examples.")

File = Annotated[Path, cyclopts.Parameter(help="rule files, as rules.files names them; none: the rules of the settings")]
Config = Annotated[Path | None, cyclopts.Parameter(name=["--config", "-c"], help="settings file; default: answerby.toml here, when there is one")]
Json = Annotated[bool, cyclopts.Parameter(name="--json", negative="", help="print JSON")]

WRONG_RULES = 2
"""Exit code: wrong rules are a wrong configuration."""


@app.command
def check(*files: File, config: Config = None, json: Json = False) -> int:
    """Check rules: exit 0 when all are right, else 2 and a line for everything that is to be mended.

    Example: answerby rules check rules.toml
    """
    read = _read(files, config)
    if json:
        _print_json({"ok": not read.problems, "rules": len(read.rules), "problems": read.problems})
    elif not read.problems:
        sys.stdout.write(f"ok: {_count(len(read.rules), 'rule')}\n")
    else:
        _complain(read)
    return WRONG_RULES if read.problems else 0


@app.command(name="test")
def run_own_examples(*files: File, config: Config = None, json: Json = False) -> int:
    """Ask every rule its own examples: exit 0 when all come out as written, 1 when some do not, 2 when the rules are wrong.

    Example: answerby rules test rules.toml
    """
    from agents.rules.examples import run_examples

    read = _read(files, config)
    if read.problems:
        if json:
            _print_json({"ok": False, "rules": len(read.rules), "problems": read.problems})
        else:
            _complain(read)
        return WRONG_RULES
    outcome = run_examples(read)
    if json:
        _print_json({"ok": not outcome.failures, "rules": len(read.rules), **msgspec.to_builtins(outcome)})
        return 1 if outcome.failures else 0
    for failure in outcome.failures:
        sys.stdout.write(f"{failure}\n")
    without = f"; {_count(len(outcome.without), 'rule')} without any" if outcome.without else ""
    said = "failed" if outcome.failures else "ok"
    sys.stdout.write(f"{said}: {outcome.passed} of {_count(outcome.passed + len(outcome.failures), 'example')} as written{without}\n")
    return 1 if outcome.failures else 0


def _read(files: tuple[Path, ...], config: Path | None) -> Read:
    """The rules that are meant: of the files, or of the settings with all their files.

    Raises:
        UsageError: both are named, or neither has rules.
        ConfigError: the settings are wrong.
    """
    from agents.rules.files import read_rules

    if files and config is not None:
        msg = "rule files and -c at once: name the files, or the settings that name them"
        raise UsageError(msg)
    if files:
        return read_rules(Rules(files=tuple(str(file) for file in files)))
    loaded = load_with_origins(config)
    rules = loaded.settings.rules
    if not rules.files and not rules.inline:
        msg = "no rules: name a rule file, or give -c with settings that have rules.files or [[rules]]"
        raise UsageError(msg)
    inline_in_file = loaded.file if any(key.startswith("rules.inline") and came == str(loaded.file) for key, came in loaded.origins.items()) else None
    return read_rules(rules, settings_file=inline_in_file)


def _complain(read: Read) -> None:
    for problem in read.problems:
        sys.stderr.write(f"error: {' '.join(str(problem).split())}\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
