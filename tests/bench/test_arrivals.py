"""When the benchmark's events leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.arrivals import burst_moments, even_moments, poisson_moments


@given(rate=st.floats(0.5, 50), seconds=st.floats(0.1, 20), seed=st.text(max_size=5))
def test_one_seed_gives_one_process(rate: float, seconds: float, seed: str) -> None:
    """Every system gets the same moments, in order and within the point's length."""
    moments = poisson_moments(rate, seconds, seed)
    assert moments == poisson_moments(rate, seconds, seed)
    assert list(moments) == sorted(moments)
    assert all(0 <= moment < seconds for moment in moments)


def test_another_seed_gives_another_process() -> None:
    """Two points do not share their arrivals."""
    assert poisson_moments(8, 60, "a") != poisson_moments(8, 60, "b")


def test_poisson_has_the_rate_and_the_spread() -> None:
    """Counts of one second have the mean of the rate and about the same variance, as a Poisson process has and an even one has not."""
    counts = [0] * 2000
    for moment in poisson_moments(8, 2000, 1):
        counts[int(moment)] += 1
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert mean == pytest.approx(8, rel=0.05)
    assert variance == pytest.approx(8, rel=0.15)


def test_even_moments_are_even() -> None:
    """`rate` a second, the first at once."""
    assert even_moments(4, 1) == (0.0, 0.25, 0.5, 0.75)


def test_bursts_stand_apart() -> None:
    """Each burst has its events within its width, one burst each period."""
    assert burst_moments(2, 0.1, 2, 5.0) == pytest.approx((0.0, 0.05, 5.0, 5.05))
