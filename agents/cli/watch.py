"""`answerby watch`: prints answers, and dead letters when asked, as they come; one event and its answer is `send`."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.dead_letters import HEADER_PREFIX
from schemas.errors import UsageError
from schemas.settings import Settings
from streams.topics import Topics

if TYPE_CHECKING:
    from rich.console import Console

    from streams.clients import Record


def watch(
    *,
    dead_letters: Annotated[bool, Parameter(negative="", help="show what could not be answered, too")] = False,
    from_start: Annotated[bool, Parameter(negative="", help="begin with the oldest answers that Kafka still has")] = False,
    limit: Annotated[int | None, Parameter(help="stop after so many records [default: on Ctrl-C]")] = None,
    json: Annotated[bool, Parameter(negative="", help="print each record as one line of JSON")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Print answers as they come, each with a bar of its stages against the deadline, until Ctrl-C.

    Older answers, with --from-start, come with the time at which they were given; a session's are in order, different sessions' are not.

    Example: answerby watch --dead-letters
    Example: answerby watch --from-start --json --limit 100
    """
    if limit is not None and limit < 1:
        msg = f"--limit {limit} is not a number of records: use 1 or more"
        raise UsageError(msg)
    try:
        asyncio.run(_watch(load_settings(config), dead_letters, from_start, limit, json))
    except KeyboardInterrupt:  # how a watch is meant to end
        return 0
    return 0


async def _watch(settings: Settings, dead_letters: bool, from_start: bool, limit: int | None, json: bool) -> None:
    from rich.console import Console

    from streams.clients import Tail

    names = Topics.of(settings)
    console = Console(highlight=False, soft_wrap=True)
    seen = 0
    async with Tail(settings, [names.responses, *([names.dead_letters] if dead_letters else [])], from_start=from_start) as tail:
        sys.stderr.write(f"watching {names.responses} at {settings.kafka.bootstrap}; Ctrl-C ends\n")
        async for record in tail:
            if json:
                sys.stdout.write(f"{msgspec.json.encode(_as_tree(record, names)).decode()}\n")
                sys.stdout.flush()
            else:
                _show(record, names, console)
            seen += 1
            if seen == limit:
                return


def _as_tree(record: Record, names: Topics) -> dict[str, Any]:
    if record.topic == names.responses:
        return record.decode()
    return {
        "dead_letter": {name.removeprefix(HEADER_PREFIX): value.decode("utf-8", "replace") for name, value in record.headers if name.startswith(HEADER_PREFIX)},
        "key_base64": None if record.key is None else base64.b64encode(record.key).decode(),
        "value_base64": None if record.value is None else base64.b64encode(record.value).decode(),
    }


def _show(record: Record, names: Topics, console: Console) -> None:
    from agents.cli.answer_view import answer_line, dead_letter_line, reasons

    when = _clock_text(record.timestamp_ms / 1000, time.time())
    if record.topic == names.responses:
        console.print(answer_line(when, record.decode(), console.width))
    else:
        console.print(dead_letter_line(when, reasons(record.headers, HEADER_PREFIX), record.value, console.width))


def _clock_text(at: float, now: float) -> str:
    """The time of day, with the date when that is another one; both in Unix seconds."""
    then = time.localtime(at)
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime(now)[:3] else "%Y-%m-%d %H:%M:%S", then)
