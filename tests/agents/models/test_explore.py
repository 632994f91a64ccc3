"""Predictions of settings against machines that keep to a made-up profile, and what is advised from them."""

from __future__ import annotations

import pytest

from agents.models.explore import ARRIVALS, Candidate, Load, Point, Setting, advise, even_out, predict, unsteadiness, worst_step_s
from schemas.cost import CostProfile, StepCost

STEADY = CostProfile("m", "1", 1, "cpu", 32, tuple(StepCost(batch, 0.010 + 0.001 * batch, 0.010 + 0.001 * batch) for batch in (1, 4, 16)), 0.001, 1.0, 4.0)
"""11 ms for one token, 1 ms for each further request and each prompt token, never a moment more."""

SETTING = Setting(1, 32, 8)


def load(rate: float, *, budget_s: float = 0.3, prompt: int = 30, need: int = 6, limit: int = 16) -> Load:
    """Short questions."""
    return Load(rate, budget_s, prompt, need, limit)


def share(profile: CostProfile, setting: Setting, one: Load) -> float:
    """Of events in time."""
    return predict(profile, setting, [one], waiting=16).points[0].in_time


def candidate(setting: Setting, share_in_time: float, worst_s: float = 0.05) -> Candidate:
    """One whose predictions are given."""
    return Candidate(setting, (Point(2.0, 1.0, 1.0, 2.0, 20.0), Point(16.0, share_in_time, 0.0, 16 * share_in_time, 100.0)), worst_s)


def test_a_lone_request_is_answered_whole() -> None:
    """A machine that is idle when each event comes answers all of them, whole."""
    point = predict(STEADY, SETTING, [load(0.2)], waiting=16).points[0]
    assert (point.in_time, point.whole) == (1.0, 1.0)


def test_what_no_machine_could_do_is_not_promised() -> None:
    """A budget below reading and the least tokens gives no answer at all."""
    assert share(STEADY, SETTING, load(1.0, budget_s=0.08)) == 0.0


def test_more_load_leaves_a_smaller_share_but_no_fewer_answers() -> None:
    """Under overload the share falls while answers a second do not: nobody waits for somebody who is late."""
    points = predict(STEADY, SETTING, [load(rate) for rate in (2, 8, 16, 32, 64)], waiting=16).points
    shares = [point.in_time for point in points]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.95
    assert points[-1].answers_s > 0.85 * points[-2].answers_s > 0.0
    assert points[-1].answers_s > points[0].answers_s


def test_a_wider_batch_helps_where_many_run_together() -> None:
    """With long budgets and short prompts the batch is what limits."""
    many = load(40.0, budget_s=1.0, prompt=2, limit=16)
    assert share(STEADY, Setting(1, 32, 16), many) > share(STEADY, Setting(1, 32, 2), many) + 0.1


def test_an_unsteady_machine_promises_less() -> None:
    """The same medians with a long tail answer fewer events in time, and make the worst step longer."""
    wild = CostProfile("m", "1", 2, "cpu", 32, tuple(StepCost(step.batch, step.median, 2.5 * step.median) for step in STEADY.steps), 0.001, 2.5, 4.0)
    assert share(wild, SETTING, load(8.0)) < share(STEADY, SETTING, load(8.0))
    assert worst_step_s(wild, SETTING) > 2 * worst_step_s(STEADY, SETTING)


def test_a_larger_chunk_makes_the_worst_step_longer() -> None:
    """A whole chunk of prompt tokens is what others wait for: one token's 11 ms and 1 ms for each other place in the chunk."""
    assert worst_step_s(STEADY, Setting(1, 32, 1)) == pytest.approx(0.042)
    assert worst_step_s(STEADY, Setting(1, 128, 1)) == pytest.approx(0.138)


def test_the_same_seed_predicts_the_same() -> None:
    """Settings are compared on equal arrivals and a prediction can be repeated."""
    loads = [load(8.0)]
    assert predict(STEADY, SETTING, loads, waiting=16) == predict(STEADY, SETTING, loads, waiting=16)


