"""Who has had how much of an engine lately, so that one tenant does not take it from the others; asked by `scheduler`."""

from __future__ import annotations

HALF_LIFE_S = 5.0
"""How fast use is forgotten: a burst is paid for in seconds, not minutes."""

GREEDY = 1.5
"""Times the even share that a tenant may have had before the last place is kept for others."""

PRESSURE_S = 2.0
"""Refusals younger than this mean that others want the engine too; without them nobody is held back."""

TENANTS = 1000
"""Remembered at once, those seen last: far more than share an engine within a few half-lives, and few enough to be gone through at an admission."""


class Shares:
    """What each tenant has used lately, forgotten by half-lives."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        self._pressed: dict[str, float] = {}

    @property
    def known(self) -> int:
        """Tenants remembered."""
        return max(len(self._used), len(self._pressed))

    def note(self, tenant: str, cost: float, now: float) -> None:
        """A tenant was given work of `cost` (in prompt tokens' worth)."""
        used = self._decayed(tenant, now) + cost
        self._used.pop(tenant, None)
        self._used[tenant] = (used, now)
        if len(self._used) > TENANTS:
            del self._used[next(iter(self._used))]

    def press(self, tenant: str, now: float) -> None:
        """A tenant was refused: there is not enough for all."""
        self._pressed.pop(tenant, None)
        self._pressed[tenant] = now
        if len(self._pressed) > TENANTS:
            del self._pressed[next(iter(self._pressed))]

    def is_greedy(self, tenant: str, now: float) -> bool:
        """Whether a tenant has had more than its share while others are being refused or served."""
        rivals = {name for name in self._used if self._decayed(name, now) > 1.0} | {name for name, at in self._pressed.items() if now - at < PRESSURE_S}
        if rivals <= {tenant} or not any(now - at < PRESSURE_S for at in self._pressed.values()):
            return False
        total = sum(self._decayed(name, now) for name in rivals)
        return self._decayed(tenant, now) > GREEDY * total / len(rivals | {tenant})

    def _decayed(self, tenant: str, now: float) -> float:
        used, at = self._used.get(tenant, (0.0, now))
        return float(used * 0.5 ** ((now - at) / HALF_LIFE_S))
