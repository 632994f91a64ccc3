"""The result file's schema, and how one load's answers become one point of it; the tables made of it are `report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.forecasts import Forecasts
from bench.load import LoadResult, Received, quantile
from bench.machine import CpuUse, Machine

SCHEMA_VERSION = 1

MIN_TOKENS = 6
"""A model's answer shorter than this is not counted as one."""

DERIVED = ("in_time_share", "model_share", "model_per_s", "tokens_per_s")
"""Written beside a point's counts for whoever reads the file with another program; ignored when we read it."""

BY_MODEL = frozenset({"model", "partial", "fallback_model"})


class Spread(msgspec.Struct, frozen=True):
    """Of some times in milliseconds; None where there were none."""

    count: int
    p50: float | None
    p99: float | None
    p999: float | None
    max: float | None


class Load(msgspec.Struct, frozen=True):
    """What was put on: `seconds` is the time over which rates are counted."""

    scenario: str
    label: str
    rate: float
    budget_ms: float
    seconds: float
    choice: bool = False


class Point(msgspec.Struct, frozen=True):
    """One system under one load, as the consumer saw it. In time: received by the producer's send plus the budget, both by the client's clock."""

    load: Load
    system: str
    sent: int
    answered: int
    lost: int
    repeats: int
    contradictory: int
    in_time: int
    model_in_time: int
    whole_in_time: int
    tokens_in_time: int
    lateness_ms: Spread
    latency_ms: Spread
    send_lag_p99_ms: float
    outcomes: dict[str, int]
    prompt_tokens: float
    cached_tokens: float
    cpu: CpuUse

    @property
    def in_time_share(self) -> float:
        """Answered in time, with any outcome, of those sent."""
        return self.in_time / self.sent if self.sent else 0.0

    @property
    def model_share(self) -> float:
        """Answered in time by a model, of those sent."""
        return self.model_in_time / self.sent if self.sent else 0.0

    @property
    def model_per_s(self) -> float:
        """Model answers in time a second."""
        return self.model_in_time / self.load.seconds

    @property
    def tokens_per_s(self) -> float:
        """Tokens delivered in time a second."""
        return self.tokens_in_time / self.load.seconds


class CeilingPoint(msgspec.Struct, frozen=True):
    """The engine alone, `open_requests` kept open: whatever it can do for the same prompts and lengths."""

    open_requests: int
    seconds: float
    requests: int
    tokens: int
    latency_ms: Spread

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class KillReport(msgspec.Struct, frozen=True):
    """An engine killed again and again under load."""

    kills: int
    restarts: int
    ready_again_s: Spread
    point: Point


class SurvivalReport(msgspec.Struct, frozen=True):
    """Whole workers killed under load; `seen` is what `bench.survival` counts."""

    workers: int
    kills: int
    seen: dict[str, Any]


class Report(msgspec.Struct, frozen=True):
    """One run."""

    machine: Machine
    settings: dict[str, Any]
    points: tuple[Point, ...] = ()
    ceiling: tuple[CeilingPoint, ...] = ()
    kills: tuple[KillReport, ...] = ()
    survival: tuple[SurvivalReport, ...] = ()
    forecasts: Forecasts | None = None
    notes: tuple[str, ...] = ()
    took_s: float = 0.0
    schema_version: int = SCHEMA_VERSION


def spread(values: Sequence[float]) -> Spread:
    """Of unsorted milliseconds (or any unit)."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0, None, None, None, None)
    p50, p99, p999 = (round(quantile(ordered, q), 1) for q in (0.5, 0.99, 0.999))
    return Spread(len(ordered), p50, p99, p999, round(ordered[-1], 1))


def summarise(load: Load, system: str, result: LoadResult, lags_s: Sequence[float], cpu: CpuUse) -> Point:
    """Count the first answer to each event; later ones are repeats."""
    firsts = {event_id: result.received[event_id][0] for event_id in result.sent if event_id in result.received}
    latency = {event_id: (first.at - result.sent[event_id]) * 1000 for event_id, first in firsts.items()}
    timely = [first for event_id, first in firsts.items() if latency[event_id] <= load.budget_ms]
    by_model = [first for first in timely if is_model_answer(first, choice=load.choice)]
    usages = [usage for first in firsts.values() if (usage := first.response.get("usage") or {}).get("prompt_tokens")]
    return Point(
        load=load,
        system=system,
        sent=len(result.sent),
        answered=len(firsts),
        lost=len(result.lost),
        repeats=result.repeats,
        contradictory=len(result.contradictory),
        in_time=len(timely),
        model_in_time=len(by_model),
        whole_in_time=sum(first.response["outcome"] == "model" for first in by_model),
        tokens_in_time=sum(_tokens(first) for first in by_model),
        lateness_ms=spread([ms - load.budget_ms for ms in latency.values() if ms > load.budget_ms]),
        latency_ms=spread(list(latency.values())),
        send_lag_p99_ms=round(quantile(sorted(lags_s), 0.99) * 1000, 1) if lags_s else 0.0,
        outcomes=dict(sorted(result.outcomes().items())),
        prompt_tokens=_mean([usage["prompt_tokens"] for usage in usages]),
        cached_tokens=_mean([usage.get("cached_tokens", 0) for usage in usages]),
        cpu=cpu,
    )


def is_model_answer(received: Received, *, choice: bool) -> bool:
    """By a model, and long enough to be worth reading; a label may be short."""
    return received.response["outcome"] in BY_MODEL and (choice or _tokens(received) >= MIN_TOKENS)


def save_report(report: Report, path: Path) -> None:
    """Write it whole or not at all, so that a run that breaks off keeps what it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    tree = msgspec.to_builtins(report)
    for built, point in zip(
        (*tree["points"], *(kill["point"] for kill in tree["kills"])), (*report.points, *(kill.point for kill in report.kills)), strict=True
    ):
        built |= {name: round(getattr(point, name), 4) for name in DERIVED}
    new.write_bytes(msgspec.json.format(msgspec.json.encode(tree)) + b"\n")
    new.replace(path)


def load_report(path: Path) -> Report:
    """Read a result file.

    Raises:
        msgspec.ValidationError: it is not one.
        ValueError: it is of another schema version.
    """
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    if report.schema_version != SCHEMA_VERSION:
        text = f"{path.name} has schema version {report.schema_version}, this program reads {SCHEMA_VERSION}"
        raise ValueError(text)
    return report


def join_reports(reports: Sequence[Report]) -> Report:
    """Several runs as one: all points, the first one's machine, the last forecasts; settings that differ stand side by side.

    Raises:
        ValueError: they are of different machines.
    """
    if len({(report.machine.cpu, report.machine.cores) for report in reports}) > 1:
        text = "the runs are of different machines: report each by itself"
        raise ValueError(text)
    first = reports[0]
    keys = dict.fromkeys(key for report in reports for key in report.settings)
    return Report(
        first.machine,
        {key: " / ".join(dict.fromkeys(str(report.settings.get(key)) for report in reports)) for key in keys},
        points=tuple(point for report in reports for point in report.points),
        ceiling=tuple(point for report in reports for point in report.ceiling),
        kills=tuple(kill for report in reports for kill in report.kills),
        survival=tuple(one for report in reports for one in report.survival),
        forecasts=next((report.forecasts for report in reversed(reports) if report.forecasts is not None), None),
        notes=tuple(note for report in reports for note in report.notes),
        took_s=round(sum(report.took_s for report in reports), 1),
    )


def _tokens(received: Received) -> int:
    return int((received.response.get("usage") or {}).get("completion_tokens", 0))


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 1) if values else 0.0
