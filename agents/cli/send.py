"""`answerby send`: one event in, its answer out; many events with their own timing are `demo`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.dead_letters import Undecodable
from schemas.errors import SetupError, UsageError
from schemas.events import InteractionEvent, Kind
from schemas.settings import Settings
from streams.codecs import Encoding, decode_event
from streams.topics import Topics

if TYPE_CHECKING:
    from streams.clients import Record, Sent, Tail
    from streams.lookup import DeadLetter

GRACE_S = 5.0
"""Beyond the event's own budget: a worker that has just started, or is rebalancing, answers within this; without any worker we wait no longer."""

NEED_REF = ("confirm", "cancel", "feedback")
"""Kinds that are about another event; without one they are acknowledged and do nothing."""

_WAY_OUT = {"conflict": ": use another --event-id"}


def send(
    text: Annotated[str | None, Parameter(help="what the person said; may be left out for kinds that say nothing")] = None,
    /,
    *,
    session: Annotated[str, Parameter(help="whose event it is; one session's events are answered in order")] = "cli",
    tenant: Annotated[str | None, Parameter(help="isolation of sessions")] = None,
    kind: Annotated[Kind, Parameter(help="what happened")] = "message",
    deadline_ms: Annotated[float | None, Parameter(help="budget [default: deadline.default_ms]")] = None,
    locale: Annotated[str | None, Parameter(help="BCP 47 [default: session.locale]")] = None,
    scenario: Annotated[str | None, Parameter(help="which allowed use this is")] = None,
    max_tokens: Annotated[int | None, Parameter(help="longest answer")] = None,
    state: Annotated[str | None, Parameter(help="external state as JSON, such as '{\"order\": 17}'")] = None,
    ref: Annotated[str | None, Parameter(help="the event meant, for confirm, cancel and feedback")] = None,
    decline: Annotated[bool, Parameter(negative="", help="for confirm: the decision is not to be carried out")] = False,
    subject: Annotated[str | None, Parameter(help="the person, over all their sessions")] = None,
    store_history: Annotated[bool, Parameter(negative="", help="the person agrees that what they say is kept")] = False,
    event_id: Annotated[str | None, Parameter(help="a repeated one gets the same answer again [default: a new one]")] = None,
    encoding: Annotated[Literal["msgpack", "json"], Parameter(help="of the event, and so of its answer")] = "msgpack",
    json: Annotated[bool, Parameter(negative="", help="print the whole response as one line of JSON")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Send one event and print its answer, with where the time went; exit 1 when none came.

    Example: answerby send "What is the capital of France?" --deadline-ms 800
    Example: answerby send --kind confirm --session s-1 --ref order-17 --decline
    """
    _refuse_pointless(kind, ref, decline, deadline_ms)
    settings = load_settings(config)
    fields = {
        "event_id": event_id or f"cli-{uuid.uuid4()}",
        "session_id": session,
        "tenant": tenant,
        "subject": subject,
        "consent": {"store_history": True} if store_history else None,
        "kind": kind,
        "text": text,
        "locale": locale,
        "scenario": scenario,
        "deadline_ms": deadline_ms,
        "ref": ref,
        "accept": False if decline else None,
        "state": None if state is None else _parse_state(state),
        "answer": None if max_tokens is None else {"max_tokens": max_tokens},
    }
    tree = {name: value for name, value in fields.items() if value is not None}
    event = _checked(tree, settings)
    wait_s = _budget_ms(event, settings) / 1000 + GRACE_S
    answer = asyncio.run(_ask(settings, tree, encoding, wait_s))
    if answer is None:
        msg = f"no answer within {wait_s:.1f} s from {settings.kafka.bootstrap}: is a worker running? Start one with `answerby worker`"
        raise SetupError(msg)
    response = answer.decode()
    if json:
        sys.stdout.write(f"{msgspec.json.encode(response).decode()}\n")
    else:
        _show(response)
    return 0


async def _ask(settings: Settings, event: dict[str, Any], encoding: Encoding, wait_s: float) -> Record | None:
    """Its answer; None when none came.

    Raises:
        SetupError: it became a dead letter.
    """
    from streams.clients import AnswerClient, Tail

    async with Tail(settings, [Topics.of(settings).dead_letters]) as letters, AnswerClient(settings) as client:
        sent = await client.send(event, encoding)
        answer = asyncio.create_task(client.answer_to(sent, wait_s))
        letter = asyncio.create_task(_letter_of(letters, sent))
        try:
            await asyncio.wait((answer, letter), return_when=asyncio.FIRST_COMPLETED)  # bounded by `answer`
            if answer.done():
                return answer.result()
            why = letter.result()
            msg = f"{sent.event_id} became a dead letter ({why.reason}: {why.detail}){_WAY_OUT.get(why.reason, '')}"
            raise SetupError(msg)
        finally:
            for task in (answer, letter):
                task.cancel()
            await asyncio.gather(answer, letter, return_exceptions=True)


async def _letter_of(letters: Tail, sent: Sent) -> DeadLetter:
    from streams.lookup import read_dead_letter

    async for record in letters:
        letter = read_dead_letter(record)
        if (letter.partition, letter.offset) == (sent.partition, sent.offset):
            return letter
    raise AssertionError("a tail has no end")


def _refuse_pointless(kind: Kind, ref: str | None, decline: bool, deadline_ms: float | None) -> None:
    if kind in NEED_REF and not ref:
        msg = f"--kind {kind} needs --ref: name the event that is meant, such as --ref order-17"
        raise UsageError(msg)
    if decline and kind != "confirm":
        msg = f"--decline says something about a decision, and --kind {kind} is none of its answers: use --kind confirm --ref with the decision's event id"
        raise UsageError(msg)
    if deadline_ms is not None and deadline_ms <= 0:  # what is no number is refused as any wrong field
        msg = f"--deadline-ms {deadline_ms:g} leaves no time, such an event is answered `expired`: use a number above 0"
        raise UsageError(msg)


def _checked(tree: dict[str, Any], settings: Settings) -> InteractionEvent:
    """The event as a worker would read it, so that a mistake is told here and does not become a dead letter."""
    event = decode_event(msgspec.msgpack.encode(tree), None, (), settings.limits)
    if isinstance(event, Undecodable):
        msg = f"this event would be a dead letter ({event.reason}, {event.detail}): see `answerby send --help`"
        raise UsageError(msg)
    return event


def _parse_state(state: str) -> Any:
    try:
        return msgspec.json.decode(state)
    except msgspec.DecodeError as error:
        msg = f"--state is not JSON ({error}): write for instance --state '{{\"order\": 17}}'"
        raise UsageError(msg) from None


def _budget_ms(event: InteractionEvent, settings: Settings) -> float:
    wanted = settings.deadline.default_ms if event.deadline_ms is None else event.deadline_ms
    return min(max(wanted, 0.0), settings.deadline.max_ms)


def _show(response: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    from agents.cli.answer_view import outcome_text, plain_line, plain_text, stage_bar, stage_list, time_text

    console = Console(highlight=False, soft_wrap=True)
    if response["text"]:
        console.print(Text(plain_text(str(response["text"]))))
    model, usage = response["model"], response["usage"]
    facts = outcome_text(response).append(" · ", "bright_black").append_text(time_text(response, "{:.0f} of {:.0f} ms"))
    if model:
        facts.append(f" · {usage['completion_tokens']} tokens by {model['name']} {model['version']}", "bright_black")
    console.print(facts)
    console.print(stage_bar(response).append(f" {stage_list(response)}", "bright_black"))
    if response["data"] is not None:
        console.print(Text(f"data {plain_line(msgspec.json.encode(response['data']).decode())}"))
