"""Every figure the worker exports, under the contract's names; the only module that knows prometheus_client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from schemas.inference import Step
from schemas.responses import Reason, Rung

STAGE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 60.0)
SLACK_BUCKETS = (-1.0, -0.5, -0.2, -0.1, -0.05, -0.02, -0.01, 0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds of due minus acknowledgement: below zero is late."""

BREAKER_STATES = {"closed": 0, "half_open": 1, "open": 2}

RUNG_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""From a rule's microseconds to a model's seconds."""

ERROR_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Relative errors: 0.1 is what the scheduler should stay below at the median."""

BATCH_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)
"""Requests that one step served; 0 is a step that only read prompts."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Values:
    """What a histogram has seen under one set of label values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """By bucket, each on its own; the last one is what is above all bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Histogram(Collector):
    """As prometheus_client's, without a lock around each value: only the loop's thread observes, and a scrape beside it is off by one event at most.

    An event has some fifteen values, which with locks took a twelfth of all that a worker does for it.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float], registry: CollectorRegistry) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._bounds = tuple(float(bound) for bound in buckets)
        self._seen: dict[tuple[str, ...], Values] = {}
        if not self._labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Values:
        """What was seen under these label values, nothing when they are new. Raises ValueError for a wrong number of them."""
        seen = self._seen.get(values)
        if seen is None:
            if len(values) != len(self._labels):
                msg = f"{self._name} has the labels {self._labels}, not {values}"
                raise ValueError(msg)
            seen = self._seen[values] = Values(self._bounds)
        return seen

    def observe(self, value: float) -> None:
        """Count one value of a histogram without labels."""
        self._seen[()].observe(value)

    def describe(self) -> Iterable[Metric]:
        """The name, so that no second one is registered."""
        return [Metric(self._name, self._text, "histogram")]

    def collect(self) -> Iterator[Metric]:
        """All figures, for a scrape."""
        family = Metric(self._name, self._text, "histogram")
        bounds = [*map(str, self._bounds), "+Inf"]
        for values, seen in tuple(self._seen.items()):
            labels = dict(zip(self._labels, values, strict=True))
            counts = list(accumulate(tuple(seen.counts)))
            for bound, count in zip(bounds, counts, strict=True):
                family.add_sample(self._name + "_bucket", {**labels, "le": bound}, count)
            family.add_sample(self._name + "_count", labels, counts[-1])
            if self._bounds[0] >= 0:  # a sum of values of both signs is no counter
                family.add_sample(self._name + "_sum", labels, seen.total)
        yield family


