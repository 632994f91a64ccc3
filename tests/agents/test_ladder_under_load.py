"""The ladder when everything goes wrong at once or there is far too much: attempts stay bounded, nobody waits for another's slow session."""

from __future__ import annotations

import asyncio
import collections
from typing import Any

import msgspec
import pytest

from agents.ladder import Budget, Declined, Given, Question
from schemas.errors import ConfigError
from schemas.settings import Settings, parse_settings
from tests.agents.intake import Intake, turns
from tests.support import run


class Tries:
    """A rung that counts how often it is asked, and then fails in its own way."""

    floor_s = 0.0

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = self.label = name
        self.asked = 0
        self.ended_walks = 0
        self._error = error

    async def answer(self, _question: Question, _budget: Budget) -> Given | Declined:
        """No answer."""
        self.asked += 1
        if self._error is not None:
            raise self._error
        return Declined("failed", "gone", "engine_unavailable")

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Count."""
        self.ended_walks += 1


class Slow:
    """A rung that answers texts with `slow` in them when `open` is set, and all others at once."""

    name = label = "main"
    floor_s = 0.0

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.seen: dict[str, list[str]] = collections.defaultdict(list)

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """The text of the question."""
        event = question.event
        self.seen[event.session_id].append(event.event_id)
        if "slow" in (event.text or ""):
            opening = asyncio.ensure_future(self.open.wait())
            await asyncio.wait((opening, budget.stop), return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()
        return Given("model", event.text or "")

    def ended(self, _question: Question, _given: Given | None) -> None:
        """Nothing to let go."""


@pytest.mark.parametrize("error", [None, ValueError("a prompt that cannot be built"), RuntimeError("the engine is gone")])
def test_main_and_fallback_both_fail_and_each_was_tried_once(error: Exception | None) -> None:
    """No error is retried, foreseen or not, and little time left changes nothing of that: one default, said once."""
    rungs = {name: Tries(name, error) for name in ("main", "small")}
    settings = parse_settings({"models": [{"name": "main"}, {"name": "small"}], "ladder": {"rungs": ["main", "small", "default"]}})

    async def asking() -> list[dict[str, Any]]:
        async with Intake(settings, rungs_of=lambda names: {name: rungs[name] for name in names}) as intake:
            intake.feed("e", deadline_ms=200.0)
            await intake.until_released()
            assert intake.crashes == []
            return intake.publisher.said

    (said,) = run(asking())
    assert (said["outcome"], [step["rung"] for step in said["rungs"]]) == ("default", ["main", "small", "default"])
    assert [rung.asked for rung in rungs.values()] == [1, 1]
    assert [rung.ended_walks for rung in rungs.values()] == [1, 1]


def test_a_fallback_that_is_the_main_model_again_is_refused_at_start() -> None:
    """Each name stands once in a ladder, the base's or a scenario's."""
    with pytest.raises(ConfigError, match=r"ladder\.rungs\[1\]"):
        parse_settings({"ladder": {"rungs": ["main", "main", "default"]}})
    with pytest.raises(ConfigError, match=r"scenarios\.game\.ladder\.rungs\[1\]"):
        parse_settings({"scenarios": {"game": {"ladder": {"rungs": ["main", "main"]}}}})


def test_five_thousand_events_at_once_are_all_answered_and_what_waits_is_bounded() -> None:
    """Taking pauses at `limits.in_flight`; nothing is dropped, and every event has its one response."""
    count, bound = 5000, 200
    limits = msgspec.structs.replace(Settings().limits, in_flight=bound)
    settings = msgspec.structs.replace(Settings(), limits=limits)
    most = 0

    async def flooding() -> list[str]:
        nonlocal most
        async with Intake(settings, Tries("main")) as intake:

            async def arriving() -> Any:
                nonlocal most
                for number in range(count):
                    event = {"event_id": f"e{number}", "session_id": f"s{number % 50}", "text": "hi", "deadline_ms": 30_000.0}
                    yield intake.source(value=msgspec.msgpack.encode(event))
                    most = max(most, intake.responder.in_flight)

            await intake.responder.run(arriving())
            await intake.until_released()
            assert intake.crashes == []
            return intake.said

    said = run(flooding())
    assert sorted(said) == sorted(f"e{number}" for number in range(count))
    assert most <= bound + 2 * 8


def test_a_slow_session_with_a_long_line_holds_nobody_else_up() -> None:
    """Another session on the same partition is answered while the line waits, and the line then leaves whole and in order."""
    backlog = [f"a{number}" for number in range(300)]

    async def asking() -> tuple[list[str], list[str], list[str]]:
        rung = Slow()
        async with Intake(None, rung) as intake:
            for event_id in backlog:
                intake.feed(event_id, session="a", text="slow")
            for number in range(20):
                intake.feed(f"b{number}", session="b", text="quick")
            while len(intake.said) < 20:  # noqa: ASYNC110 -- what leaves sets no event
                await asyncio.sleep(0.001)
            await turns()
            before = list(intake.said)
            rung.open.set()
            await intake.until_released()
            assert intake.crashes == []
            return before, [event_id for event_id in intake.said if event_id.startswith("a")], rung.seen["a"]

    before, left, seen = run(asking())
    assert before == [f"b{number}" for number in range(20)]
    assert left == backlog
    assert seen == backlog
