"""`answerby topics create|check`: makes and checks the topics on the cluster that the settings name; the work is `streams.topic_admin`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import cyclopts
import msgspec
from rich.console import Console
from rich.table import Table

from agents.cli.config import load_settings
from schemas.errors import SetupError, UsageError
from schemas.settings import Settings
from streams.topic_admin import WAIT_S, Waiting, check_topics, ensure_topics
from streams.topics import TopicReport, specs

app = cyclopts.App(name="topics", help="Create and check the topics.")

Config = Annotated[Path | None, cyclopts.Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")]
Json = Annotated[bool, cyclopts.Parameter(negative="", help="print the report as one line of JSON")]
Wait = Annotated[float, cyclopts.Parameter(help="seconds to wait for a broker")]

_LINE_EVERY_S = 5.0
"""A build's log needs a sign of life, not a line a second."""


@app.command
def create(*, config: Config = None, wait: Wait = WAIT_S, json: Json = False) -> int:
    """Create every topic that is missing, changelogs included; changes nothing that exists.

    Example: answerby topics create --config answerby.toml
    """
    return _run(ensure_topics, config, wait, json)


@app.command
def check(*, config: Config = None, wait: Wait = WAIT_S, json: Json = False) -> int:
    """Check that every topic is there and fits; exit 1 and the command that mends it when not.

    Example: answerby topics check --json
    """
    return _run(check_topics, config, wait, json)


def _run(work: Callable[[Settings, float, Waiting | None], Awaitable[TopicReport]], config: Path | None, wait: float, json: bool) -> int:
    if not 0 <= wait <= 86_400:  # noqa: PLR2004  a day
        msg = f"--wait {wait:g} is not a number of seconds between 0 and 86400"
        raise UsageError(msg)
    settings = load_settings(config)

    async def report() -> TopicReport:
        with _shown(Console(stderr=True)) as waiting:
            return await work(settings, wait, waiting)

    done = asyncio.run(report())
    if json:
        sys.stdout.write(f"{msgspec.json.encode(_as_tree(done)).decode()}\n")
    else:
        _print_report(done, settings)
    if not done.is_fit:
        raise SetupError(done.problem)
    return 0


def _as_tree(report: TopicReport) -> dict[str, object]:
    return {**msgspec.to_builtins(report), "fit": report.is_fit}


def _print_report(report: TopicReport, settings: Settings) -> None:
    table = Table("topic", "partitions", "cleanup", "state", box=None, pad_edge=False)
    wrong = {item.topic: f"has {item.found} partitions" for item in report.mismatches}
    for spec in specs(settings):
        state = "created" if spec.name in report.created else "missing" if spec.name in report.missing else wrong.get(spec.name, "ok")
        table.add_row(spec.name, str(spec.partitions), spec.cleanup, state)
    Console(soft_wrap=True, highlight=False).print(table)
    for warning in report.warnings:
        sys.stderr.write(f"warning: {warning}\n")


@contextmanager
def _shown(console: Console) -> Iterator[Waiting]:
    """One changing line on a terminal, a line now and then elsewhere."""
    if console.is_terminal:
        with console.status("connecting") as status:
            yield lambda waited, bootstrap: status.update(f"waiting for a broker at {bootstrap}, {waited:.0f} s")
        return
    said = -_LINE_EVERY_S

    def say(waited: float, bootstrap: str) -> None:
        nonlocal said
        if waited - said >= _LINE_EVERY_S:
            said = waited
            sys.stderr.write(f"waiting for a broker at {bootstrap}, {waited:.0f} s\n")

    yield say