class LadderMetrics:
    """The figures of the ladder and its rungs, in the worker's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self._rungs: dict[tuple[str, str, str | None], tuple[Counter, Values]] = {}
        self.rungs = counter("answerby_rungs_total", "Steps down the ladder, by rung, how it ended, and the reason it gave", "rung", "verdict", "reason")
        self.rung_seconds = Histogram("answerby_rung_seconds", "Time that a rung took when it was asked", ["rung"], buckets=RUNG_BUCKETS, registry=registry)
        self.breaker_state = gauge("answerby_breaker_state", "Whether a model is asked: 0 closed, 1 half-open, 2 open", "model")
        self.breaker_opened = counter("answerby_breaker_opened_total", "Times a model was left alone for a while", "model")
        self.cache = counter("answerby_cache_total", "What happened in the exact cache", "event")
        self.cache_entries = gauge("answerby_cache_entries", "Answers kept in this worker")
        self.cache_bytes = gauge("answerby_cache_bytes", "Of them together")
        self._cache_shared: Gauge | None = None
        self._registry = registry
        self.semantic = counter("answerby_semantic_cache_total", "What happened in the semantic cache", "event")
        self.semantic_entries = gauge("answerby_semantic_cache_entries", "Questions kept in this worker")
        self.semantic_bytes = gauge("answerby_semantic_cache_bytes", "Of their vectors together")
        self.semantic_seconds = Histogram("answerby_semantic_encode_seconds", "Encoding of one question", buckets=RUNG_BUCKETS, registry=registry)
        self.rules = gauge("answerby_rules", "Rules in force")
        self.rules_stale = gauge("answerby_rules_stale", "1 while the rule files are wrong and older rules are in force")
        self.rules_reloads = counter("answerby_rules_reloads_total", "Changed rule files that were taken, or refused", "result")
        self._counted: dict[tuple[Counter, str], Counter] = {}
        self.reviews = counter("answerby_reviews_total", "Disputed answers handed to feedback.topic, or dropped", "result")

    def observe_rung(self, rung: Rung, reason: Reason | None) -> None:
        """An event took a step down the ladder."""
        key = (rung.rung, rung.verdict, reason)
        counted = self._rungs.get(key)
        if counted is None:  # found once: looking labels up costs more than counting
            counted = self._rungs[key] = (self.rungs.labels(rung.rung, rung.verdict, reason or "none"), self.rung_seconds.labels(rung.rung))
        counted[0].inc()
        if rung.verdict != "skipped":
            counted[1].observe(rung.ms / 1000)

    def set_breaker(self, model: str, state: str) -> None:
        """A model's breaker is in this state now."""
        self.breaker_state.labels(model).set(BREAKER_STATES[state])
        opened = self.breaker_opened.labels(model)
        if state == "open":
            opened.inc()

    def observe_cache(self, event: str) -> None:
        """Something happened in the exact cache."""
        self._count(self.cache, event)

    def set_cache_shared(self, up: bool) -> None:
        """The store that workers share is asked now, or left alone. Where none is configured this is never called, and nothing is exported."""
        if self._cache_shared is None:
            text = "1 while the store of cache.shared is asked, 0 while it is left alone"
            self._cache_shared = Gauge("answerby_cache_shared_up", text, registry=self._registry)
        self._cache_shared.set(up)

    def observe_semantic(self, event: str) -> None:
        """Something happened in the semantic cache."""
        self._count(self.semantic, event)

    def observe_rules(self, ok: bool, rules: int, _problem: str | None) -> None:
        """Rule files were read: they are in force, or older rules still are."""
        self.rules.set(rules)
        self.rules_stale.set(not ok)
        self.rules_reloads.labels("taken" if ok else "refused").inc()

    def observe_review(self, handed: bool) -> None:
        """A disputed answer was handed to people, or could not be."""
        self.reviews.labels("handed" if handed else "dropped").inc()

    def _count(self, counter: Counter, label: str) -> None:
        """Children are found once: looking them up costs more than counting."""
        child = self._counted.get((counter, label))
        if child is None:
            child = self._counted[counter, label] = counter.labels(label)
        child.inc()


