"""What the benchmark's plans hold."""

from __future__ import annotations

import pytest

from bench.scenarios import FULL_NAMES, SYSTEMS, Idle, Kills, LoadPoint, build_plan, estimate_s


def test_quick_stays_under_six_minutes() -> None:
    """The default is short enough to be run by anybody."""
    assert estimate_s(build_plan(["quick"]), SYSTEMS) < 345


def test_full_holds_every_scenario_at_length() -> None:
    """A minute at least up to 8/s and half of it above, all budgets, twenty kills, ten idle minutes."""
    plan = build_plan(["full"])
    assert {task.scenario for task in plan} == set(FULL_NAMES)
    rates = [task for task in plan if isinstance(task, LoadPoint) and task.scenario == "rates"]
    assert [task.rate for task in rates] == [1, 2, 4, 8, 16, 32]
    assert all(task.seconds >= (60 if task.rate <= 8 else 30) and task.budget_ms == 300 for task in rates)
    assert [task.budget_ms for task in plan if isinstance(task, LoadPoint) and task.scenario == "budgets"] == [100, 150, 300, 600, 1200]
    assert [(task.kills, task.seconds) for task in plan if isinstance(task, Kills)] == [(20, 300)]
    assert [task.seconds for task in plan if isinstance(task, Idle)] == [600]


def test_options_change_lengths() -> None:
    """`seconds` shortens points, `idle` the idle time, `budgets_ms` are those of what does not vary it."""
    plan = build_plan(["rates", "idle"], seconds=2, idle_s=5, budgets_ms=(900,))
    assert all((task.seconds, task.budget_ms) == (2, 900) for task in plan if isinstance(task, LoadPoint))
    assert plan[-1] == Idle(5, 900)


def test_rates_take_every_budget_and_the_rest_the_first() -> None:
    """A slow machine is measured at the usual budget and at one that it can keep, in one run."""
    plan = build_plan(["rates", "choice"], budgets_ms=(300, 600))
    assert [task.budget_ms for task in plan if isinstance(task, LoadPoint) and task.scenario == "rates"] == [300] * 6 + [600] * 6
    assert {task.budget_ms for task in plan if isinstance(task, LoadPoint) and task.scenario == "choice"} == {300}


def test_labels_are_seeds_of_their_own() -> None:
    """No two points share their arrivals and prompts."""
    labels = [task.label for task in build_plan(["full"]) if isinstance(task, LoadPoint)]
    assert len(set(labels)) == len(labels)


def test_unknown_names_are_refused() -> None:
    """The text says what there is."""
    with pytest.raises(ValueError, match="choose from quick, full, ceiling"):
        build_plan(["rate"])
