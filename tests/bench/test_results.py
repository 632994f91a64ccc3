"""How answers become a point of the result file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from bench.load import LoadResult, Received, quantile
from bench.machine import CpuUse, Machine, cpu_use
from bench.results import CeilingPoint, Load, Point, Report, join_reports, load_report, save_report, spread, summarise

MACHINE = Machine("a processor", 2, 8.0, "6.1", "3.11.9", {"aiokafka": "0.14.0"}, "2026-01-01T00:00:00Z", 0.1)
CPU = CpuUse(0.5, 0.0)


def answered(events: Mapping[str, tuple[float, str, int]], budget_ms: float = 300, *, choice: bool = False) -> Point:
    """A point of events sent at 0 and answered after (milliseconds, outcome, tokens)."""
    result = LoadResult()
    for event_id, (ms, outcome, tokens) in events.items():
        result.sent[event_id] = 0.0
        response = {"event_id": event_id, "outcome": outcome, "reason": None, "usage": {"prompt_tokens": 40, "completion_tokens": tokens}}
        result.received[event_id] = [Received(ms / 1000, 0, 0, event_id.encode(), response)]
    return summarise(Load("rates", "x", 2, budget_ms, 2.0, choice), "answerby", result, [0.001], CPU)


def test_in_time_is_by_receipt() -> None:
    """An answer received at the budget is in time, one after it is late by the difference, whatever its outcome."""
    point = answered({"a": (300, "default", 0), "b": (301, "model", 16), "c": (340, "model", 16)})
    assert (point.in_time, point.model_in_time, point.lateness_ms.count) == (1, 0, 2)
    assert point.lateness_ms.max == pytest.approx(40)


def test_short_model_answers_do_not_count() -> None:
    """Fewer than six tokens are no model answer; a label may be as short as it is."""
    events = {"a": (100, "model", 5), "b": (100, "partial", 6), "c": (100, "fallback_model", 7), "d": (100, "default", 0)}
    point = answered(events)
    assert (point.model_in_time, point.tokens_in_time, point.whole_in_time) == (2, 13, 0)
    assert answered(events, choice=True).model_in_time == 3


def test_rates_are_of_the_load_s_length() -> None:
    """A second's figures are counted over the time in which events were sent."""
    point = answered({"a": (100, "model", 16), "b": (100, "model", 16)})
    assert (point.model_per_s, point.tokens_per_s, point.model_share) == (1.0, 16.0, 1.0)


def test_lost_and_repeated() -> None:
    """An event without an answer is lost and never in time; a second answer is a repeat and changes nothing."""
    result = LoadResult(sent={"a": 0.0, "b": 0.0})
    first = Received(0.1, 0, 0, b"1", {"event_id": "b", "outcome": "default", "reason": "overload"})
    result.received["b"] = [first, Received(0.9, 0, 1, b"2", first.response)]
    point = summarise(Load("rates", "x", 1, 300, 1.0), "answerby", result, [], CPU)
    assert (point.sent, point.answered, point.lost, point.repeats, point.contradictory, point.in_time) == (2, 1, 1, 1, 1, 1)
    assert point.outcomes == {"default/overload": 1}


def test_answers_to_others_do_not_count() -> None:
    """What arrives for an event that this load did not send belongs to another one."""
    result = LoadResult(sent={"a": 0.0})
    result.received["z"] = [Received(0.1, 0, 0, b"1", {"event_id": "z", "outcome": "model", "reason": None, "usage": {"completion_tokens": 9}})]
    point = summarise(Load("rates", "x", 1, 300, 1.0), "answerby", result, [], CPU)
    assert (point.answered, point.in_time, point.tokens_in_time) == (0, 0, 0)


def test_percentiles() -> None:
    """The p99 of 1..1000 has ten values above it or at it; of nothing there is none."""
    values = [float(value) for value in range(1, 1001)]
    assert sum(value >= quantile(values, 0.99) for value in values) == 10
    assert spread([3.0, 1.0, 2.0]).p50 == 2.0
    assert spread([]).p99 is None


def test_cpu_shares() -> None:
    """Idle and waiting are not busy; what the hypervisor took is told apart."""
    use = cpu_use((0, 0, 0, 0, 0, 0, 0, 0), (30, 0, 10, 40, 10, 0, 0, 10))
    assert (use.busy, use.stolen) == (0.4, 0.1)


def test_a_result_file_reads_back(tmp_path: Path) -> None:
    """What was saved is what is loaded, and nothing else is left in the folder."""
    report = Report(MACHINE, {"seconds": None}, (answered({"a": (1, "model", 16)}),), (CeilingPoint(4, 10.0, 5, 80, spread([1.0])),), took_s=3.0)
    save_report(report, tmp_path / "sub" / "x.json")
    assert load_report(tmp_path / "sub" / "x.json") == report
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["x.json"]


def test_a_result_file_has_the_shares_for_other_programs(tmp_path: Path) -> None:
    """Whoever reads the JSON need not know how a share is counted."""
    save_report(Report(MACHINE, {}, (answered({"a": (1, "model", 16), "b": (400, "model", 16)}),)), tmp_path / "x.json")
    (point,) = msgspec.json.decode((tmp_path / "x.json").read_bytes())["points"]
    assert (point["in_time_share"], point["model_share"], point["model_per_s"], point["tokens_per_s"]) == (0.5, 0.5, 0.5, 8.0)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    """A file of a later program is not misread."""
    path = tmp_path / "x.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(Report(MACHINE, {}), schema_version=99)))
    with pytest.raises(ValueError, match="schema version 99"):
        load_report(path)


def test_runs_of_one_machine_are_one_report() -> None:
    """All points in order, and what was set differently side by side."""
    one = Report(MACHINE, {"seconds": 60, "revision": "a"}, (answered({"a": (100, "model", 16)}),), took_s=1.0)
    two = Report(MACHINE, {"seconds": 20, "revision": "a"}, (answered({"b": (100, "default", 0)}),), took_s=2.0)
    both = join_reports([one, two])
    assert [point.outcomes for point in both.points] == [{"model": 1}, {"default": 1}]
    assert (both.settings, both.took_s) == ({"seconds": "60 / 20", "revision": "a"}, 3.0)