class Metrics:
    """One registry a worker. No label takes its value from an event's free text, session or event id."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.ladder = LadderMetrics(registry)
        self.events = counter("answerby_events_total", "Events answered, by outcome and reason", "outcome", "reason")
        self.dead_letters = counter("answerby_dead_letters_total", "Records that could not be answered", "reason")
        self.stage = Histogram("answerby_stage_seconds", "Time in each stage of an event", ["stage"], buckets=STAGE_BUCKETS, registry=registry)
        self.response = Histogram(
            "answerby_response_seconds", "From the event's start to its fixed response", ["outcome"], buckets=STAGE_BUCKETS, registry=registry
        )
        self.slack = Histogram("answerby_deadline_slack_seconds", "Due minus acknowledged", buckets=SLACK_BUCKETS, registry=registry)
        self.missed = counter("answerby_deadline_missed_total", "Responses acknowledged after their due")
        self.skew = counter("answerby_clock_skew_total", "Events stamped further ahead than deadline.max_skew_ms")
        self.engine_up = gauge("answerby_engine_up", "1 while the engine serves", "model", "version", "replica")
        self.engine_restarts = counter("answerby_engine_restarts_total", "Engine processes replaced", "model", "version", "replica")
        self.model_info = gauge("answerby_model_info", "1 for each model in use", "model", "version", "replica")
        self.engine_rss = gauge("answerby_engine_resident_bytes", "Memory of the engine process", "model", "replica")
        self.engine_faults = gauge("answerby_engine_major_faults", "Pages the engine had to read from disk since it started", "model", "replica")
        self.tokens = counter("answerby_tokens_total", "Tokens: prompt without cached, cached, completion without wasted, wasted", "model", "kind")
        self.step = Histogram("answerby_engine_step_seconds", "One step of an engine", ["model"], buckets=STAGE_BUCKETS, registry=registry)
        self.first_token_error = Histogram(
            "answerby_first_token_error_ratio", "Foreseen against measured time to the first token", ["model"], buckets=ERROR_BUCKETS, registry=registry
        )
        self.step_error = Histogram(
            "answerby_step_error_ratio", "Foreseen against measured time of a step", ["model"], buckets=ERROR_BUCKETS, registry=registry
        )
        self.batch = Histogram("answerby_engine_batch_requests", "Requests that made a token in a step", ["model"], buckets=BATCH_BUCKETS, registry=registry)
        self.kv_cache = gauge("answerby_engine_kv_cache_bytes", "KV cache reserved for an engine", "model", "replica")
        self.prefix_hits = gauge("answerby_prefix_cache_hit_ratio", "Share of prompt tokens found in the prefix cache, since the worker started", "model")
        self.promises = counter("answerby_admission_promises_total", "Admitted requests that got what they need, within the bound or not", "model", "kept")
        self.price = gauge("answerby_admission_price", "Priorities refused so that higher ones have room, in parts of one", "model")
        self.priced_out = counter("answerby_priced_out_total", "Requests refused by that price", "model")
        self.waiting = gauge("answerby_waiting_requests", "Requests that wait for a place in an engine's batch")
        self.running = gauge("answerby_running_requests", "Requests in engines' batches")
        self.in_flight = gauge("answerby_in_flight_events", "Events taken and not yet released")
        self.reserve = gauge("answerby_deadline_reserve_seconds", "Kept free at the end of each budget")
        self.store_stalls = counter("answerby_store_stalls_total", "Table accesses slower than worker.store_stall_ms")
        self.loop_lag = Histogram("answerby_loop_lag_seconds", "How late the event loop runs its timers", buckets=STAGE_BUCKETS, registry=registry)
        self.resident = gauge("answerby_worker_resident_bytes", "Memory of the worker process")
        self.redelivered = counter("answerby_redelivered_total", "Events answered again with the bytes kept for them")
        self.table_entries = gauge("answerby_table_entries", "Values kept in this worker", "table")
        self.table_bytes = gauge("answerby_table_bytes", "Of their keys and values", "table")
        self.sessions = gauge("answerby_sessions", "Sessions of which something is kept in this worker")
        self.erased = counter("answerby_erased_total", "Sessions, or persons' records, erased for their age or for want of room", "why")
        self.trimmed = counter("answerby_sessions_trimmed_total", "Times a session was too large to be written whole and lost its oldest parts")
        self.recovery_left = gauge("answerby_recovery_records_left", "Changelog records still to be read before events are answered")
        self.recovery_seconds = gauge("answerby_recovery_seconds", "Length of the tables' recovery that runs, or of the last one")
        self.split_sessions = counter("answerby_split_sessions_total", "Times a session came on another partition than before: its state is on the first one")
        self.seeks = counter("answerby_seek_backs_total", "Times records had to be read again because delivery had skipped some")

    def observe_step(self, model: str, step: Step) -> None:
        """An engine has done a step."""
        self.step.labels(model).observe(step.seconds)
        if step.seconds > 0:
            self.batch.labels(model).observe(step.batch)

    def render(self) -> bytes:
        """The exposition text; takes milliseconds, so call it off the loop."""
        self._set_hit_ratios()
        return generate_latest(self.registry)

    def _set_hit_ratios(self) -> None:
        """Made of the counters when somebody looks, so that the two never disagree."""
        samples = [sample for family in self.tokens.collect() for sample in family.samples if sample.name.endswith("_total")]
        counts = {(sample.labels["model"], sample.labels["kind"]): sample.value for sample in samples}
        for model in {model for model, _kind in counts}:
            cached, read = counts.get((model, "cached"), 0.0), counts.get((model, "prompt"), 0.0)
            if cached + read > 0:
                self.prefix_hits.labels(model).set(cached / (cached + read))


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of an exposition: a counter's, a gauge's, or one bucket's cumulative count (label `le`)."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse_exposition(text: str) -> tuple[Sample, ...]:
    """Read what `render` wrote, here or in another worker.

    Raises:
        ValueError: it is not an exposition.
    """
    return tuple(Sample(sample.name, sample.labels, sample.value) for family in text_string_to_metric_families(text) for sample in family.samples)
