"""Who may use the engine: earliest deadline first with a feasibility test, decided again at every step; pure, no I/O, moments are handed in.

Plain earliest-deadline-first collapses under overload, since everybody waits for somebody who is late already. Here
nothing is admitted that is predicted to miss its due or to make an admitted request miss its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from agents.runtime.cost_model import CostModel
from agents.runtime.shares import Shares

HORIZON_STEPS = 400
"""Steps that a prediction looks ahead: beyond them, at 5 ms a step, lies a budget of seconds, and there the tail no longer decides."""

PROBE_S = 1.0
"""An idle engine that refuses is asked so often whether it is still that slow; the probe's own answer comes by its due all the same."""

MAX_PROBE_S = 4.0
"""Each probe in vain doubles the pause up to this: a model that is too slow for its events must not cost one of them its time every second, and one
that was slow for a moment is back within so many seconds (at 16, a machine on the border answered 1 % where it could have answered 20)."""

SAFETY = 2.0
"""From the 90 % tail of single steps that the cost model knows (1.3 deviations) to the 99.5 % that a promise is to keep (2.6)."""

IDLE_S = 0.1
"""An engine that has had nothing to do for so long has room for anybody: a place is not kept for somebody who does not come."""

ALIKE_S = 0.005
"""How much later than a refused request another may be due and still be refused with it: less than a step, so nothing has become possible."""

ALIKE_TOKENS = 2
"""How many prompt tokens fewer, for the same reason."""

ALIKE_KEPT = 64
"""Different askers whose refusal is remembered until the next step; more are forecast anew."""

_Who = tuple[str, str, int]
"""Tenant, lane and priority."""


