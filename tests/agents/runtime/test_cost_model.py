"""What the cost model makes of the steps it sees: how unsteady the machine is now, not how it was."""

from __future__ import annotations

from agents.runtime.cost_model import ENOUGH, MAX_SPREAD, REMEMBERED_S, CostModel
from tests.agents.runtime.test_scheduler import PROFILE

STEP_S = PROFILE.steps[0].median


def test_an_unsteady_spell_is_forgotten_also_where_steps_are_few() -> None:
    """After half a minute the newest steps alone count, were there only a few dozen; before, the spell is reckoned with."""
    cost = CostModel(PROFILE)
    for number in range(200):
        cost.learn(1, 0, STEP_S * (3.0 if number % 4 == 0 else 1.0), number * 0.02)
    assert cost.spread > 1.5
    for number in range(ENOUGH):
        cost.learn(1, 0, cost.step_s(1), 5.0 + number * 0.02)
    assert cost.spread > 1.5
    for number in range(ENOUGH):
        cost.learn(1, 0, cost.step_s(1), 5.0 + REMEMBERED_S + number)
    assert cost.spread < 1.1


def test_few_steps_are_not_forgotten_for_their_age() -> None:
    """A machine that is asked once a minute is judged by its last steps, however old: fewer would say nothing about a tail."""
    cost = CostModel(PROFILE)
    for number in range(2 * ENOUGH):
        cost.learn(1, 0, cost.step_s(1) * (2.0 if number % 4 == 0 else 1.0), number * 2 * REMEMBERED_S)
    assert 1.5 < cost.spread <= MAX_SPREAD
