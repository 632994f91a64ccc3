"""`answerby sessions show|export|forget`: what is remembered of a session or a person, and the end of it; the work is `agents.memory.archive`."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.errors import SetupError, UsageError
from schemas.events import DEFAULT_TENANT

if TYPE_CHECKING:
    from agents.memory.archive import Forgotten, Wanted

app = cyclopts.App(name="sessions", help="Show, export and forget what is remembered.")

WAIT_S = 30.0
"""For the workers to erase: a rebalance or a restart among them takes less."""

Config = Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")]
Tenant = Annotated[str, Parameter(help="whose session or person it is")]
Subject = Annotated[str | None, Parameter(help="a person, with all their sessions, instead of one session")]
Session = Annotated[str | None, Parameter(help="session id")]
Json = Annotated[bool, Parameter(negative="", help="print one line of JSON")]


@app.command
def show(session: str, /, *, tenant: Tenant = DEFAULT_TENANT, json: Json = False, config: Config = None) -> int:
    """Show what is kept of one session, read from Kafka; no worker is needed. Exit 1 when there is nothing.

    Example: answerby sessions show session-17
    """
    tree = _read(config, _wanted(tenant, session, None))
    found = next(iter(tree["sessions"]), None)
    if found is None:
        raise _nothing_kept(_wanted(tenant, session, None))
    if json:
        _print_json({"tenant": tenant, **found})
    else:
        _print_session(found)
    return 0


@app.command
def export(session: Session = None, /, *, subject: Subject = None, tenant: Tenant = DEFAULT_TENANT, config: Config = None) -> int:
    """Print all that is kept of a session or a person as one line of JSON, texts included. Exit 1 when there is nothing.

    Example: answerby sessions export --subject ann > ann.json
    """
    wanted = _wanted(tenant, session, subject)
    tree = _read(config, wanted)
    if not tree["sessions"] and not tree["persons"]:
        raise _nothing_kept(wanted)
    _print_json(tree)
    return 0


@app.command
def forget(
    session: Session = None,
    /,
    *,
    subject: Subject = None,
    tenant: Tenant = DEFAULT_TENANT,
    wait: Annotated[float, Parameter(help="seconds to wait for the workers to erase")] = WAIT_S,
    json: Json = False,
    config: Config = None,
) -> int:
    """Erase a person with all their sessions, or one session, from tables, changelogs, caches and data directories, and check that it is gone.

    Names the topics that still hold what was said, and until when. Exit 1 while something is left (run it again with a worker running), and when nothing
    was kept; caches are told in either case.

    Example: answerby sessions forget --subject ann
    """
    from agents.memory.archive import forget as erase

    wanted = _wanted(tenant, session, subject)
    if not 0 <= wait <= 86_400:  # noqa: PLR2004  a day
        msg = f"--wait {wait:g} is not a number of seconds between 0 and 86400"
        raise UsageError(msg)
    done = asyncio.run(erase(load_settings(config), wanted, wait_s=wait, tell=lambda text: _tell(wanted, text)))
    if json:
        _print_json(msgspec.to_builtins(done))
    elif done.is_something:
        _print_forgotten(done, wanted)
    if not done.is_something:
        raise _nothing_kept(wanted)
    if done.left:
        msg = f"{done.left} records of {wanted.name} are still there: no worker has erased them yet; start one and run this again"
        raise SetupError(msg)
    return 0


def _tell(wanted: Wanted, text: str) -> None:
    sys.stderr.write(f"erasing {wanted.name}: {text}\n")


def _wanted(tenant: str, session: str | None, subject: str | None) -> Wanted:
    from agents.memory.archive import Wanted

    if (session is None) == (subject is None):
        msg = "name either a session or --subject"
        raise UsageError(msg)
    for name, given in (("the session", session), ("--subject", subject), ("--tenant", tenant)):
        if given is not None and not given.strip():
            msg = f"{name} is empty: name whose memory is meant"
            raise UsageError(msg)
    return Wanted(tenant, session, subject)


def _nothing_kept(wanted: Wanted) -> SetupError:
    return SetupError(f"nothing is kept of {wanted.name} of tenant {wanted.tenant!r}: check both, and kafka.topic_prefix and app.id")


def _read(config: Path | None, wanted: Wanted) -> dict[str, Any]:
    from agents.memory.archive import as_tree, find

    settings = load_settings(config)
    return as_tree(settings, wanted, asyncio.run(find(settings, wanted)))


def _print_json(tree: Any) -> None:
    sys.stdout.write(f"{msgspec.json.encode(tree).decode()}\n")


def _print_session(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from agents.cli.answer_view import plain_line

    console = Console(highlight=False, soft_wrap=True)
    state = found["session"] or {}

    def line(label: str, text: str) -> None:
        console.print(Text(f"  {label:9} ", "bright_black").append(plain_line(text), "default"))

    console.print(Text(plain_line(f"session {found['session_id']}, partition {found['partition']}, last used {_time(found.get('last_used_ms'))}"), "bold"))
    if found.get("subjects"):
        line("persons", ", ".join(found["subjects"]))
    for turn in state.get("turns", ()):
        console.print(Text(plain_line(f"{_time(turn.get('at_ms'))} · {turn.get('outcome')} · {turn.get('event_id')}"), "bright_black"))
        line("said", str(turn.get("user") or ""))
        line("answered", str(turn.get("reply") or ""))
    for fact in state.get("facts", {}).get("facts", ()):
        line("fact", _fact_text(fact))
    for label, decisions in (("waiting", state.get("pending", ())), ("decided", state.get("decisions", ()))):
        for decision in decisions:
            line(label, f"{decision.get('text')} · {decision.get('event_id')}")
    for name, value in state.items():
        if name not in ("turns", "v", "facts", "pending", "decisions") and value not in (None, {}, [], 0):
            line(name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
    console.print(Text(f"{len(found['answers'])} answers kept for repeated events"))


def _fact_text(fact: dict[str, Any]) -> str:
    """`name = Ann, since 2026-11-30 …`, with what it was before."""
    name = " ".join(str(part) for part in (fact.get("slot"), fact.get("key")) if part)
    before = [_value_text(past) for past in fact.get("history", ())]
    was = f"; before: {', '.join(before)}" if before else ""
    return f"{name} = {_value_text(fact)}, since {_time(fact.get('at_ms'))}{was}"


def _value_text(fact: dict[str, Any]) -> str:
    value = fact.get("value")
    if not isinstance(value, dict):
        return str(value)
    kind, parts = value.get("type"), {name: part for name, part in value.items() if name != "type" and part not in (None, "")}
    if kind == "yes_no":
        shown = "yes" if parts.get("yes") else "no"
    elif kind == "date":
        shown = ", ".join(f"{name} {part}" for name, part in parts.items())
    else:
        shown = " ".join(str(part) for part in parts.values())
    return f"not {shown}" if fact.get("denied") else shown


def _print_forgotten(done: Forgotten, wanted: Wanted) -> None:
    lines = [f"{wanted.name}: {len(done.sessions)} sessions, {done.answers} kept answers, {done.person_records} records of persons erased, {done.left} left"]
    if done.shared_answers:
        lines.append(f"cache.shared: {done.shared_answers} answers deleted, of everybody")
    lines.append(f"the changelogs' files lose the bytes by {_time(done.compacted_by_ms)} at the latest")
    lines += [f"{held.topic} may hold what was said until {_time(held.until_ms) if held.until_ms else 'it is deleted by hand'}" for held in done.held]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _time(at_ms: int | None) -> str:
    return "?" if not at_ms else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