@dataclass(slots=True)
class Work:
    """A request as the scheduler sees it. `due` is when its last token must be made, monotonic seconds."""

    id: int
    prefill: int
    """Prompt tokens not read yet (those in the prefix cache are not counted)."""
    need: int
    """Tokens that make an answer worth sending."""
    limit: int
    """Tokens it may make at most."""
    due: float
    tenant: str = ""
    lane: str = ""
    """The scenario within the tenant."""
    priority: int = 5
    weight: float = 1.0
    """Of the scenario, among those of its priority."""
    tokens: int = 0
    first_at: float = 0.0
    """When its first token was foreseen, at admission."""
    offered: float = 0.0
    probe: bool = False
    """Admitted to find out, not on a promise."""
    on_engine: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request may run; `now` says whether it goes to the engine at once or waits for a place. How long it may speak follows from its due, step by step."""

    now: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """`deadline`: even an idle engine would have been too slow; `overload`: an idle one would have done it."""

    reason: Literal["deadline", "overload"]
    why: str


@dataclass(slots=True)
class _Sim:
    """One request inside a prediction."""

    work: Work
    prefill: int
    tokens: int
    met_at: float = field(default=float("inf"))
    first_at: float = field(default=float("inf"))


class Scheduler:
    """Decides for one engine process. Whoever owns it reports steps and ends, and does what `ready` says."""

    def __init__(self, cost: CostModel, *, max_batch: int, waiting: int, prefill_chunk: int) -> None:
        self.cost = cost
        self._max_batch = max_batch
        self._waiting_limit = waiting
        self._chunk = prefill_chunk
        self._works: dict[int, Work] = {}
        self.shares = Shares()
        self._step_ends = 0.0
        self._foreseen: dict[int, tuple[int, int]] = {}
        """Prompt tokens left and tokens made, for each request, at the end of the step that runs: nobody can join before."""
        self._refused: dict[_Who | None, tuple[Work, str]] = {}
        """Who was refused last since anything changed; None for what the engine itself could not do, whoever asks."""
        self._stepped_at = float("-inf")
        self._probe_pause_s = PROBE_S

    @property
    def running(self) -> int:
        """Requests on the engine."""
        return sum(work.on_engine for work in self._works.values())

    @property
    def waiting(self) -> int:
        """Requests admitted that wait for a place in the batch."""
        return len(self._works) - self.running

    def worst_step_s(self) -> float:
        """Seconds of the longest step that can be asked for."""
        return self.cost.bound_s(self._max_batch, self._chunk)

    def is_waiting(self, request_id: int) -> bool:
        """Whether a request is admitted and has no place in the batch yet."""
        work = self._works.get(request_id)
        return work is not None and not work.on_engine

    def offer(self, work: Work, now: float) -> Admitted | Refused:
        """Admit `work` if it and everybody admitted before it keep their dues."""
        if (known := self._refused_alike(work)) is not None:
            return self._turn_away(work, now, known)
        alone, offered = self._predict([work], now), now
        now = max(now, self._step_ends)
        if alone[work.id].met_at > work.due and not self._may_probe(work, offered):
            late = alone[work.id].met_at - work.due
            how = f"{late * 1000:.0f} ms late" if late < math.inf else "far too late"
            return Refused("deadline", f"{work.need} tokens would be {how} on an idle engine")
        if not self.shares.lets_in(work.priority, now, idle=not self._works):
            return Refused("overload", f"priority {work.priority} has to make room for higher ones")
        full = self.running >= self._max_batch
        if full and self.waiting >= self._waiting_limit:
            return self._refuse(work, now, "the queue is full", by=None)
        others = list(self._works.values())
        before = self._predict(others, now)
        after = self._predict([*others, work], now)
        if after[work.id].met_at > work.due and others:
            return self._refuse(work, now, "it would be late behind those before it", by=None)
        hurt = next((other for other in others if before[other.id].met_at <= other.due < after[other.id].met_at), None)
        if hurt is not None:
            return self._refuse(work, now, "an admitted request would be late", by=None)
        kept = self.shares.kept(work.tenant, now, lane=work.lane, priority=work.priority)
        if kept and not self._leaves_room(work, after, now, kept):
            return self._refuse(work, now, "what is free is kept for others", by=_who(work), raises_price=False)
        work.offered = offered
        work.first_at = self._first_token_at([*others, work], work, now)
        if not work.probe:
            self._probe_pause_s = PROBE_S
        work.on_engine = not full
        self._works[work.id] = work
        self.shares.note(work.tenant, _cost(work), now, lane=work.lane, priority=work.priority, weight=work.weight)
        return Admitted(work.on_engine)

    def ready(self, now: float) -> tuple[list[int], list[int]]:
        """Which waiting requests go to the engine now, and which can no longer make it: earliest due first, decided again each time."""
        start: list[int] = []
        lost: list[int] = []
        if self.running >= self._max_batch:
            return start, lost  # nothing can be done for them now, and a forecast for each at every step would hold the loop
        for work in sorted((work for work in self._works.values() if not work.on_engine), key=lambda work: work.due):
            if self._predict([*self._on_engine(), work], max(now, self._step_ends))[work.id].met_at > work.due:
                lost.append(work.id)
                del self._works[work.id]
            elif self.running < self._max_batch:
                work.on_engine = True
                start.append(work.id)
        return start, lost

    def stepped(self, batch: int, prefill_tokens: int, seconds: float, now: float) -> float | None:
        """The engine ended a step: learn from it, and foresee when the next one, which nobody can join, ends; returns the relative error."""
        error = self.cost.learn(batch, prefill_tokens, seconds, now)
        self._refused.clear()
        self._stepped_at = now
        self._foreseen = {}
        sims = self._start(self._on_engine())
        self._step_ends = now + self._advance(sims, now) if sims else now
        self._foreseen = {sim.work.id: (sim.prefill, sim.tokens) for sim in sims}
        return error

    def progress(self, request_id: int, *, prefill: int, tokens: int) -> None:
        """The engine says how far a request is."""
        work = self._works.get(request_id)
        if work is not None:
            work.prefill, work.tokens = prefill, tokens

    def end(self, request_id: int) -> Work | None:
        """A request has ended, or nobody waits for it any more."""
        self._refused.clear()
        work = self._works.pop(request_id, None)
        if work is not None and work.probe:
            self._probe_pause_s = PROBE_S if work.tokens >= work.need else min(MAX_PROBE_S, 2 * self._probe_pause_s)
        return work

    def clear(self) -> None:
        """The engine is gone, and all its work with it."""
        self._refused.clear()
        self._foreseen.clear()
        self._works.clear()

    def _may_probe(self, work: Work, now: float) -> bool:
        """Let one through now and then on an idle engine: figures that refuse everybody would never be corrected by anybody."""
        if self._works or now - self._stepped_at < self._probe_pause_s or work.due <= now:
            return False
        self._stepped_at = now
        work.probe = True
        return True

    def _on_engine(self) -> list[Work]:
        return [work for work in self._works.values() if work.on_engine]

    def _refuse(self, work: Work, now: float, why: str, *, by: _Who | None, raises_price: bool = True) -> Refused:
        if len(self._refused) >= ALIKE_KEPT:
            self._refused.clear()
        self._refused[by] = work, why
        return self._turn_away(work, now, why, raises_price=raises_price)

    def _turn_away(self, work: Work, now: float, why: str, *, raises_price: bool = True) -> Refused:
        others = [other.priority for other in self._works.values()] if raises_price else ()
        self.shares.press(work.tenant, now, cost=_cost(work), lane=work.lane, priority=work.priority, weight=work.weight, others=others)
        return Refused("overload", why)

    def _refused_alike(self, work: Work) -> str | None:
        """Why one that asked for no less was refused since anything changed: a burst is refused in microseconds, not in forecasts."""
        for by in (None, _who(work)):
            other, why = self._refused.get(by, (None, ""))
            if other is not None and work.prefill + ALIKE_TOKENS >= other.prefill and work.need >= other.need and work.due <= other.due + ALIKE_S:
                return why
        return None

    def _leaves_room(self, work: Work, after: dict[int, _Sim], now: float, places: int) -> bool:
        """Whether so many more requests like this one would still fit behind it, without a promise broken; half of the batch is never kept."""
        if len(after) == 1 and now - self._stepped_at > IDLE_S:
            return True
        places = min(places, max(1, self._max_batch // 2))
        if len(after) + places > self._max_batch:
            return False
        twins = [Work(-1 - number, work.prefill, work.need, work.limit, work.due) for number in range(places)]
        all_of_them = self._predict([*(sim.work for sim in after.values()), *twins], now)
        promised = [*twins, *(sim.work for sim in after.values() if sim.met_at <= sim.work.due)]
        return all(all_of_them[one.id].met_at <= one.due for one in promised)

    def _first_token_at(self, works: list[Work], work: Work, now: float) -> float:
        """When `work` is likely to speak: for judging predictions, no promise hangs on it."""
        sims, at = self._start(works), now
        mine = next(sim for sim in sims if sim.work is work)
        for _ in range(HORIZON_STEPS):
            if mine.first_at < float("inf"):
                break
            at += self._advance(sims, at)
        return mine.first_at

    def _predict(self, works: Iterable[Work], now: float) -> dict[int, _Sim]:
        """Run the engine's own rule forward until everybody has what they need or their time is over.

        Steps vary on their own, so what a promise needs on top of the likely time grows with the root of their number:
        the tail of every single step, added up, would refuse half of what fits.
        """
        sims, at = self._start(list(works)), now
        excess, squares, last = self.cost.spread - 1.0, 0.0, 0.0
        for _ in range(HORIZON_STEPS):
            if all(sim.met_at < float("inf") or at > sim.work.due for sim in sims):
                break
            margin = SAFETY * excess * math.sqrt(squares + last * last)
            last = self._advance(sims, at, margin)
            squares += last * last
            at += last
        return {sim.work.id: sim for sim in sims}

    def _start(self, works: list[Work]) -> list[_Sim]:
        """Those on the engine in their order there, then those that wait by due."""
        order = [work for work in works if work.on_engine] + sorted((work for work in works if not work.on_engine), key=lambda work: work.due)
        return [self._sim(work) for work in order]

    def _sim(self, work: Work) -> _Sim:
        prefill, tokens = self._foreseen.get(work.id, (work.prefill, work.tokens))
        return _Sim(work, prefill, tokens, 0.0 if tokens >= work.need else float("inf"))

    def _advance(self, sims: list[_Sim], at: float, margin: float = 0.0) -> float:
        """One likely step of the batch: every prompt that is read gives a token, the rest of the chunk reads prompts in order.

        Returns its seconds. `margin` is what to add to `at` for a promise.
        """
        live = [sim for sim in sims if sim.tokens < sim.work.limit and sim.work.due > at][: self._max_batch]
        decoding = [sim for sim in live if sim.prefill == 0]
        budget = max(1, self._chunk - len(decoding))
        read = 0
        begun: list[_Sim] = []
        for sim in live:
            if sim.prefill > 0 and budget > read:
                taken = min(sim.prefill, budget - read)
                sim.prefill -= taken
                read += taken
                if sim.prefill == 0:
                    begun.append(sim)
        seconds = self.cost.step_s(len(decoding) + len(begun), read)
        for sim in (*decoding, *begun):
            sim.tokens += 1
            if sim.tokens == 1:
                sim.first_at = at + seconds
            if sim.tokens == sim.work.need:
                sim.met_at = at + seconds + margin
        return seconds


def _who(work: Work) -> _Who:
    return work.tenant, work.lane, work.priority


def _cost(work: Work) -> float:
    """What a request takes from the others, in prompt tokens' worth."""
    return work.prefill + 4.0 * work.need
