"""Who gets the engine when there is not enough for all, on an engine of a few places that serves by the clock."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.shares import PRIORITIES, TENANTS, Shares

PLACES = 8
SERVICE_S = 0.5
"""So the engine serves 16 a second."""


@dataclass(slots=True)
class Crowd:
    """Requests of one kind that come by chance, `rate` a second."""

    tenant: str
    rate: float
    priority: int = 5
    lane: str = ""
    weight: float = 1.0
    since: float = 0.0
    until: float = 40.0
    asked: int = 0
    served: int = 0
    priced_out: int = 0


@dataclass(slots=True)
class Engine:
    """Places, each taken for about SERVICE_S; who finds none is refused. Asks the shares as the scheduler does."""

    shares: Shares = field(default_factory=Shares)
    running: list[tuple[float, int]] = field(default_factory=list)
    ended: float = -1e9

    def offer(self, crowd: Crowd, now: float, service_s: float) -> str:
        """How it went: `served`, `full`, `kept` for others, or `price`."""
        while self.running and self.running[0][0] <= now:
            self.ended = heapq.heappop(self.running)[0]
        idle = not self.running
        if not self.shares.lets_in(crowd.priority, now, idle=idle):
            return "price"
        free = PLACES - len(self.running)
        kept = min(PLACES // 2, self.shares.kept(crowd.tenant, now, lane=crowd.lane, priority=crowd.priority))
        if free <= kept and not (idle and now - self.ended > 0.1):
            others = [priority for _, priority in self.running] if free == 0 else ()
            self.shares.press(crowd.tenant, now, cost=60, lane=crowd.lane, priority=crowd.priority, weight=crowd.weight, others=others)
            return "kept" if free else "full"
        self.shares.note(crowd.tenant, 60, now, lane=crowd.lane, priority=crowd.priority, weight=crowd.weight)
        heapq.heappush(self.running, (now + service_s, crowd.priority))
        return "served"


def serve(*crowds: Crowd, warm: float = 10.0, seed: int = 5) -> Shares:
    """Let them come, and count what each got once the first `warm` seconds are over."""
    chance = random.Random(seed)
    arrivals: list[tuple[float, int]] = []
    for number, crowd in enumerate(crowds):
        at = crowd.since
        while (at := at + chance.expovariate(crowd.rate)) < crowd.until:
            arrivals.append((at, number))
    engine = Engine()
    for now, number in sorted(arrivals):
        crowd = crowds[number]
        outcome = engine.offer(crowd, now, SERVICE_S * chance.uniform(0.8, 1.2))
        if now >= warm:
            crowd.asked += 1
            crowd.served += outcome == "served"
            crowd.priced_out += outcome == "price"
    return engine.shares


def test_a_tenant_alone_gets_everything() -> None:
    """Without others there is nothing to be fair about, whatever it asks for."""
    alone = Crowd("alone", 150)
    shares = serve(alone)
    assert alone.served / 30 > 15
    assert shares.price == 0


def test_two_tenants_at_ten_to_one_share_evenly_while_both_want_more() -> None:
    """The one that asks for as much as the engine can do gets about half of what is served, beside ten times as much."""
    loud, quiet = Crowd("loud", 160), Crowd("quiet", 16)
    serve(loud, quiet)
    assert 0.42 < quiet.served / (quiet.served + loud.served) < 0.58
    assert (quiet.served + loud.served) / 30 > 14


def test_who_asks_for_less_than_its_share_gets_most_of_it_and_the_rest_goes_to_the_other() -> None:
    """Max-min: what one does not want is not kept from the other."""
    loud, quiet = Crowd("loud", 60), Crowd("quiet", 3)
    serve(loud, quiet)
    assert quiet.served > 0.75 * quiet.asked
    assert loud.served / 30 > 10.5


def test_ten_tenants_get_the_same_whatever_they_send() -> None:
    """From 8 to 80 a second: nobody gains by asking louder."""
    crowds = [Crowd(f"t{number}", 8.0 * (number + 1)) for number in range(10)]
    serve(*crowds)
    served = sorted(crowd.served for crowd in crowds)
    assert served[-1] < 2 * served[0]


def test_a_tenants_scenarios_share_by_weight_and_take_nothing_from_another_tenant() -> None:
    """Three to one inside, half and half outside, however many scenarios one has."""
    heavy, light = Crowd("many", 50, lane="a", weight=3.0), Crowd("many", 50, lane="b", weight=1.0)
    other = Crowd("other", 50)
    serve(heavy, light, other)
    assert 1.8 < heavy.served / light.served < 4.5
    assert 0.4 < other.served / (heavy.served + light.served + other.served) < 0.6


def test_the_highest_priority_hardly_feels_a_flood_of_a_low_one() -> None:
    """Fifty times as much of priority 1 costs priority 9 little of what it would have had alone, and what it leaves is used."""
    alone = Crowd("b", 4, priority=9)
    serve(alone)
    flood, high = Crowd("a", 200, priority=1), Crowd("b", 4, priority=9)
    serve(flood, high)
    assert high.served > 0.88 * alone.served
    assert (flood.served + high.served) / 30 > 9


def test_the_price_is_what_refuses_a_flood_and_it_is_counted() -> None:
    """Most of the flood is turned away before anything is foreseen for it."""
    flood, high = Crowd("a", 200, priority=1), Crowd("b", 8, priority=9)
    shares = serve(flood, high)
    assert flood.priced_out > 0.5 * flood.asked
    assert shares.priced_out >= flood.priced_out
    assert high.priced_out == 0


def test_the_lowest_starves_only_while_higher_ones_fill_the_engine() -> None:
    """It gets next to nothing while they do, and all of it within seconds after they have gone."""
    low, high = Crowd("a", 16, priority=0), Crowd("b", 100, priority=9)
    serve(low, high)
    assert low.served < 0.1 * low.asked
    low, high = Crowd("a", 16, priority=0), Crowd("b", 100, priority=9, until=20.0)
    shares = serve(low, high, warm=24.0)
    assert low.served > 0.6 * low.asked
    assert shares.price == 0


def test_of_three_priorities_the_lowest_pays_first() -> None:
    """Each loses less than the one below it."""
    low, middle, high = Crowd("a", 60, priority=0), Crowd("b", 4, priority=4), Crowd("c", 4, priority=9)
    serve(low, middle, high)
    shares = [crowd.served / crowd.asked for crowd in (low, middle, high)]
    assert shares == sorted(shares)
    assert shares[1] > 2 * shares[0]


def test_the_price_rises_by_steps() -> None:
    """A burst of refusals in one instant shuts nobody out: from everything to nothing takes many of them, apart in time."""
    shares = Shares()
    for _ in range(1000):
        shares.press("b", 1.0, priority=9, others=[1] * PLACES)
    assert shares.price == 0.5
    prices = []
    for number in range(8):
        shares.press("b", 1.1 + 0.11 * number, priority=9, others=[1] * PLACES)
        prices.append(shares.price)
    assert prices == sorted(prices)
    assert prices[-1] == 1.0


def test_nobody_pays_for_what_its_own_kind_or_a_higher_one_takes() -> None:
    """Refusals raise the price only for lower work that is in the way."""
    shares = Shares()
    for number in range(100):
        shares.press("b", 0.2 * number, priority=5, others=[5, 9, 7])
    assert shares.price == 0
    shares.press("b", 30.0, priority=5, others=[5, 3, 9])
    assert 0 < shares.price < 0.5


def test_an_idle_engine_turns_nobody_away() -> None:
    """However high the price."""
    shares = Shares()
    for number in range(100):
        shares.press("b", 0.2 * number, priority=9, others=[0])
    assert not shares.lets_in(0, 20.0, idle=False)
    assert shares.lets_in(0, 20.0, idle=True)


def test_a_thinned_priority_is_let_in_evenly() -> None:
    """Half a share is every second request, not a run of luck."""
    shares = Shares()
    shares.press("b", 1.0, priority=9, others=[1])
    taken = [shares.lets_in(1, 1.0, idle=False) for _ in range(20)]
    assert sum(taken) == 10
    assert all(one != other for one, other in pairwise(taken))


def test_greed_is_forgotten() -> None:
    """A tenant that was loud a minute ago is not held back now, and one is never held back for a rival that has what it wants."""
    shares = Shares()
    shares.note("loud", 1000, 0.0)
    shares.note("quiet", 10, 0.0)
    assert not shares.is_greedy("loud", 0.0)
    shares.press("quiet", 0.1)
    assert shares.is_greedy("loud", 0.2)
    assert not shares.is_greedy("quiet", 0.2)
    assert not shares.is_greedy("loud", 60.0)


def test_a_name_without_end_costs_no_memory() -> None:
    """Tenants and scenarios that nobody has seen lately are forgotten, in every priority."""
    shares = Shares()
    for number in range(3 * TENANTS):
        for priority in range(PRIORITIES):
            shares.note(f"t{number}", 1.0, 0.001 * number, lane=f"l{number}", priority=priority)
    assert shares.known <= TENANTS
    for number in range(1000):
        shares.note("one", 1.0, 3.0, lane=f"l{number}")
    assert max(len(pool) for one in shares._priorities for pool in one._lanes.values()) < 100
    assert max(len(one._lanes) for one in shares._priorities) <= TENANTS


def test_a_machine_that_is_up_for_months_is_no_trouble() -> None:
    """The clock's first moment may be any number, and so may the silence between two events."""
    shares = Shares()
    shares.note("a", 10.0, 3e7)
    assert shares._priorities[5].tenants.used(3e7) == pytest.approx(10.0)
    shares.press("b", 6e7, cost=10.0)
    assert shares._priorities[5].tenants.used(6e7) == pytest.approx(0.0, abs=1e-9)
    assert not shares.is_greedy("b", 6e7)


