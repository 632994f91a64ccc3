"""When events leave: moments in seconds from the start, the same for every system that gets the same seed; sending them is `load`."""

from __future__ import annotations

import random


def even_moments(rate: float, seconds: float) -> tuple[float, ...]:
    """`rate` a second, evenly, the first at once."""
    return tuple(index / rate for index in range(max(1, round(rate * seconds))))


def poisson_moments(rate: float, seconds: float, seed: int | str) -> tuple[float, ...]:
    """A Poisson process of `rate` a second; one seed always gives the same moments."""
    generator = random.Random(seed)
    moments: list[float] = []
    moment = generator.expovariate(rate)
    while moment < seconds:
        moments.append(moment)
        moment += generator.expovariate(rate)
    return tuple(moments)


def burst_moments(count: int, width_s: float, repeats: int, every_s: float) -> tuple[float, ...]:
    """`repeats` bursts, one each `every_s`, of `count` events spread evenly over `width_s`."""
    return tuple(burst * every_s + index * width_s / count for burst in range(repeats) for index in range(count))
