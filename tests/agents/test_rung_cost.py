"""What a cheap rung is taken to cost, with a moved clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.rung_cost import EACH, KEPT, MAX_AGE_S, RungCost


def test_before_anything_was_seen_the_floor_counts() -> None:
    """A rung declares what it needs at least."""
    assert RungCost(0.002).needed(0.0) == 0.002


def test_one_slow_moment_does_not_take_a_rung_out() -> None:
    """One in forty is not what it takes."""
    cost = RungCost(0.001)
    for moment in range(40):
        cost.note(0.5 if moment == 20 else 0.002, float(moment) / 10)
    assert cost.needed(4.0) == 0.002


def test_a_rung_that_is_slow_often_is_taken_for_slow() -> None:
    """One in ten is."""
    cost = RungCost(0.001)
    for moment in range(40):
        cost.note(0.5 if moment % 10 == 0 else 0.002, float(moment) / 10)
    assert cost.needed(4.0) == 0.5


def test_a_slow_rung_is_tried_again_after_a_while() -> None:
    """Skipped, it is not measured: what is old must not shut it out for ever."""
    cost = RungCost(0.001)
    cost.note(0.5, 0.0)
    assert cost.needed(MAX_AGE_S) == 0.5
    assert cost.needed(MAX_AGE_S + 0.1) == 0.001


@given(st.lists(st.floats(min_value=0, max_value=10), min_size=1, max_size=3 * KEPT))
def test_the_need_is_a_time_that_was_seen_or_the_floor(times: list[float]) -> None:
    """Never below the floor, never above the slowest recent time."""
    cost = RungCost(0.001)
    for moment, seconds in enumerate(times):
        cost.note(seconds, moment / 1000)
    need = cost.needed(len(times) / 1000)
    assert need == 0.001 or need in times[-KEPT - EACH :]
    assert need >= 0.001
