"""Deadlines: one absolute moment, seen from any clock."""

from __future__ import annotations

import time

from schemas.deadline import Deadline, ManualClock, SystemClock


def test_what_remains_shrinks_as_the_clock_moves() -> None:
    """Remaining time is the due less now less the reserve, and negative once late."""
    clock = ManualClock(monotonic=50.0)
    deadline = Deadline(budget_ms=300, arrived=50.0, due=50.3, due_at_ms=clock.wall_ms() + 300, expired=False)
    assert abs(deadline.remaining(clock.monotonic()) - 0.3) < 1e-9
    clock.advance(0.25)
    assert abs(deadline.remaining(clock.monotonic(), reserve_s=0.02) - 0.03) < 1e-9
    clock.advance(0.25)
    assert deadline.remaining(clock.monotonic()) < 0


def test_a_stepped_wall_clock_moves_no_deadline() -> None:
    """NTP or an operator may step the wall clock; what remains is counted on the monotonic one."""
    clock = ManualClock()
    deadline = Deadline(budget_ms=300, arrived=clock.monotonic(), due=clock.monotonic() + 0.3, due_at_ms=clock.wall_ms() + 300, expired=False)
    before = deadline.remaining(clock.monotonic())
    clock.jump_wall(-3_600_000)
    assert deadline.remaining(clock.monotonic()) == before


def test_a_manual_clock_moves_both_clocks_together() -> None:
    """Time that passes shows on both; parts of a millisecond are not lost."""
    clock = ManualClock(monotonic=0.0, wall_ms=1000)
    for _ in range(10):
        clock.advance(0.0005)
    assert clock.wall_ms() == 1005
    assert abs(clock.monotonic() - 0.005) < 1e-9


def test_the_system_clock_is_the_machine_s() -> None:
    """Monotonic seconds and Unix milliseconds, not the other way round."""
    clock = SystemClock()
    assert time.monotonic() - 60 < clock.monotonic() <= time.monotonic()
    assert abs(clock.wall_ms() - time.time() * 1000) < 60_000
