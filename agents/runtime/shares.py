"""Who gets an engine when there is not enough for all: by priority, then evenly between tenants, then by weight between scenarios; asked by `scheduler`.

Pure: moments are handed in, in monotonic seconds. Refusals come at once and there is no queue to take turns in, so turns
are taken in what was served: within a priority each tenant may have what it asks for, up to the level at which everybody's
shares add up to what was served (max-min fairness), measured over the last seconds. Who has had more may use what is free,
but not the last places. Between priorities the same holds for the lower one, and when that is not enough a price rises: step
by step more of the lowest priority's work is refused, then of the next; it falls when nobody above is refused any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HALF_LIFE_S = 5.0
"""How fast use is forgotten: a burst is paid for in seconds, not minutes."""

HUNGRY_S = 10.0
"""A refusal older than this is no sign that its tenant still wants more; up to so long a place is kept for one that may not come again."""

YIELD_S = 2.0
"""So long after work of a higher priority came places are kept for more of it."""

SETTLED_S = 0.05
"""While everybody is refused, the fair level is found anew so often: a thousand tenants are gone through then."""

KEEP_OVER = (1.000001, 1.1, 1.25, 1.5)
"""Of its fair share: who has had more than these leaves one, two, three, four places. The first is not 1: shares are sums, and a sum is never exact."""

TENANTS = 1000
"""Remembered at once in each priority, those seen last: far more than share an engine within a few half-lives."""

LANES = 32
"""Scenarios remembered of a tenant; only names that the settings know come here."""

PRIORITIES = 10

PRICE_STEP_S = 0.1
"""The price rises once in so long at most: a burst of refusals in one instant must not shut anybody out at once."""

RISE = 0.5
"""How much of its share a priority loses at a rise if the engine does nothing but its work, less where it does less: from all of it to a fiftieth
takes half a second of steady refusals at least."""

CALM_S = 1.0
"""So long without a refusal of higher work, and the price falls."""

DOUBLE_S = 15.0
"""How fast it falls while higher work comes: the share that is let in doubles in so long, since every step too far costs a refusal up there."""

FREE_DOUBLE_S = 0.25
"""The same once no higher work has come for a while: from a fiftieth to all in less than two seconds."""

LEAST_SHARE = 0.02
"""Below it nothing is let in, and the way back starts from here."""


@dataclass(slots=True)
class _Account:
    """One member: what it was given and what it asked for lately (in its pool's growing unit), and when it was last refused."""

    weight: float
    used: float = 0.0
    asked: float = 0.0
    refused_at: float = float("-inf")


class _Pool:
    """Members that share by weight. Instead of letting every account decay, the unit that new entries are counted in grows."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._accounts: dict[str, _Account] = {}
        self._epoch = 0.0
        self._level = float("inf")
        self._level_at = float("-inf")

    def __len__(self) -> int:
        return len(self._accounts)

    def give(self, name: str, weight: float, cost: float, now: float) -> None:
        """A member was given something."""
        account = self._account(name, weight)
        amount = cost * self._unit(now)
        account.used += amount
        account.asked += amount
        self._level_at = float("-inf")  # who was just given something must not be measured by the level before it

    def refuse(self, name: str, weight: float, cost: float, now: float) -> None:
        """A member was refused something."""
        account = self._account(name, weight)
        account.asked += cost * self._unit(now)
        account.refused_at = now

    def over(self, name: str, now: float) -> float:
        """What a member has had of its fair share, when another one wants more: above 1 it is too much."""
        account = self._accounts.get(name)
        if account is None:
            return 0.0
        if not 0 <= now - self._level_at < SETTLED_S:
            self._level, self._level_at = self._fair_level(now), now
        return account.used / (self._level * account.weight) if self._level > 0 else 0.0

    def used(self, now: float) -> float:
        """What all have had lately."""
        return sum(account.used for account in self._accounts.values()) / self._unit(now)

    def _fair_level(self, now: float) -> float:
        """The share of a member of weight 1 with which all that was given is used up and nobody has more than it wants; infinite when all have that."""
        wants = sorted((self._wanted(account, now) / account.weight, account.weight) for account in self._accounts.values())
        left = sum(account.used for account in self._accounts.values())
        weights = sum(weight for _, weight in wants)
        for each, weight in wants:
            if each * weights > left:
                return left / weights
            left -= each * weight
            weights -= weight
        return float("inf")

    def _wanted(self, account: _Account, now: float) -> float:
        return account.asked if now - account.refused_at < HUNGRY_S else account.used

    def _account(self, name: str, weight: float) -> _Account:
        account = self._accounts.pop(name, None) or _Account(weight)
        account.weight = weight
        self._accounts[name] = account
        if len(self._accounts) > self._limit:
            del self._accounts[next(iter(self._accounts))]
        return account

    def _unit(self, now: float) -> float:
        """What one unit of cost at `now` is in the accounts' unit; they are brought back to ordinary sizes now and then."""
        unit = float(2.0 ** min((now - self._epoch) / HALF_LIFE_S, 1000.0))  # after a long silence a float would not hold it; zero is near enough
        if unit > 1e9:  # noqa: PLR2004 -- any large number: small ones would do it often, larger ones lose digits
            for account in self._accounts.values():
                account.used /= unit
                account.asked /= unit
            self._epoch, self._level_at, unit = now, float("-inf"), 1.0
        return unit


class _Priority:
    """All work of one priority: its tenants, and the scenarios within those that have several."""

    def __init__(self) -> None:
        self.tenants = _Pool(TENANTS)
        self.asked_at = float("-inf")
        self.share = 1.0
        """Of its work that is let in; below 1 it is what pays."""
        self.credit = 0.0
        self._lanes: dict[str, _Pool] = {}

    def pools(self, tenant: str, lane: str) -> Iterator[tuple[_Pool, str]]:
        """Where work is counted: among the tenants, and among its own tenant's scenarios."""
        yield self.tenants, tenant
        if lane or tenant in self._lanes:
            pool = self._lanes.pop(tenant, None) or _Pool(LANES)
            self._lanes[tenant] = pool
            if len(self._lanes) > TENANTS:
                del self._lanes[next(iter(self._lanes))]
            yield pool, lane


class Shares:
    """The account of one engine process."""

    def __init__(self) -> None:
        self._priorities = [_Priority() for _ in range(PRIORITIES)]
        self._rose_at = float("-inf")
        self._refused_at = float("-inf")
        self._moved_at = 0.0
        self.priced_out = 0
        """Requests refused by the price alone, since the start."""

    @property
    def known(self) -> int:
        """Tenants remembered, of the priority that has the most."""
        return max(len(one.tenants) for one in self._priorities)

    @property
    def price(self) -> float:
        """From 0 (everybody is let in) to 9 (only the highest priority is): how many priorities' work is refused, in parts of one."""
        return sum(1.0 - one.share for one in self._priorities)

    def lets_in(self, priority: int, now: float, *, idle: bool) -> bool:
        """Whether the price leaves this request its chance; to be asked once a request. An idle engine turns nobody away."""
        self._let_price_fall(now)
        one = self._priorities[priority]
        if idle or one.share >= 1.0:
            return True
        one.credit += one.share
        if one.credit >= 1.0:
            one.credit -= 1.0
            return True
        self.priced_out += 1
        return False

    def note(self, tenant: str, cost: float, now: float, *, lane: str = "", priority: int = 5, weight: float = 1.0) -> None:
        """A tenant was given work of `cost` (in prompt tokens' worth), for a scenario of its own `weight`."""
        one = self._priorities[priority]
        one.asked_at = now
        for pool, name in one.pools(tenant, lane):
            pool.give(name, 1.0 if pool is one.tenants else weight, cost, now)

    def press(self, tenant: str, now: float, *, cost: float = 1.0, lane: str = "", priority: int = 5, weight: float = 1.0, others: Sequence[int] = ()) -> None:
        """A tenant was refused for want of room, not by the price: there is not enough for all. `others`: the priorities of what has the room."""
        one = self._priorities[priority]
        one.asked_at = now
        for pool, name in one.pools(tenant, lane):
            pool.refuse(name, 1.0 if pool is one.tenants else weight, cost, now)
        self._raise_price(priority, others, now)

    def kept(self, tenant: str, now: float, *, lane: str = "", priority: int = 5) -> int:
        """How many places must stay free behind this request, for those with a better claim who have come lately or were refused; 0: none.

        Room comes several places at a time, so one kept place is not half of what is free: the further over its share, the more a tenant leaves.
        """
        higher = sum(now - one.asked_at < YIELD_S for one in self._priorities[priority + 1 :])
        for_higher = higher + 1 if higher else 0  # one more for each, so that the lowest leaves the most
        over = max(pool.over(name, now) for pool, name in self._priorities[priority].pools(tenant, lane))
        return max(for_higher, sum(over > step for step in KEEP_OVER))

    def is_greedy(self, tenant: str, now: float, *, lane: str = "", priority: int = 5) -> bool:
        """Whether any place is kept from this request."""
        return self.kept(tenant, now, lane=lane, priority=priority) > 0

    def _raise_price(self, priority: int, others: Sequence[int], now: float) -> None:
        """Work of `priority` had no room: the lowest one in its way pays. What only its own kind or a higher one keeps from it raises nothing."""
        lowest = min(others, default=priority)
        if lowest >= priority:
            return
        self._refused_at = now
        if now - self._rose_at < PRICE_STEP_S:
            return
        self._rose_at = now
        payer = self._priorities[lowest]
        payer.share *= 1.0 - RISE * sum(other == lowest for other in others) / len(others)
        if payer.share < LEAST_SHARE:
            payer.share = 0.0

    def _let_price_fall(self, now: float) -> None:
        """The highest one that pays is let in first."""
        gone, self._moved_at = max(0.0, now - self._moved_at), now
        if now - self._refused_at < CALM_S:
            return
        number = next((number for number in reversed(range(PRIORITIES)) if self._priorities[number].share < 1.0), None)
        if number is None:
            return
        payer = self._priorities[number]
        double_s = DOUBLE_S if self._higher_has_come(number, now) else FREE_DOUBLE_S
        payer.share = min(1.0, max(payer.share, LEAST_SHARE) * 2.0 ** (gone / double_s))

    def _higher_has_come(self, priority: int, now: float) -> bool:
        return any(now - higher.asked_at < YIELD_S for higher in self._priorities[priority + 1 :])
