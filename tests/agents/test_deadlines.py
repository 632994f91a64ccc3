"""When an event is due, with every stamp and budget a producer may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.deadlines import FIRST_RESERVE_S, MAX_RESERVE_S, PER_EVENT_S, MeasuredReserve, alone, compute_deadline
from schemas.deadline import Deadline
from schemas.events import InteractionEvent
from schemas.settings import DeadlineSection

NOW_MS = 1_790_000_000_000
ARRIVED = 5_000.0


def due_of(*, occurred: int | None = NOW_MS, budget: float | None = 800, record_ms: int = NOW_MS, section: DeadlineSection | None = None) -> Deadline:
    """The deadline of an event that arrives now."""
    event = InteractionEvent(event_id="e", session_id="s", text="hi", occurred_at_ms=occurred, deadline_ms=budget)
    return compute_deadline(event, record_ms=record_ms, arrived=ARRIVED, arrived_wall_ms=NOW_MS, section=section or DeadlineSection())


def test_time_in_kafka_counts() -> None:
    """An event that took 300 ms to arrive has 300 ms less."""
    deadline = due_of(occurred=NOW_MS - 300)
    assert deadline.due == pytest.approx(ARRIVED + 0.5)
    assert deadline.due_at_ms == NOW_MS + 500
    assert not deadline.expired


@pytest.mark.parametrize("budget", [0, -50, -1e308, 0.4, 19.9])
def test_tiny_and_negative_budgets_are_expired(budget: float) -> None:
    """Below `min_ms` nothing is started, and no negative time reaches a timer or the response."""
    deadline = due_of(budget=budget)
    assert deadline.expired
    assert deadline.budget_ms >= 0


@pytest.mark.parametrize("budget", [0, -1, -1e308])
def test_no_time_at_all_is_expired_whatever_the_smallest_budget(budget: float) -> None:
    """With `min_ms` at 0 a budget of nothing still reaches no model; the smallest one does."""
    section = DeadlineSection(min_ms=0.0)
    assert due_of(budget=budget, section=section).expired
    assert not due_of(budget=0.5, section=section).expired


@pytest.mark.parametrize("budget", [9_223_372_036_854_775_807, 1e300])
def test_huge_budgets_are_clamped(budget: float) -> None:
    """A budget above `max_ms` is the maximum, and the response names it."""
    assert due_of(budget=budget).budget_ms == 60_000


def test_absent_stamp_is_the_records() -> None:
    """Without `occurred_at_ms`, or with -1, the record's timestamp starts the clock."""
    for occurred in (None, -1):
        assert due_of(occurred=occurred, record_ms=NOW_MS - 100).due_at_ms == NOW_MS + 700


def test_no_stamp_at_all_is_arrival() -> None:
    """A record without any timestamp starts when it arrives."""
    assert due_of(occurred=None, record_ms=-1).due == pytest.approx(ARRIVED + 0.8)


def test_future_stamp_gains_nothing_and_is_counted() -> None:
    """An event from 2099 is due as if stamped now, and its skew is reported."""
    deadline = due_of(occurred=4_070_908_800_000)
    assert deadline.due == pytest.approx(ARRIVED + 0.8)
    assert deadline.skew_ms > 0
    assert due_of(occurred=NOW_MS + 400).skew_ms == 0


@pytest.mark.parametrize("occurred", [0, 1_790_000_000, -(2**62)])
def test_stamps_of_another_age_are_expired_not_negative(occurred: int) -> None:
    """Seconds taken for milliseconds, or 1970: answered at once."""
    assert due_of(occurred=occurred).expired


def test_arrival_clock_ignores_stamps() -> None:
    """With `deadline.clock = "arrival"` a replay of an old log has its full budget."""
    assert due_of(occurred=0, section=DeadlineSection(clock="arrival")).due == pytest.approx(ARRIVED + 0.8)


@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.integers(-1, 2**62))
def test_any_stamp_and_budget_gives_a_writable_deadline(occurred: int, budget: float, record_ms: int) -> None:
    """Whatever decodes has a deadline whose figures fit 64 bits."""
    deadline = due_of(occurred=occurred, budget=budget, record_ms=record_ms)
    assert 0 <= deadline.budget_ms <= 60_000
    assert -(2**63) <= deadline.due_at_ms < 2**63
    assert deadline.due <= ARRIVED + 60.0


def test_reserve_follows_the_measured_tail() -> None:
    """Until enough is measured the reserve is fixed; then it covers the slowest in a thousand and no more than its bound."""
    reserve = MeasuredReserve()
    assert reserve.seconds() == FIRST_RESERVE_S
    for _ in range(3000):
        reserve.note(0.004)
    assert reserve.seconds() == pytest.approx(0.007)
    for _ in range(10):
        reserve.note(0.050)
    assert reserve.seconds() == pytest.approx(0.053)
    for _ in range(10):
        reserve.note(30.0)
    assert reserve.seconds() == MAX_RESERVE_S


def test_one_stall_is_not_a_tail_and_is_forgotten() -> None:
    """The slowest publish of a few hundred says nothing about one in a thousand, and old ones say nothing about now."""
    now = 0.0
    reserve = MeasuredReserve(lambda: now)
    reserve.note(0.2)
    for _ in range(300):
        now += 0.25
        reserve.note(0.004)
    assert reserve.seconds() == pytest.approx(0.007)
    reserve.note(0.2)
    assert reserve.seconds() > 0.1
    for _ in range(1300):
        now += 0.25
        reserve.note(0.004)
    assert reserve.seconds() == pytest.approx(0.007)


def test_what_a_crowd_adds_is_not_a_publishes_own() -> None:
    """The lead allows for the others already, and no crowd makes a publish take less than nothing."""
    assert alone(0.150, 200) == pytest.approx(0.150 - 200 * PER_EVENT_S)
    assert alone(0.004, 0) == 0.004
    assert alone(0.004, 200) == 0.0
