"""Logs and reports of the demo: each line is what it says, and every record sent is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agents.cli.demo_log import EXAMPLE_LOG, LogLine, Planned, read_log
from agents.cli.demo_report import Report, percentile
from schemas.errors import UsageError
from schemas.responses import STAGES
from schemas.settings import Settings

SETTINGS = Settings()


def plan(path: Path, speed: float = 1.0) -> tuple[Planned, ...]:
    """The records of a log under the default settings."""
    return read_log(path, speed, SETTINGS.limits, SETTINGS.deadline)


def written(tmp_path: Path, *lines: Any) -> Path:
    """A log of these lines."""
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def event(event_id: str = "e-1", **fields: Any) -> dict[str, Any]:
    """A line with a good event."""
    return {"at_ms": 0, "event": {"event_id": event_id, "session_id": "s", "text": "hi", "deadline_ms": 500}, **fields}


def test_the_example_log_shows_what_it_should() -> None:
    """The log that ships has enough of everything: events, both languages and uses, late ones, malformed ones, all kinds of going wrong apart."""
    records = plan(EXAMPLE_LOG)
    good = [record for record in records if record.event is not None]
    events = [record.event for record in good if record.event is not None]
    malformed = [record for record in records if record.event is None]
    assert len(records) >= 50
    assert len(good) >= 42
    assert len(malformed) >= 5
    assert len({record.value for record in malformed}) == len(malformed)
    assert sum(record.late for record in good) >= 2
    assert {item.tenant for item in events} >= {"shop", "game"}
    assert sum((item.locale or "").startswith("zh") for item in events) >= 10
    assert {item.kind for item in events} >= {"message", "context", "reset", "feedback"}
    assert {record.line.encoding for record in good} == {"msgpack", "json"}
    assert len({item.session_id for item in events}) >= 6
    assert len({record.name for record in good}) < len(good), "one event is sent twice"
    assert 20 <= records[-1].at_s <= 30


def test_records_are_sent_in_the_order_of_their_times(tmp_path: Path) -> None:
    """A log may be written in any order; `speed` divides its times."""
    path = written(tmp_path, event("b", at_ms=3000), "", event("a", at_ms=1000))
    assert [(record.at_s, record.name[2]) for record in plan(path, speed=2)] == [(0.5, "a"), (1.5, "b")]


def test_an_event_is_late_when_its_budget_is_gone_before_it_is_sent(tmp_path: Path) -> None:
    """Late is what no worker could answer: less than deadline.min_ms left; within it is not late, and no deadline means the default one."""
    spent = [event("a", late_by_ms=490), event("b", late_by_ms=400)]
    unnamed = {"at_ms": 0, "late_by_ms": 990, "event": {"event_id": "c", "session_id": "s", "text": "hi"}}
    assert [record.late for record in plan(written(tmp_path, *spent, unnamed))] == [True, False, True]


BAD_LINES = {
    "no JSON": "{",
    "neither event nor bytes": {"at_ms": 0},
    "both event and bytes": event(value_hex="c1"),
    "no time": {"event": {}},
    "a time before the start": event(at_ms=-1),
    "an unknown key": event(sped=2),
    "bytes that are no hex": {"at_ms": 0, "value_hex": "xyz"},
    "an event that is none": {"at_ms": 0, "event": {"event_id": "e"}},
    "bytes that are an event": {"at_ms": 0, "value_hex": json.dumps(event()["event"]).encode().hex()},
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_wrong_line_is_named(name: str, tmp_path: Path) -> None:
    """A log is checked before anything is started, and the line that is wrong is told."""
    path = written(tmp_path, event(), BAD_LINES[name])
    with pytest.raises(UsageError, match=r"log\.jsonl:2: "):
        plan(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe"], ids=["empty", "blank", "not UTF-8"])
def test_a_log_without_events_is_refused(content: bytes, tmp_path: Path) -> None:
    """Nothing to play is wrong usage, not a success."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        plan(path)


def sent(event_id: str = "e-1", late: bool = False) -> Planned:
    """A record as planned."""
    line = LogLine(at_ms=0, event={"event_id": event_id, "session_id": "s", "text": "hi"})
    value = msgspec.msgpack.encode(line.event)
    from streams.codecs import decode_event  # noqa: PLC0415

    return Planned(0.0, line, value, decode_event(value, None, (), SETTINGS.limits), late)  # type: ignore[arg-type]


def answer(event_id: str = "e-1", outcome: str = "model", met: bool = True, **latency: float) -> dict[str, Any]:
    """A response, in the fields that a report reads."""
    times = dict.fromkeys(STAGES, 0.0) | latency
    model = {"name": "m", "version": "1"} if outcome in ("model", "partial") else None
    return {
        "tenant": "default",
        "session_id": "s",
        "event_id": event_id,
        "outcome": outcome,
        "model": model,
        "deadline": {"met": met},
        "latency_ms": {**times, "total": sum(times.values())},
    }


def test_a_report_is_complete_when_every_record_is_accounted_for() -> None:
    """Every event answered and every malformed record in the dead letters, in whichever order they come; not before."""
    report = Report()
    report.note_sent(sent("a"), 1.0)
    report.note_sent(sent("b", late=True), 1.0)
    report.note_dead_letter((2, 7))
    assert report.note_answer(answer("a", prefill=100, generate=300), 1.5)
    assert not report.complete
    report.note_malformed((2, 7))
    report.note_answer(answer("b", outcome="default", met=False), 1.1)
    assert report.complete
    assert report.summary() == {
        "events": 2,
        "well_formed": 2,
        "answered": 2,
        "met": 1,
        "late": 1,
        "dead_letters": 1,
        "outcomes": {"model": 1, "default": 1},
        "p50_ms": 500.0,
        "p99_ms": 500.0,
    }
    assert report.stages_ms()["generate"] == [300.0]


def test_an_event_sent_twice_needs_two_answers() -> None:
    """A repeat is answered again; its answers beyond that are a worker's redelivery and not counted."""
    report = Report()
    for at in (1.0, 2.0):
        report.note_sent(sent(), at)
    report.note_answer(answer(), 1.2)
    assert (report.well_formed, report.answered, report.complete) == (2, 1, False)
    assert report.missing() == ["s/e-1"]
    report.note_answer(answer(), 2.1)
    report.note_answer(answer(), 2.2)
    assert report.complete
    assert (report.answered, report.outcomes()) == (2, {"model": 2})
    assert [round(trip) for trip in report.round_trips_ms()] == [200, 100]


def test_what_was_not_sent_here_is_not_counted() -> None:
    """Another producer's answers are not ours."""
    report = Report()
    report.note_sent(sent(), 1.0)
    assert not report.note_answer(answer("other"), 1.1)
    assert report.answered == 0


def test_an_event_among_the_dead_letters_is_a_failure() -> None:
    """A dead letter of something that was well-formed leaves the report incomplete, however often it comes."""
    report = Report()
    report.note_sent(sent(), 1.0)
    report.note_answer(answer(), 1.1)
    assert report.complete
    report.note_dead_letter((0, 0))
    report.note_dead_letter((0, 0))
    assert not report.complete
    assert report.summary()["dead_letters"] == 1


@pytest.mark.parametrize(("percent", "value"), [(50, 5.0), (99, 10.0), (100, 10.0), (1, 1.0), (0, 1.0)])
def test_percentiles_are_values_that_were_seen(percent: float, value: float) -> None:
    """Nearest rank: no value is invented between two."""
    assert percentile([10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], percent) == value


def test_a_percentile_of_nothing_is_zero() -> None:
    """A report can be printed before anything was answered."""
    assert percentile([], 99) == 0.0
