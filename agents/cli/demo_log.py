"""A log of events with their timing, as `demo` plays it: reading and checking; what becomes of them is `demo_report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

import agents
from schemas.dead_letters import Undecodable
from schemas.errors import UsageError
from schemas.events import InteractionEvent
from schemas.settings import DeadlineSection, Limits
from streams.codecs import decode_event

EXAMPLE_LOG = Path(agents.__file__).parents[1] / "examples" / "support-and-game.jsonl"


class LogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line: an `event`, or the bytes of a record that is none.

    Fields:
        at_ms: when it is sent, counted from the first moment of the log.
        event: the event; its `occurred_at_ms` is set when it is sent.
        late_by_ms: how long before its sending it happened.
        encoding: of the event.
        value_hex, key: a record's exact bytes and its key, instead of an event.
        note: for the reader of the file.
    """

    at_ms: Annotated[float, Meta(ge=0, le=3_600_000)]
    event: dict[str, Any] | None = None
    late_by_ms: Annotated[float, Meta(ge=0)] = 0
    encoding: Literal["msgpack", "json"] = "msgpack"
    value_hex: str | None = None
    key: str | None = None
    note: str = ""


class Planned(msgspec.Struct, frozen=True):
    """One record to send: `at_s` seconds after the start; `event` is None for a malformed one, `late` when its time is over before it is sent."""

    at_s: float
    line: LogLine
    value: bytes
    event: InteractionEvent | None
    late: bool

    @property
    def name(self) -> tuple[str, str, str]:
        """Who is answered: tenant, session, event."""
        event = self.event
        return (event.tenant, event.session_id, event.event_id) if event is not None else ("", "", "")


def read_log(path: Path, speed: float, limits: Limits, deadline: DeadlineSection) -> tuple[Planned, ...]:
    """Every record of a log in the order of sending, its times divided by `speed`.

    Raises:
        UsageError: the file cannot be read, or a line is not what it says; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        msg = f"{path} cannot be read ({reason}): name a log with --log"
        raise UsageError(msg) from error
    planned = [_plan(text, f"{path}:{number}", speed, limits, deadline) for number, text in enumerate(lines, start=1) if text.strip()]
    if not planned:
        msg = f"{path} holds no events: name another log with --log"
        raise UsageError(msg)
    return tuple(sorted(planned, key=lambda record: record.at_s))


def _plan(text: str, place: str, speed: float, limits: Limits, deadline: DeadlineSection) -> Planned:
    try:
        line = msgspec.json.decode(text, type=LogLine)
        if (line.event is None) == (line.value_hex is None):
            msg = "either `event` or `value_hex` is needed"
            raise ValueError(msg)
        raw = bytes.fromhex(line.value_hex) if line.value_hex is not None else b""
    except (msgspec.DecodeError, ValueError) as error:
        msg = f"{place}: {error}; see the lines of {EXAMPLE_LOG.name}"
        raise UsageError(msg) from error
    value = raw if line.event is None else msgspec.msgpack.encode(line.event)
    outcome = decode_event(value, line.key.encode() if line.key is not None else None, (), limits)
    if isinstance(outcome, InteractionEvent) != (line.event is not None):
        what = f"`event` would be a dead letter ({outcome.reason}, {outcome.detail})" if isinstance(outcome, Undecodable) else "`value_hex` is a good event"
        msg = f"{place}: {what}; mend the line"
        raise UsageError(msg)
    event = outcome if isinstance(outcome, InteractionEvent) else None
    return Planned(line.at_ms / 1000 / speed, line, value, event, event is not None and _is_late(event, line.late_by_ms, deadline))


def _is_late(event: InteractionEvent, late_by_ms: float, deadline: DeadlineSection) -> bool:
    budget = deadline.default_ms if event.deadline_ms is None else min(event.deadline_ms, deadline.max_ms)
    return budget - late_by_ms < deadline.min_ms
