"""The exposition: what is made when somebody looks, and that it reads back as it was written."""

from __future__ import annotations

import re
from pathlib import Path

import prometheus_client
import pytest

from schemas.inference import Step
from schemas.responses import Rung
from streams.metrics import Histogram, Metrics, Sample, parse_exposition


def value_of(samples: tuple[Sample, ...], name: str, **labels: str) -> float | None:
    """The one sample with this name and these labels."""
    found = [sample.value for sample in samples if sample.name == name and dict(sample.labels) == labels]
    return found[0] if found else None


def test_what_is_rendered_reads_back() -> None:
    """Counters, gauges and buckets come out with the values and labels that went in, awkward labels included."""
    metrics = Metrics()
    metrics.events.labels("model", "none").inc(3)
    metrics.running.set(2)
    metrics.engine_rss.labels('na"me\n\\', "0").set(5)
    metrics.slack.observe(-0.3)
    samples = parse_exposition(metrics.render().decode())
    assert value_of(samples, "answerby_events_total", outcome="model", reason="none") == 3
    assert value_of(samples, "answerby_running_requests") == 2
    assert value_of(samples, "answerby_engine_resident_bytes", model='na"me\n\\', replica="0") == 5
    assert value_of(samples, "answerby_deadline_slack_seconds_bucket", le="-0.5") == 0
    assert value_of(samples, "answerby_deadline_slack_seconds_bucket", le="-0.2") == 1


def test_each_step_of_a_walk_is_counted_and_timed_when_it_was_taken() -> None:
    """A rung that was skipped took no time; the label for no reason is `none`."""
    metrics = Metrics()
    for _ in range(2):
        metrics.ladder.observe_rung(Rung("cache", "skipped", 0.0, "no kept answer"), None)
    metrics.ladder.observe_rung(Rung("main", "failed", 250.0, "gone"), "engine_unavailable")
    samples = parse_exposition(metrics.render().decode())
    assert value_of(samples, "answerby_rungs_total", rung="cache", verdict="skipped", reason="none") == 2
    assert value_of(samples, "answerby_rungs_total", rung="main", verdict="failed", reason="engine_unavailable") == 1
    assert value_of(samples, "answerby_rung_seconds_count", rung="main") == 1
    assert value_of(samples, "answerby_rung_seconds_bucket", rung="main", le="0.2") == 0
    assert value_of(samples, "answerby_rung_seconds_bucket", rung="main", le="0.3") == 1
    assert value_of(samples, "answerby_rung_seconds_count", rung="cache") in (0, None)


def test_a_breaker_is_counted_when_it_opens() -> None:
    """Its state is a number, and what never opened has a zero."""
    metrics = Metrics()
    for state in ("closed", "open", "half_open", "open"):
        metrics.ladder.set_breaker("main", state)
    metrics.ladder.set_breaker("small", "closed")
    samples = parse_exposition(metrics.render().decode())
    assert value_of(samples, "answerby_breaker_state", model="main") == 2
    assert value_of(samples, "answerby_breaker_opened_total", model="main") == 2
    assert value_of(samples, "answerby_breaker_opened_total", model="small") == 0


def test_a_shared_store_is_told_of_where_there_is_one() -> None:
    """`answerby_cache_shared_up` follows the store, and is not exported by workers without one."""
    metrics = Metrics()
    assert b"answerby_cache_shared_up" not in metrics.render()
    for up in (True, False, True):
        metrics.ladder.set_cache_shared(up)
        assert value_of(parse_exposition(metrics.render().decode()), "answerby_cache_shared_up") == up


def test_the_guide_lists_every_metric_and_no_other() -> None:
    """`docs/guide/monitoring.md` names what a worker exports, each as a scraper sees it."""
    metrics = Metrics()
    metrics.ladder.set_cache_shared(True)
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()}
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(answerby_[a-z_]+)(?:\{[a-z,]+\})?`", guide)) == exported


def test_what_is_no_exposition_is_refused() -> None:
    """Another program's page is an error, not a set of figures."""
    with pytest.raises(ValueError, match=r".+"):
        parse_exposition("<html>{</html>\n")


def test_the_prefix_caches_hit_ratio_follows_the_tokens() -> None:
    """Cached over all prompt tokens, by model; a model that has read nothing has none."""
    metrics = Metrics()
    metrics.tokens.labels("a", "prompt").inc(25)
    metrics.tokens.labels("a", "cached").inc(75)
    metrics.tokens.labels("b", "wasted").inc(4)
    samples = parse_exposition(metrics.render().decode())
    assert value_of(samples, "answerby_prefix_cache_hit_ratio", model="a") == 0.75
    assert value_of(samples, "answerby_prefix_cache_hit_ratio", model="b") is None


def test_a_frame_without_a_step_is_no_batch() -> None:
    """Only steps count for the mean batch: an end that is told between two steps would pull it down."""
    metrics = Metrics()
    metrics.observe_step("m", Step(0.02, 4, 0))
    metrics.observe_step("m", Step(0.0, 0, 0))
    samples = parse_exposition(metrics.render().decode())
    assert value_of(samples, "answerby_engine_batch_requests_count", model="m") == 1
    assert value_of(samples, "answerby_engine_batch_requests_sum", model="m") == 4


def test_a_histogram_reads_like_prometheus_own() -> None:
    """Bounds belong to their bucket, counts add up, and values of both signs have a count and no sum: sample for sample as prometheus_client writes it."""
    for bounds in ((0.1, 1.0, 5.0), (-1.0, 0.0, 1.0)):
        texts = []
        for kind in (Histogram, prometheus_client.Histogram):
            registry = prometheus_client.CollectorRegistry()
            histogram = kind("seen_seconds", "What was seen", ["who"], buckets=bounds, registry=registry)
            for value in (0.1, 0.10001, -3.0, 7.0, 1.0):
                histogram.labels("a").observe(value)
            histogram.labels("nobody")
            texts.append([line for line in prometheus_client.generate_latest(registry).decode().splitlines() if "_created" not in line])
        assert texts[0] == texts[1]


def test_a_histogram_has_its_labels() -> None:
    """A wrong number of label values is a mistake of ours, and says so."""
    histogram = Metrics().stage
    with pytest.raises(ValueError, match="answerby_stage_seconds"):
        histogram.labels()
