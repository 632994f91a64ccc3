"""How well the product's scheduler foresaw what its engine did, as the worker itself counts it; what came of that is `results`."""

from __future__ import annotations

import msgspec

from bench.harness import WorkerProcess
from streams.metrics import Sample, parse_exposition
from streams.scrape import bucket_quantile


class Forecasts(msgspec.Struct, frozen=True):
    """Since the worker started. Errors are relative, as medians of all models; a promise is an admission, broken when its tokens came after its due."""

    steps: int
    step_error_p50: float | None
    first_tokens: int
    first_token_error_p50: float | None
    promises_kept: int
    promises_broken: int


def read_forecasts(worker: WorkerProcess) -> Forecasts:
    """What the worker's `/metrics` say now."""
    samples = parse_exposition(worker.get("/metrics")[1].decode())
    steps, step_error = _histogram(samples, "answerby_step_error_ratio")
    firsts, first_error = _histogram(samples, "answerby_first_token_error_ratio")
    kept, broken = (
        round(sum(one.value for one in samples if one.name == "answerby_admission_promises_total" and one.labels["kept"] == kept)) for kept in ("true", "false")
    )
    return Forecasts(steps, step_error, firsts, first_error, kept, broken)


def _histogram(samples: tuple[Sample, ...], name: str) -> tuple[int, float | None]:
    """Observations of all models together, and their median."""
    buckets: dict[float, float] = {}
    for sample in samples:
        if sample.name == f"{name}_bucket":
            bound = float(sample.labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
    cumulative = sorted(buckets.items())
    median = bucket_quantile(cumulative, 0.5) if cumulative else None
    return round(cumulative[-1][1]) if cumulative else 0, None if median is None else round(median, 4)
