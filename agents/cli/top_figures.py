"""What `top` shows, as figures made of two looks at the workers; pure, so that a program gets the same by --json; the drawing is `top_view`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.cli.answer_view import PARTS
from streams.scrape import Down, Scrape, Values

STAGES = tuple(stage for _name, stages, _glyph, _style in PARTS for stage in stages)
"""In the order of an event's way; `publish` follows them, which is no part of an answer's own account."""


TOKEN_KINDS = ("prompt", "cached", "completion", "wasted")


class Rate(msgspec.Struct, frozen=True):
    """A counter: since the workers started, and a second lately."""

    total: float
    per_s: float


class Outcome(msgspec.Struct, frozen=True):
    """Events with one outcome and reason."""

    outcome: str
    reason: str
    count: Rate


class Spread(msgspec.Struct, frozen=True):
    """Milliseconds; None without any observation."""

    name: str
    p50: float | None
    p99: float | None


class EngineRow(msgspec.Struct, frozen=True):
    """One replica of one worker."""

    worker: str
    model: str
    version: str
    replica: int
    state: str
    pid: int | None
    restarts: int
    rss_bytes: float


class WorkerRow(msgspec.Struct, frozen=True):
    """One address. `why` is set for one that does not answer."""

    url: str
    state: str
    partitions: tuple[int, ...] = ()
    recovery: str = ""
    why: str = ""


class Figures(msgspec.Struct, frozen=True):
    """All workers that answer, added up.

    `window` tells whether stages, slack and errors are of the last `interval` or, when nothing happened in it, since the `start`.

    Shares are None where there is nothing to divide by; times in milliseconds, sizes in bytes, `missed` and the rates as counters.
    """

    workers: tuple[WorkerRow, ...]
    window: str
    interval_s: float
    events: Rate
    outcomes: tuple[Outcome, ...]
    dead_letters: dict[str, Rate]
    response: tuple[Spread, ...]
    stages: tuple[Spread, ...]
    slack_p1_ms: float | None
    slack_p50_ms: float | None
    missed: Rate
    reserve_ms: float
    batch_mean: float | None
    running: float
    waiting: float
    in_flight: float
    tokens: dict[str, Rate]
    prefix_hit: float | None
    kv_cache_bytes: float
    promises_kept: float | None
    step_p50_ms: float | None
    step_error_p50: float | None
    first_token_error_p50: float | None
    loop_lag_p99_ms: float | None
    worker_bytes: float
    engines: tuple[EngineRow, ...]


def figures_of(before: Sequence[Scrape | Down], after: Sequence[Scrape | Down]) -> Figures:
    """Difference the counters of the workers that answered both times; gauges and totals are of those that answer now."""
    alive = [scrape for scrape in after if isinstance(scrape, Scrape)]
    known = [scrape for scrape in before if isinstance(scrape, Scrape)]
    now, lately = Values.total(alive), Values.between(known, alive)
    seconds = _interval_s(known, alive)
    window = lately if lately.sum("answerby_deadline_slack_seconds_count") > 0 else now

    def rate(name: str, **labels: str) -> Rate:
        return Rate(now.sum(name, **labels), round(lately.sum(name, **labels) / seconds, 3) if seconds else 0.0)

    def ms(name: str, share: float, **labels: str) -> float | None:
        return _ms(window.quantile(name, share, **labels))

    return Figures(
        workers=tuple(_worker_row(one) for one in after),
        window="interval" if window is lately else "start",
        interval_s=round(seconds, 2),
        events=rate("answerby_events_total"),
        outcomes=tuple(
            Outcome(outcome, reason, rate("answerby_events_total", outcome=outcome, reason=reason))
            for (outcome, reason), _count in sorted(now.by("answerby_events_total", "outcome", "reason").items(), key=lambda item: -item[1])
        ),
        dead_letters={reason: rate("answerby_dead_letters_total", reason=reason) for (reason,) in sorted(now.by("answerby_dead_letters_total", "reason"))},
        response=_responses(window),
        stages=tuple(Spread(stage, ms("answerby_stage_seconds", 0.5, stage=stage), ms("answerby_stage_seconds", 0.99, stage=stage)) for stage in _stages(now)),
        slack_p1_ms=ms("answerby_deadline_slack_seconds", 0.01),
        slack_p50_ms=ms("answerby_deadline_slack_seconds", 0.5),
        missed=rate("answerby_deadline_missed_total"),
        reserve_ms=round(max((Values.total([one]).sum("answerby_deadline_reserve_seconds") for one in alive), default=0.0) * 1000, 1),
        batch_mean=_ratio(window.sum("answerby_engine_batch_requests_sum"), window.sum("answerby_engine_batch_requests_count")),
        running=now.sum("answerby_running_requests"),
        waiting=now.sum("answerby_waiting_requests"),
        in_flight=now.sum("answerby_in_flight_events"),
        tokens={kind: rate("answerby_tokens_total", kind=kind) for kind in TOKEN_KINDS},
        prefix_hit=_hit_share(window),
        kv_cache_bytes=now.sum("answerby_engine_kv_cache_bytes"),
        promises_kept=_ratio(window.sum("answerby_admission_promises_total", kept="true"), window.sum("answerby_admission_promises_total")),
        step_p50_ms=ms("answerby_engine_step_seconds", 0.5),
        step_error_p50=_rounded(window.quantile("answerby_step_error_ratio", 0.5)),
        first_token_error_p50=_rounded(window.quantile("answerby_first_token_error_ratio", 0.5)),
        loop_lag_p99_ms=ms("answerby_loop_lag_seconds", 0.99),
        worker_bytes=now.sum("answerby_worker_resident_bytes"),
        engines=tuple(row for scrape in alive for row in _engine_rows(scrape)),
    )


def _interval_s(known: Sequence[Scrape], alive: Sequence[Scrape]) -> float:
    at = {scrape.url: scrape.at for scrape in known}
    return max((scrape.at - at[scrape.url] for scrape in alive if scrape.url in at), default=0.0)


def _worker_row(one: Scrape | Down) -> WorkerRow:
    if isinstance(one, Down):
        return WorkerRow(one.url, "down", why=one.why)
    return WorkerRow(one.url, "ready" if one.ready else "not ready", one.readiness.partitions, one.readiness.recovery)


def _engine_rows(scrape: Scrape) -> list[EngineRow]:
    values = Values(scrape.values)
    rows = []
    for engine in scrape.readiness.engines:
        model, replica = str(engine.get("model", "")), int(engine.get("replica", 0))
        rss = values.sum("answerby_engine_resident_bytes", model=model, replica=str(replica))
        state, pid = str(engine.get("state", "")), engine.get("pid")
        rows.append(EngineRow(scrape.url, model, str(engine.get("version", "")), replica, state, pid, int(engine.get("restarts", 0)), rss))
    return rows


def _stages(now: Values) -> list[str]:
    seen = {stage for (stage,) in now.by("answerby_stage_seconds_count", "stage")}
    known = [*(stage for stage in STAGES if stage in seen)]
    return known + sorted(seen - {*known, "total"})


def _responses(window: Values) -> tuple[Spread, ...]:
    counts = sorted(window.by("answerby_response_seconds_count", "outcome").items(), key=lambda item: -item[1])
    name = "answerby_response_seconds"
    every = Spread("all", _ms(window.quantile(name, 0.5)), _ms(window.quantile(name, 0.99)))
    each = [
        Spread(outcome, _ms(window.quantile(name, 0.5, outcome=outcome)), _ms(window.quantile(name, 0.99, outcome=outcome)))
        for (outcome,), count in counts
        if count > 0
    ]
    return (every, *each)


def _hit_share(window: Values) -> float | None:
    cached, read = window.sum("answerby_tokens_total", kind="cached"), window.sum("answerby_tokens_total", kind="prompt")
    return _ratio(cached, cached + read)


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole > 0 else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
