"""`answerby explain`: finds the answer to one event and shows its way down the ladder, rung by rung; answers as they come are `watch`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.errors import SetupError, UsageError
from schemas.events import DEFAULT_TENANT
from schemas.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

    from streams.lookup import Found, Wanted

TIMEOUT_S = 30.0
"""Reads about a million records of a local broker; a larger log needs --session, or a longer time-out."""

_LEAST_S = 1.0
"""For the further searches when the first has used all the time; at worst explain takes three seconds longer than --timeout-s."""

HIDDEN = ("text", "data", "metadata")
"""What a person may have said or been told: not shown unless asked for."""


def explain(
    event_id: Annotated[str, Parameter(help="the event whose answer is meant")],
    /,
    *,
    session: Annotated[str | None, Parameter(help="its session: finds it sooner, and tells apart events of one id")] = None,
    tenant: Annotated[str | None, Parameter(help="its tenant")] = None,
    texts: Annotated[bool, Parameter(negative="", help="show the answer's text and data, and the event's metadata")] = False,
    timeout_s: Annotated[float, Parameter(help="longest search, in seconds")] = TIMEOUT_S,
    json: Annotated[bool, Parameter(negative="", help="print the response as one line of JSON")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Find an event's response on the log and show which rungs were tried, how long each took, and what was left of the budget.

    Example: answerby explain order-17 --session s-1
    """
    if timeout_s <= 0:
        msg = f"--timeout-s {timeout_s:g} leaves no time to search: use a number above 0"
        raise UsageError(msg)
    from streams.lookup import Wanted

    wanted = Wanted(event_id, session, tenant)
    found = asyncio.run(_find(load_settings(config), wanted, timeout_s))
    response = found.response if texts else {name: value for name, value in found.response.items() if name not in HIDDEN}
    if json:
        place = {"topic": found.record.topic, "partition": found.record.partition, "offset": found.record.offset}
        sys.stdout.write(f"{msgspec.json.encode({**response, 'place': place, 'left_ms': left_ms(response)}).decode()}\n")
    else:
        _show(found, response)
    if found.others:
        named = ", ".join(f"{name} (tenant {whose})" for whose, name in found.others[:5])
        sys.stderr.write(f"other sessions have an event of this id: {named}; name one with --session and --tenant\n")
    return 0


async def _find(settings: Settings, wanted: Wanted, timeout_s: float) -> Found:
    from streams.lookup import Found, NotFound, find_response

    told, began = sys.stderr.isatty(), time.monotonic()

    def progress(read: int, total: int) -> None:
        if told:
            sys.stderr.write(f"\rsearched {read:,} of {total:,} records")
            sys.stderr.flush()

    found = await find_response(settings, wanted, timeout_s=timeout_s, progress=progress)
    if told:
        sys.stderr.write("\r\x1b[K")
    match found:
        case Found():
            return found
        case NotFound(read, total) if read < total:
            msg = f"no response to {wanted.event_id} in the newest {read:,} of {total:,} records: add --session, or a longer --timeout-s than {timeout_s:g}"
            raise SetupError(msg)
        case NotFound():
            raise await _why_missing(settings, wanted, found.total, max(began + timeout_s - time.monotonic(), _LEAST_S))


async def _why_missing(settings: Settings, wanted: Wanted, total: int, timeout_s: float) -> SetupError:
    """A dead letter, or another session's: what a person who knows the id can have meant."""
    from streams.lookup import Found, Wanted, find_dead_letter, find_response, read_dead_letter

    event_id, anywhere = wanted.event_id, Wanted(wanted.event_id)
    letter = await find_dead_letter(settings, wanted, timeout_s=timeout_s)
    if isinstance(letter, Found):
        said, record = read_dead_letter(letter.record), letter.record
        stood = f"{said.topic}[{said.partition}]@{said.offset}"
        return SetupError(
            f"{event_id} became a dead letter ({said.reason}: {said.detail}): {stood}, kept as {record.topic}[{record.partition}]@{record.offset}"
        )
    if wanted != anywhere:
        for elsewhere in (await find_response(settings, anywhere, timeout_s=timeout_s), await find_dead_letter(settings, anywhere, timeout_s=timeout_s)):
            if isinstance(elsewhere, Found):
                session, tenant = elsewhere.response.get("session_id"), elsewhere.response.get("tenant", DEFAULT_TENANT)
                return SetupError(f"no such {event_id}, but session {session} of tenant {tenant} has one: use --session {session} --tenant {tenant}")
    return SetupError(f"no response to {event_id} in {total:,} records, and no dead letter: check the id; what is older than the topics keep is gone")


def left_ms(response: dict[str, Any]) -> float:
    """What was left of the budget when the bytes were fixed; negative: so much too late."""
    deadline = response["deadline"]
    return float(deadline["due_at_ms"]) - float(deadline["answered_at_ms"])


def _show(found: Found, response: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from agents.cli.answer_view import legend, outcome_text, plain_line, plain_text, stage_bar, stage_list

    console = Console(highlight=False, soft_wrap=True)
    deadline, model, usage = response["deadline"], response["model"], response["usage"]
    who = f"{response['kind']} {response['event_id']} of session {response['session_id']}, tenant {response['tenant']}"
    console.print(Text(plain_line(who), "bold"))
    console.print(outcome_text(response).append(" · degraded" if response["degraded"] else "", "yellow").append(_writer(model, usage), "bright_black"))
    left = left_ms(response)
    kept = f"{left:.0f} ms left" if left >= 0 else f"{-left:.0f} ms late"
    met = "met" if deadline["met"] else "not met"
    console.print(f"budget {deadline['budget_ms']:.0f} ms · taken {response['latency_ms']['total']:.1f} ms · {kept} · deadline {met}")
    console.print(stage_bar(response, 40).append(f" {stage_list(response)}", "bright_black"))
    console.print(legend())
    console.print(_way_down(response) if response["rungs"] else Text("no rung was asked: this needed no answer from the ladder", "bright_black"))
    console.print(Text(f"{found.record.topic}[{found.record.partition}]@{found.record.offset}", "bright_black"))
    if response.get("text"):
        console.print(Text(plain_text(str(response["text"]))))
    for name in ("data", "metadata"):
        if response.get(name):
            console.print(Text(f"{name} {plain_line(msgspec.json.encode(response[name]).decode())}"))


def _writer(model: dict[str, Any] | None, usage: dict[str, Any]) -> str:
    if model is None:
        return ""
    read = f"{usage['prompt_tokens']} tokens read ({usage['cached_tokens']} cached)"
    return f" · {model['name']} {model['version']} · {read}, {usage['completion_tokens']} written"


def _way_down(response: dict[str, Any]) -> Table:
    """The rungs from the best one down, as they were tried."""
    from rich.table import Table
    from rich.text import Text

    from agents.cli.answer_view import plain_line

    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("rung")
    table.add_column("verdict")
    table.add_column("ms", justify="right")
    table.add_column("why")
    styles = {"answered": "green", "failed": "red", "cut": "yellow", "skipped": "bright_black"}
    for step in response["rungs"]:
        verdict, ms = str(step["verdict"]), f"{float(step['ms']):.1f}"
        table.add_row(plain_line(str(step["rung"])), Text(verdict, styles.get(verdict, "cyan")), ms, Text(plain_line(str(step["why"]))))
    return table