def test_hours_do_not_wear_the_figures_out() -> None:
    """Accounts are kept in a unit that grows; after a day it is as exact as in the first minute."""
    shares = Shares()
    for second in range(0, 86_400, 30):
        shares.note("loud", 100.0, float(second))
    shares.note("loud", 100.0, 86_400.0)
    shares.note("quiet", 20.0, 86_400.0)
    shares.press("quiet", 86_400.0, cost=200.0)
    assert shares._priorities[5].tenants.used(86_400.0) == pytest.approx(120.0, rel=0.05)
    assert shares.is_greedy("loud", 86_400.0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.floats(0.0, 5.0), st.sampled_from(["note", "press", "let in"]), st.floats(1.0, 500.0)),
        max_size=80,
    )
)
def test_whatever_happens_the_highest_is_let_in_and_the_price_stays_in_bounds(happenings: list[tuple[str, int, float, str, float]]) -> None:
    """The price is between 0 and 9, nobody above the top is waited for, and nobody is held back without a rival."""
    shares, now = Shares(), 0.0
    for tenant, priority, gap, what, cost in happenings:
        now += gap
        if what == "note":
            shares.note(tenant, cost, now, priority=priority)
        elif what == "press":
            shares.press(tenant, now, cost=cost, priority=priority, others=(0, 3, 6))
        else:
            shares.lets_in(priority, now, idle=False)
        assert 0 <= shares.price <= 9
        assert shares.lets_in(9, now, idle=False)
    if {tenant for tenant, *_ in happenings} == {"a"}:
        assert not shares.is_greedy("a", now, priority=9)