def test_every_event_counts_once() -> None:
    """Shares are of all events sent, refused ones included."""
    point = predict(STEADY, SETTING, [load(200.0)], waiting=0).points[0]
    assert point.in_time * ARRIVALS == round(point.in_time * ARRIVALS)
    assert 0.0 < point.in_time < 0.3


def test_a_busy_moment_is_not_taken_for_a_worse_setting() -> None:
    """Decoding does not depend on the chunk: of two starts with equal threads the undisturbed one's steps count for both, and the gap is told."""
    disturbed = CostProfile("m", "1", 1, "cpu", 64, tuple(StepCost(step.batch, 3 * step.median, 3 * step.p99) for step in STEADY.steps), 0.002, 1.0, 4.0)
    wider = CostProfile("m", "1", 2, "cpu", 64, STEADY.steps[:1], 0.002, 1.0, 4.0)
    evened = even_out([STEADY, disturbed, wider])
    assert evened[0].steps == evened[1].steps == STEADY.steps
    assert (evened[1].prefill_chunk, evened[1].prefill_token_s) == (64, 0.002)
    assert evened[2].steps == wider.steps
    assert unsteadiness([STEADY, disturbed, wider]) == pytest.approx(3.0)
    assert unsteadiness([STEADY]) == 1.0


class TestAdvice:
    """Which setting is recommended, and why."""

    def test_takes_the_most_answers(self) -> None:
        """The larger share wins, and the reason names both."""
        now, better = candidate(SETTING, 0.5), candidate(Setting(1, 64, 8), 0.7)
        advice = advise([now, better], SETTING)
        assert advice.best is better
        assert advice.present is now
        assert "as it is set now 75%" in advice.why
        assert "85%" in advice.why

    def test_keeps_what_is_set_where_nothing_is_better(self) -> None:
        """A difference within the noise is no reason to change a setting."""
        now, alike = candidate(SETTING, 0.700), candidate(Setting(1, 64, 8), 0.704)
        assert advise([alike, now], SETTING).best is now

    def test_prefers_the_shorter_step_among_equals(self) -> None:
        """Equal shares: the setting whose worst step is much shorter."""
        now, shorter = candidate(SETTING, 0.7, worst_s=0.1), candidate(Setting(1, 16, 8), 0.7, worst_s=0.05)
        assert advise([now, shorter], SETTING).best is shorter

    def test_leaves_the_worker_its_core(self) -> None:
        """More threads that take the worker's core are named, not recommended."""
        now, greedy = candidate(SETTING, 0.5), candidate(Setting(2, 32, 8, shares_core=True), 0.9)
        advice = advise([now, greedy], SETTING)
        assert advice.best is now
        assert "leave worker and broker no core" in advice.why

    def test_shares_a_core_where_there_is_but_one(self) -> None:
        """Where every setting shares the only core, one of them is still advised."""
        only = Setting(1, 32, 8, shares_core=True)
        assert advise([candidate(only, 0.5)], only).best.setting == only

    def test_says_so_when_nothing_helps(self) -> None:
        """All predictions at nothing: what is set stays, and the reason says what else to do."""
        nothing = Candidate(SETTING, (Point(2.0, 0.0, 0.0, 0.0, 0.0),), 0.5)
        other = Candidate(Setting(1, 16, 8), (Point(2.0, 0.0, 0.0, 0.0, 0.0),), 0.2)
        advice = advise([other, nothing], SETTING)
        assert advice.best is nothing
        assert "no setting answers anything in time" in advice.why

    def test_needs_the_present_setting(self) -> None:
        """Advice without what it is compared to is a mistake of ours."""
        with pytest.raises(ValueError, match="was not predicted"):
            advise([candidate(SETTING, 0.5)], Setting(4, 32, 8))
