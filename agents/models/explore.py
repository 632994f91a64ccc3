"""Which threads, prefill chunk and batch would answer most events in time: predicted from measured profiles by the real scheduler; pure, seeded.

Only threads and chunk need an engine to be started and measured; any batch size can be predicted from the same profile.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from agents.runtime.cost_model import CostModel
from agents.runtime.scheduler import Admitted, Scheduler, Work
from schemas.cost import CostProfile, StepCost

ARRIVALS = 200
"""Events of each prediction: shares are good to about three per cent, and all settings see the same arrivals, so their order is better than that."""

TRANSPORT_S = 0.006
"""From the producer's send to the scheduler's decision, through Kafka: measured 4 to 6 ms at the median."""

PIPE_S = 0.002
"""The engine cuts so much before the worker's timer, and what it makes until then still counts."""

TOO_CLOSE = 0.01
"""Mean shares nearer to each other than this are the same; then the shorter worst step decides, since it is what a newcomer waits for."""

P99_SIGMAS = 2.326
"""Where the p99 of a normal distribution lies."""

MAX_TAIL = 4.0
"""Times the median that a measured p99 may be: worse is a stop of the whole machine, and no setting mends that."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What can be set. `shares_core` tells that worker and broker would get no core of their own."""

    threads: int
    prefill_chunk: int
    max_batch: int
    shares_core: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Poisson arrivals of like requests: `rate` a second, `budget_s` each, `prompt` uncached tokens to read, `need` to `limit` tokens to make."""

    rate: float
    budget_s: float
    prompt: int
    need: int
    limit: int


@dataclass(frozen=True, slots=True)
class Point:
    """What one setting makes of one load: shares of all events, answers and tokens a second."""

    rate: float
    in_time: float
    whole: float
    answers_s: float
    tokens_s: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting with its predictions, by rising rate, and the longest step that is foreseen for it, in seconds."""

    setting: Setting
    points: tuple[Point, ...]
    worst_step_s: float

    @property
    def mean_share(self) -> float:
        """Of events answered in time, every rate counting alike."""
        return sum(point.in_time for point in self.points) / len(self.points)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set, and why in one sentence."""

    best: Candidate
    present: Candidate
    why: str


def even_out(profiles: Sequence[CostProfile]) -> tuple[CostProfile, ...]:
    """The same profiles with one set of decoding steps for each thread count, since the chunk has no part in them.

    Others on the machine can only add time: the shortest median of all starts is nearest to the model's own, and the usual tail goes with it. So a start
    that met a busy moment is not taken for a worse setting.
    """
    return tuple(msgspec.structs.replace(one, steps=_evened([other for other in profiles if other.threads == one.threads])) for one in profiles)


def unsteadiness(profiles: Sequence[CostProfile]) -> float:
    """How much longer the same decoding step took in one start than in another: 1.0 on a machine that is free all the time."""
    medians: dict[tuple[int, int], list[float]] = {}
    for profile in profiles:
        for step in profile.steps:
            medians.setdefault((profile.threads, step.batch), []).append(step.median)
    return max((max(found) / min(found) for found in medians.values() if min(found) > 0), default=1.0)


def _evened(alike: Sequence[CostProfile]) -> tuple[StepCost, ...]:
    batches = sorted({step.batch for profile in alike for step in profile.steps})
    steps = []
    for batch in batches:
        found = [step for profile in alike for step in profile.steps if step.batch == batch]
        median = min(step.median for step in found)
        steps.append(StepCost(batch, median, median * statistics.median(step.p99 / max(step.median, 1e-9) for step in found)))
    return tuple(steps)


def predict(profile: CostProfile, setting: Setting, loads: Sequence[Load], *, waiting: int, seed: int = 1) -> Candidate:
    """Play each load against a machine that keeps to `profile`."""
    points = tuple(_Play(profile, setting, load, waiting, seed).run() for load in loads)
    return Candidate(setting, points, worst_step_s(profile, setting))


def worst_step_s(profile: CostProfile, setting: Setting) -> float:
    """Seconds of the longest step that is foreseen: a full batch, or a whole chunk of prompts."""
    cost = CostModel(profile)
    return max(cost.bound_s(batch, max(1, setting.prefill_chunk - batch)) for batch in range(setting.max_batch + 1))


def advise(candidates: Sequence[Candidate], present: Setting) -> Advice:
    """The setting with the most answers in time; one that takes the worker's core only where no other can be had.

    Raises:
        ValueError: `present` is not among the candidates.
    """
    now = next((candidate for candidate in candidates if candidate.setting == present), None)
    if now is None:
        msg = f"the present setting {present} was not predicted"
        raise ValueError(msg)
    able = [candidate for candidate in candidates if not candidate.setting.shares_core] or list(candidates)
    top = max(candidate.mean_share for candidate in able)
    if top <= 0:
        return Advice(now, now, _hopeless(now))
    near = [candidate for candidate in able if candidate.mean_share > top - TOO_CLOSE]
    best = now if now in near and now.worst_step_s <= 1.2 * min(one.worst_step_s for one in near) else min(near, key=_tie_break)
    return Advice(best, now, _reason(best, now, candidates))


def _hopeless(now: Candidate) -> str:
    step = f"worst step {now.worst_step_s * 1000:.0f} ms as it is set"
    return f"no setting answers anything in time ({step}): raise the deadline, take a smaller model, or measure on a free machine"


def _tie_break(candidate: Candidate) -> tuple[float, int, int]:
    return (candidate.worst_step_s, candidate.setting.max_batch, candidate.setting.threads)


def _reason(best: Candidate, now: Candidate, candidates: Sequence[Candidate]) -> str:
    rates = f"{best.points[0].rate:g} to {best.points[-1].rate:g} events/s"
    text = f"{best.mean_share:.0%} of events in time over {rates}, {_figures(best)}"
    if best is now:
        text += "; nothing tried is better than what is set"
    else:
        text += f"; as it is set now {now.mean_share:.0%}, {_figures(now)}"
    sharing = max((one for one in candidates if one.setting.shares_core), key=lambda one: one.mean_share, default=None)
    if sharing is not None and not best.setting.shares_core and sharing.mean_share > best.mean_share + TOO_CLOSE:
        threads = sharing.setting.threads
        text += f"; {threads} threads would give {sharing.mean_share:.0%} on a machine of their own, but leave worker and broker no core"
    return text


def _figures(one: Candidate) -> str:
    last = one.points[-1]
    return f"{last.answers_s:.1f} answers/s at {last.rate:g}/s, worst step {one.worst_step_s * 1000:.0f} ms"


@dataclass(slots=True, eq=False)
class _Run:
    """A request on the engine."""

    work: Work
    prefill: int
    tokens: int = 0


class _Play:
    """One load against one setting: the scheduler decides, the engine's rule steps, the profile says how long a step takes."""

    def __init__(self, profile: CostProfile, setting: Setting, load: Load, waiting: int, seed: int) -> None:
        self._load, self._chunk = load, setting.prefill_chunk
        self._random = random.Random(seed)
        self._truth = CostModel(profile)
        self._tails = [(step.batch, math.log(min(MAX_TAIL, max(1.0, step.p99 / max(step.median, 1e-9)))) / P99_SIGMAS) for step in profile.steps]
        self._scheduler = Scheduler(CostModel(profile), max_batch=setting.max_batch, waiting=waiting, prefill_chunk=setting.prefill_chunk)
        self._engine: dict[int, _Run] = {}
        self._held: dict[int, Work] = {}
        self._plan: tuple[float, float, list[_Run], int] | None = None
        self._made: list[int] = []

    def run(self) -> Point:
        """Play every arrival to its end."""
        last = 0.0
        for number, sent in enumerate(self._arrivals()):
            self._step_until(sent + TRANSPORT_S)
            self._offer(number, sent)
            last = sent
        self._step_until(math.inf)
        need = self._load.need
        in_time = [tokens for tokens in self._made if tokens >= need]
        seconds = max(last, 1e-9)
        whole = sum(tokens >= self._load.limit for tokens in in_time)
        return Point(self._load.rate, len(in_time) / ARRIVALS, whole / ARRIVALS, len(in_time) / seconds, sum(in_time) / seconds)

    def _arrivals(self) -> Iterator[float]:
        """The same for every setting: their generator is their own, so that what a setting does to the steps' noise does not move them."""
        generator, at = random.Random(self._load.rate), 0.0
        for _ in range(ARRIVALS):
            at += generator.expovariate(self._load.rate)
            yield at

    def _offer(self, number: int, sent: float) -> None:
        now = sent + TRANSPORT_S
        work = Work(number, self._load.prompt, self._load.need, self._load.limit, sent + self._load.budget_s - PIPE_S)
        decision = self._scheduler.offer(work, now)
        if not isinstance(decision, Admitted):
            return
        if decision.now:
            self._engine[number] = _Run(work, work.prefill)
            if self._plan is None:
                self._begin(now)
        else:
            self._held[number] = work

    def _step_until(self, moment: float) -> None:
        while self._plan is not None and self._plan[0] <= moment:
            self._finish(self._plan[0])

    def _begin(self, now: float) -> None:
        """Cut what the next step would only bring too late, then plan it: who is read makes a token, the rest of the chunk reads prompts in order."""
        self._plan = None
        while self._engine:
            reading, speaking = self._next_step()
            likely = self._scheduler.cost.step_s(len(speaking), sum(taken for _, taken in reading))
            late = [run for run in self._engine.values() if run.work.due <= now + likely]
            if not late:
                seconds = self._truth.step_s(len(speaking), sum(taken for _, taken in reading)) * self._noise(len(speaking))
                for run, taken in reading:
                    run.prefill -= taken
                self._plan = (now + seconds, seconds, speaking, sum(taken for _, taken in reading))
                return
            for run in late:
                self._end(run)
            self._let_in(now)

    def _next_step(self) -> tuple[list[tuple[_Run, int]], list[_Run]]:
        speaking = [run for run in self._engine.values() if run.prefill == 0]
        room = max(1, self._chunk - len(speaking))
        reading: list[tuple[_Run, int]] = []
        for run in self._engine.values():
            taken = min(run.prefill, room)
            if taken > 0:
                reading.append((run, taken))
                room -= taken
                if taken == run.prefill:
                    speaking.append(run)
        return reading, speaking

    def _finish(self, now: float) -> None:
        if self._plan is None:
            return
        _, seconds, speaking, read = self._plan
        for run in speaking:
            run.tokens += now <= run.work.due + PIPE_S
        for run in list(self._engine.values()):
            self._scheduler.progress(run.work.id, prefill=run.prefill, tokens=run.tokens)
            if run.tokens >= run.work.limit:
                self._end(run)
        self._scheduler.stepped(len(speaking), read, seconds, now)
        self._let_in(now)
        self._begin(now)

    def _end(self, run: _Run) -> None:
        self._made.append(run.tokens)
        self._scheduler.end(run.work.id)
        del self._engine[run.work.id]

    def _let_in(self, now: float) -> None:
        start, lost = self._scheduler.ready(now)
        for number in start:
            work = self._held.pop(number)
            self._engine[number] = _Run(work, work.prefill)
        for number in lost:
            del self._held[number]

    def _noise(self, batch: int) -> float:
        """How much longer than its median a step takes: as widely spread as the nearest smaller batch that was measured."""
        sigma = next((tail for size, tail in reversed(self._tails) if size <= max(1, batch)), self._tails[0][1])
        return math.exp(sigma * self._random.gauss(0.0, 1.0))
