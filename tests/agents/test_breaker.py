"""The breaker with a moved clock: what opens it, who may try, and how it comes back."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from agents.breaker import RECENT_S, Breaker, BreakerState, Pass, Shut, Verdict
from schemas.settings_ladder import Breaker as Settings

SETTINGS = Settings(failures=3, late_share=0.5, window=10, cooldown_ms=1000, max_cooldown_ms=4000)


def attempt(breaker: Breaker, verdict: Verdict, now: float) -> None:
    """One that is let through and ends at once."""
    leave = breaker.enter(now)
    assert isinstance(leave, Pass)
    breaker.leave(leave, verdict, now)


def state(breaker: Breaker) -> str:
    """Read afresh: the checker believes that a property stays what it was."""
    return breaker.state


def opened(at: float = 0.0) -> Breaker:
    """One that has just opened."""
    breaker = Breaker(SETTINGS)
    for _ in range(3):
        attempt(breaker, "failed", at)
    assert state(breaker) == "open"
    return breaker


def test_failures_in_a_row_open_it() -> None:
    """An answer between them starts the count anew; what is shut says for how long."""
    breaker = Breaker(Settings(failures=3, window=100))
    for verdict in ("failed", "failed", "served", "failed", "failed"):
        attempt(breaker, verdict, 0.0)
    assert state(breaker) == "closed"
    attempt(breaker, "failed", 0.25)
    assert breaker.enter(0.5) == Shut(0.75)


def test_one_incident_is_one_failure() -> None:
    """All that was in the batch of an engine that died fails together and counts once."""
    breaker = Breaker(SETTINGS)
    batch = [breaker.enter(0.1 * number) for number in range(8)]
    for leave in batch:
        assert isinstance(leave, Pass)
        breaker.leave(leave, "failed", 1.0)
    assert state(breaker) == "closed"
    attempt(breaker, "failed", 1.1)
    attempt(breaker, "failed", 1.2)
    assert state(breaker) == "open"


def test_lateness_opens_it() -> None:
    """Half of the recent answers in vain is enough, two of two are not."""
    breaker = Breaker(SETTINGS)
    for _ in range(2):
        attempt(breaker, "late", 0.0)
    assert state(breaker) == "closed"
    for _ in range(2):
        attempt(breaker, "served", 0.0)
    assert state(breaker) == "closed"
    attempt(breaker, "late", 0.0)
    assert state(breaker) == "open"


def test_old_answers_do_not_count() -> None:
    """What came to nothing long ago is no share of what is recent."""
    breaker = Breaker(SETTINGS)
    for _ in range(4):
        attempt(breaker, "late", 0.0)
    for _ in range(4):
        attempt(breaker, "late", RECENT_S + 1)
    assert state(breaker) == "closed"


def test_what_says_nothing_about_the_model_changes_nothing() -> None:
    """However many events fail by their own fault, the model stays available to others."""
    breaker = Breaker(SETTINGS)
    for _ in range(1000):
        attempt(breaker, "mute", 0.0)
    assert state(breaker) == "closed"


def test_one_probe_at_a_time_and_a_success_closes_it() -> None:
    """When its time is over one event tries, others are shut out meanwhile, and all may ask again after it."""
    breaker = opened()
    assert breaker.wait_s(0.9) is not None
    assert breaker.wait_s(1.0) is None
    probe = breaker.enter(1.0)
    assert isinstance(probe, Pass)
    assert breaker.enter(1.0) == Shut(0.0)
    breaker.leave(probe, "served", 1.2)
    assert state(breaker) == "closed"
    assert all(isinstance(breaker.enter(1.2), Pass) for _ in range(2))


def test_a_vain_probe_doubles_the_pause_up_to_its_bound() -> None:
    """1, 2, 4, 4 seconds; and after a success 1 again."""
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(4):
        wait = breaker.wait_s(now)
        assert wait is not None
        pauses.append(wait)
        now += wait
        attempt(breaker, "late", now)
    assert pauses == [1.0, 2.0, 4.0, 4.0]
    now += 4.0
    attempt(breaker, "served", now)
    for _ in range(3):
        attempt(breaker, "failed", now)
    assert breaker.wait_s(now) == 1.0


def test_a_probe_that_was_no_test_leaves_the_place_to_the_next() -> None:
    """A refused or withdrawn event neither closes nor opens it."""
    breaker = opened()
    attempt(breaker, "mute", 1.0)
    assert state(breaker) == "half_open"
    attempt(breaker, "served", 1.0)
    assert state(breaker) == "closed"


def test_a_probe_of_the_engine_before_does_not_speak_for_the_new_one() -> None:
    """The engine was lost while the probe was under way: its end decides nothing about its successor."""
    breaker = opened()
    old = breaker.enter(1.0)
    assert isinstance(old, Pass)
    breaker.see_engine(None)
    breaker.see_engine(1)
    new = breaker.enter(2.0)
    assert isinstance(new, Pass)
    breaker.leave(old, "failed", 2.1)
    assert breaker.enter(2.1) == Shut(0.0)
    breaker.leave(new, "served", 2.2)
    assert state(breaker) == "closed"


def test_late_news_from_before_it_opened_is_not_the_probe() -> None:
    """An old attempt that ends while it is open or half-open decides nothing."""
    breaker = Breaker(SETTINGS)
    old = breaker.enter(0.0)
    assert isinstance(old, Pass)
    for _ in range(3):
        attempt(breaker, "failed", 0.0)
    breaker.leave(old, "served", 0.5)
    assert state(breaker) == "open"
    assert isinstance(breaker.enter(1.0), Pass)
    breaker.leave(old, "served", 1.1)
    assert breaker.enter(1.1) == Shut(0.0)


def test_a_lost_engine_opens_it_and_a_new_one_is_tried_at_once() -> None:
    """No count and no pause: that there is no engine is known, and that there is a new one as well."""
    breaker = Breaker(SETTINGS)
    breaker.see_engine(None)
    assert breaker.enter(1e9) == Shut(float("inf"))
    breaker.see_engine(1)
    attempt(breaker, "served", 1e9)
    assert state(breaker) == "closed"
    breaker = opened()
    breaker.see_engine(0)
    assert breaker.wait_s(0.0) == 1.0
    breaker.see_engine(1)
    assert breaker.wait_s(0.0) is None


def test_a_new_engine_is_no_news_to_a_closed_one() -> None:
    """The first start of an engine is not a recovery."""
    breaker = Breaker(SETTINGS)
    breaker.see_engine(0)
    breaker.see_engine(1)
    assert all(isinstance(breaker.enter(0.0), Pass) for _ in range(2))


@given(st.lists(st.tuples(st.sampled_from([*get_args(Verdict), "lost", "back", "keep"]), st.floats(0.0, 3.0)), max_size=120))
def test_whatever_happens_one_probe_at_most_and_states_follow_each_other(happenings: list[tuple[str, float]]) -> None:
    """While it is not closed at most one attempt is under way, its pause stays in bounds, and each change is told once."""
    told: list[BreakerState] = ["closed"]
    breaker = Breaker(SETTINGS, told.append)
    now, generation = 0.0, 0
    kept: list[Pass] = []
    for what, gap in happenings:
        now += gap
        if what == "lost":
            breaker.see_engine(None)
            kept.clear()
        elif what == "back":
            generation += told[-1] == "open"
            breaker.see_engine(generation)
        else:
            leave = breaker.enter(now)
            if isinstance(leave, Shut):
                assert leave.wait_s <= 4.0 or leave.wait_s == float("inf")
                if leave.wait_s == 0.0:
                    assert kept  # somebody is trying
                    breaker.leave(kept.pop(), "mute", now)
            elif what == "keep" and told[-1] == "half_open":
                kept.append(leave)
                assert len(kept) == 1
            else:
                breaker.leave(leave, "mute" if what == "keep" else what, now)  # type: ignore[arg-type]  # the rest are verdicts
        assert told[-1] == breaker.state
    assert all(before != after for before, after in pairwise(told))
