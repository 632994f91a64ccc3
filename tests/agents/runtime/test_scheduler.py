"""The scheduler against the rule it predicts, with a moved clock and a machine that keeps to its profile."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.cost_model import CostModel
from agents.runtime.scheduler import Admitted, Refused, Scheduler, Work
from agents.runtime.shares import TENANTS, Shares
from schemas.cost import CostProfile, StepCost

PROFILE = CostProfile(
    "m", "1", 1, "cpu", 32, tuple(StepCost(batch, 0.010 + 0.001 * batch, 0.010 + 0.001 * batch) for batch in (1, 2, 4, 8, 16)), 0.001, 1.0, 4.0
)


def scheduler(*, max_batch: int = 8, waiting: int = 8) -> Scheduler:
    """One over a machine without spread."""
    return Scheduler(CostModel(PROFILE), max_batch=max_batch, waiting=waiting, prefill_chunk=32)


def work(number: int, *, due: float, prefill: int = 40, need: int = 6, limit: int = 16, tenant: str = "t") -> Work:
    """A request with a prompt of two chunks."""
    return Work(number, prefill, need, limit, due, tenant)


def test_idle_engine_takes_what_fits() -> None:
    """A request whose minimum fits its time runs at once."""
    decision = scheduler().offer(work(1, due=0.3), 0.0)
    assert isinstance(decision, Admitted)
    assert decision.now


def test_what_no_engine_could_do_is_a_deadline_matter() -> None:
    """`deadline` when even an idle engine is too slow; `overload` when only the others are in the way."""
    busy = scheduler()
    busy.stepped(1, 0, 0.011, 0.0)
    refused = busy.offer(work(1, due=0.05), 0.0)
    assert isinstance(refused, Refused)
    assert refused.reason == "deadline"
    results = [busy.offer(work(number, due=0.3), 0.0) for number in range(2, 30)]
    reasons = {result.reason for result in results if isinstance(result, Refused)}
    assert reasons == {"overload"}


def test_pessimism_is_checked_on_an_idle_engine() -> None:
    """Figures that refuse everybody are tried out once a second, so that a slow moment is not believed for good."""
    slow = CostModel(PROFILE)
    for _ in range(200):
        slow.learn(1, 0, 0.1, 0.0)
    plan = Scheduler(slow, max_batch=8, waiting=0, prefill_chunk=32)
    plan.stepped(1, 0, 0.1, 0.0)
    assert isinstance(plan.offer(work(1, due=0.8), 0.5), Refused)
    assert isinstance(plan.offer(work(2, due=1.8), 1.5), Admitted)
    plan.end(2)
    assert isinstance(plan.offer(work(3, due=1.9), 1.6), Refused)


def test_expired_is_never_the_most_urgent() -> None:
    """A due in the past is refused, not put first."""
    assert isinstance(scheduler().offer(work(1, due=-1.0), 0.0), Refused)


def test_waiting_is_earliest_due_first() -> None:
    """Of those that wait for a place, the earliest due gets it, whoever came first."""
    one = scheduler(max_batch=1)
    assert one.offer(work(1, due=9.0, prefill=1), 0.0) == Admitted(True)
    for number, due in ((2, 8.0), (3, 4.0)):
        decision = one.offer(work(number, due=due, prefill=1), 0.0)
        assert isinstance(decision, Admitted)
        assert not decision.now
    one.end(1)
    assert one.ready(1.0) == ([3], [])


def test_waiting_request_whose_time_has_gone_is_given_up() -> None:
    """What can no longer make it is said at once, and never runs."""
    one = scheduler(max_batch=1)
    one.offer(work(1, due=9.0, prefill=1), 0.0)
    one.offer(work(2, due=1.0, prefill=1), 0.0)
    one.end(1)
    assert one.ready(0.99) == ([], [2])


class _Machine:
    """An engine that does exactly what the profile says, step by step."""

    def __init__(self, plan: Scheduler) -> None:
        self.plan = plan
        self.now = 0.0
        self.works: dict[int, Work] = {}
        self.met: dict[int, float] = {}

    def submit(self, number: int, *, budget: float, prefill: int, tenant: str = "t") -> bool:
        item = work(number, due=self.now + budget, prefill=prefill, tenant=tenant)
        decision = self.plan.offer(item, self.now)
        if isinstance(decision, Admitted):
            self.works[number] = item
        return isinstance(decision, Admitted)

    def run_until(self, moment: float) -> None:
        while self.now < moment:
            for lost in self.plan.ready(self.now)[1]:
                del self.works[lost]
            live = [item for item in self.works.values() if item.on_engine]
            if not live:
                self.now = moment
                return
            decoding = [item for item in live if item.prefill == 0]
            budget = 32 - len(decoding)
            read = 0
            for item in live:
                if item.prefill and budget > read:
                    taken = min(item.prefill, budget - read)
                    item.prefill -= taken
                    read += taken
                    if item.prefill == 0:
                        decoding.append(item)
            self.now += self.plan.cost.step_s(len(decoding), read)
            for item in decoding:
                item.tokens += 1
                if item.tokens == item.need:
                    self.met[item.id] = self.now
                if item.tokens >= item.limit:
                    self.plan.end(item.id)
                    del self.works[item.id]
            for item in [item for item in live if item.due <= self.now and item.id in self.works]:
                self.plan.end(item.id)
                del self.works[item.id]


@given(st.lists(st.tuples(st.floats(0.0, 0.08), st.floats(0.1, 1.0), st.integers(1, 90)), min_size=1, max_size=40))
def test_admitted_requests_keep_their_dues(arrivals: list[tuple[float, float, int]]) -> None:
    """However they arrive, whoever was admitted has what it needs by its due, on a machine that keeps to its profile."""
    machine = _Machine(scheduler(waiting=0))
    admitted: dict[int, float] = {}
    for number, (gap, budget, prefill) in enumerate(arrivals):
        machine.run_until(machine.now + gap)
        if machine.submit(number, budget=budget, prefill=prefill) and not machine.works[number].probe:
            admitted[number] = machine.now + budget
    machine.run_until(machine.now + 2.0)
    late = {number: (machine.met.get(number), due) for number, due in admitted.items() if machine.met.get(number, 1e9) > due + 1e-9}
    assert not late


def test_load_without_end_does_not_collapse() -> None:
    """At ten times the capacity, answers in time stay near the capacity."""
    machine = _Machine(scheduler())
    for number in range(600):
        machine.run_until(machine.now + 0.005)
        machine.submit(number, budget=0.3, prefill=30)
    machine.run_until(machine.now + 1.0)
    assert len(machine.met) / 3.0 > 10


def test_two_tenants_at_ten_to_one_both_get_a_share() -> None:
    """A flood of one tenant leaves the other its places."""
    machine = _Machine(scheduler())
    asked, given_to = {"loud": 0, "quiet": 0}, {"loud": 0, "quiet": 0}
    for number in range(1100):
        machine.run_until(machine.now + 0.005)
        tenant = "quiet" if number % 11 == 0 else "loud"
        asked[tenant] += 1
        given_to[tenant] += machine.submit(number, budget=0.3, prefill=30, tenant=tenant)
    assert given_to["quiet"] > 0.7 * min(asked["quiet"], given_to["loud"])


def test_a_flood_of_a_low_priority_leaves_a_high_one_its_answers() -> None:
    """Four of five requests of priority 9 are still admitted beside thirty times as many of priority 1, which fill the rest."""
    machine = _Machine(scheduler())
    asked, admitted = {1: 0, 9: 0}, {1: 0, 9: 0}
    for number in range(4000):
        machine.run_until(machine.now + 0.005)
        priority = 9 if number % 31 == 0 else 1
        item = Work(number, 30, 6, 16, machine.now + 0.3, "t", priority=priority)
        decision = machine.plan.offer(item, machine.now)
        asked[priority] += 1
        if isinstance(decision, Admitted):
            machine.works[number] = item
            admitted[priority] += 1
    assert admitted[9] > 0.8 * asked[9]
    assert admitted[1] > 0.5 * admitted[9]


def test_an_engine_that_nobody_uses_is_kept_for_nobody() -> None:
    """With one place, a tenant that had more than its share gets it again when the other one does not come."""
    machine = _Machine(scheduler(max_batch=1, waiting=0))
    for number in range(40):
        machine.submit(number, budget=0.3, prefill=30, tenant="loud")
        machine.submit(100 + number, budget=0.3, prefill=30, tenant="quiet")
        machine.run_until(machine.now + 0.02)
    machine.run_until(machine.now + 1.0)
    assert machine.submit(1000, budget=0.3, prefill=30, tenant="loud")


def test_shares_are_forgotten() -> None:
    """A tenant that was loud a minute ago is not held back now."""
    shares = Shares()
    shares.note("loud", 1000, 0.0)
    shares.note("quiet", 10, 0.0)
    shares.press("quiet", 0.1)
    assert shares.is_greedy("loud", 0.2)
    shares.press("quiet", 60.0)
    shares.note("quiet", 10, 60.0)
    assert not shares.is_greedy("loud", 60.1)


def test_cost_model_follows_a_machine_that_slows_down() -> None:
    """After a neighbour took half the core, predictions follow within a few dozen steps, and the bound covers the spread."""
    cost = CostModel(PROFILE)
    for _ in range(100):
        cost.learn(4, 0, 0.028, 0.0)
    assert abs(cost.step_s(4) - 0.028) < 0.0015
    for index in range(200):
        cost.learn(4, 0, 0.028 if index % 6 else 0.042, 0.0)
    assert cost.bound_s(4) >= 0.040


def test_tenants_without_number_are_not_remembered_without_bound() -> None:
    """However many tenants come at once, those seen last are known and the rest is forgotten."""
    shares = Shares()
    for number in range(3 * TENANTS):
        shares.note(f"t{number}", 1.0, 0.001 * number)
        shares.press(f"t{number}", 0.001 * number)
    assert shares.known <= TENANTS
    shares.note("loud", 1e6, 4.0)
    assert shares.is_greedy("loud", 4.0)


def test_reading_and_speaking_are_the_same_work() -> None:
    """A step of a few decoding requests and the rest of a prompt lies on the line from decoding to a whole chunk, not on the sum of both."""
    cost = CostModel(msgspec.structs.replace(PROFILE, prefill_chunk=64, chunk_s=0.074))
    assert cost.step_s(0, 64) == pytest.approx(0.074)
    assert cost.step_s(4, 36) == pytest.approx(cost.step_s(0, 40))
    assert cost.step_s(2, 30) < cost.step_s(2) + cost.step_s(0, 30)


def test_a_burst_of_many_tenants_is_refused_without_a_forecast_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine cannot do for one it cannot do for another either, until something changes."""
    plan = scheduler(waiting=0)
    forecasts = 0
    predict = plan._predict

    def counted(*arguments: object) -> object:
        nonlocal forecasts
        forecasts += 1
        return predict(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(plan, "_predict", counted)
    results = [plan.offer(work(number, due=0.3 + number * 1e-5, prefill=40 + number % 2, tenant=f"t{number % 7}"), 0.0) for number in range(200)]
    assert sum(isinstance(result, Refused) for result in results) > 150
    assert forecasts < 100
    for number in range(200):
        plan.end(number)
    assert isinstance(plan.offer(work(1000, due=0.4), 0.0), Admitted)
