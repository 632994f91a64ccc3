"""One request for all who ask the same at once: nobody waits longer than they can afford, and everybody is let go."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents.cache import flight as flights_module
from agents.cache.flight import Flights, follow
from agents.ladder import Declined, Given, Question
from schemas.responses import ModelRef
from tests.agents.cache.cache_support import Budget, Cache, question, said
from tests.support import run


def test_all_who_wait_get_what_it_brings() -> None:
    """A hundred followers, one value."""

    async def going() -> list[bytes | None]:
        flights = Flights()
        flight = flights.begin(b"k", Budget())
        assert flight is not None
        waiting = [asyncio.ensure_future(follow(flight, Budget(), 0.1)) for _ in range(100)]
        await asyncio.sleep(0)
        flights.land(flight, b"yes")
        assert len(flights) == 0
        return await asyncio.gather(*waiting)

    assert run(going()) == [b"yes"] * 100


def test_a_follower_leaves_while_it_has_time_for_the_next_rung() -> None:
    """It goes as soon as what is left is what the rungs below need, and at once when there is less."""

    async def going() -> tuple[float, float]:
        flight = Flights().begin(b"k", Budget())
        assert flight is not None
        budget = Budget(0.3)
        assert await follow(flight, budget, 0.2) is None
        left = budget.stop_at - time.monotonic()
        began = time.monotonic()
        assert await follow(flight, Budget(0.3), 0.5) is None
        return left, time.monotonic() - began

    left, waited = run(going())
    assert left >= 0.1  # 0.2 are needed; a busy machine may wake it late
    assert waited < 0.2


def test_a_due_that_is_pulled_forward_is_seen_while_waiting() -> None:
    """The wait follows the budget as it is now, and ends with it."""

    async def going() -> None:
        flight = Flights().begin(b"k", Budget())
        assert flight is not None
        budget, stopped = Budget(60), Budget(60)
        pulled = asyncio.ensure_future(follow(flight, budget, 0.1))
        ended = asyncio.ensure_future(follow(flight, stopped, 0.1))
        await asyncio.sleep(0)
        budget.stop_at = time.monotonic() + 0.15
        stopped.stop.set_result("cancelled")
        first, second = await asyncio.wait_for(asyncio.gather(pulled, ended), 10)
        assert first is second is None

    run(going())


def test_nobody_joins_a_flight_that_is_overdue() -> None:
    """Whatever became of the one who asked, the next asks anew, and who still waits for the old one is let go."""

    async def going() -> None:
        flights = Flights()
        old = flights.begin(b"k", Budget(-1.0))
        assert old is not None
        assert flights.joinable(b"k") is None
        waiting = asyncio.ensure_future(follow(old, Budget(), 0.1))
        await asyncio.sleep(0)
        assert flights.begin(b"k", Budget()) is not None
        assert await waiting is None
        assert flights.joinable(b"k") is not None

    run(going())


def test_there_are_never_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it each event asks for itself."""
    monkeypatch.setattr(flights_module, "MAX_FLIGHTS", 2)

    async def going() -> None:
        flights = Flights()
        begun = [flights.begin(bytes([number]), Budget()) for number in range(3)]
        assert [one is not None for one in begun] == [True, True, False]

    run(going())


ENDINGS: dict[str, Given | None] = {
    "answered": said("Yes."),
    "partial": said("Ye", outcome="partial", reason="deadline"),
    "fallback": said("Yes.", outcome="fallback_model", model=ModelRef("small", "1")),
    "refused": Given("default", "Sorry.", reason="overload"),
    "personal": said("Ask ann@example.com."),
    "cancelled": None,
}


async def play(endings: list[tuple[int, str]]) -> tuple[int, int]:
    """Events with few different questions, each of which sooner or later ends in its own way while others wait for it.

    How many came back, and how many are still waited for at the end.
    """
    cache = Cache()
    came_back = 0
    asked = [question(f"question {number}?", event=f"e{place}") for place, (number, _) in enumerate(endings)]
    running = [asyncio.ensure_future(cache.rung.answer(one, Budget())) for one in asked]
    open_ = dict(enumerate(running))
    while open_:
        await asyncio.wait(open_.values(), timeout=5, return_when=asyncio.FIRST_COMPLETED)
        done = [place for place, task in open_.items() if task.done()]
        assert done, "nobody comes back any more: a follower was not released"
        place = done[-1]
        result = open_.pop(place).result()
        came_back += 1
        cache.rung.ended(asked[place], result if isinstance(result, Given) else ENDINGS[endings[place][1]])
        if isinstance(result, Given):
            assert result.text == "Yes."
        await asyncio.sleep(0)
    return came_back, cache.rung.waiting_for


@hypothesis_settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(ENDINGS))), min_size=1, max_size=12))
def test_followers_are_always_released(endings: list[tuple[int, str]]) -> None:
    """However those ahead end, everybody comes back, with a whole answer of the model or with none, and nothing stays open."""
    assert run(play(endings)) == (len(endings), 0)


def test_a_leader_whose_task_is_cancelled_lets_its_followers_go() -> None:
    """The ladder tells the rung that nobody waits any more; those behind it go on by themselves."""

    async def going() -> tuple[Any, Given | Declined]:
        cache = Cache()
        first, second = question("hi?", event="1"), question("hi?", event="2")

        async def walk_forever(asked: Question) -> None:
            try:
                await cache.rung.answer(asked, Budget())
                await asyncio.Event().wait()
            finally:
                cache.rung.ended(asked, None)

        leader = asyncio.ensure_future(walk_forever(first))
        await asyncio.sleep(0)
        follower = asyncio.ensure_future(cache.rung.answer(second, Budget()))
        await asyncio.sleep(0)
        leader.cancel()
        await asyncio.wait((leader,), timeout=5)
        result = await asyncio.wait_for(follower, 5)
        cache.rung.ended(second, None)
        return cache.counts, result

    counts, result = run(going())
    assert isinstance(result, Declined)
    assert (result.verdict, result.why, counts["miss"]) == ("skipped", "the same question before it came to nothing", 2)
