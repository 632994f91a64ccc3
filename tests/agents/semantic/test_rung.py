"""The semantic cache as a rung: whose answers are kept, who gets them, and that it never keeps anybody waiting."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents.ladder import Declined, Given, Question
from agents.semantic.encoder import Encoder, Vectors
from agents.semantic.ngrams import NgramEncoder
from agents.semantic.rung import MAX_CHARS, SemanticCacheRung, SemanticEvent
from schemas.deadline import ManualClock
from schemas.inference import Constraint
from schemas.responses import ModelRef, Usage
from schemas.settings import Settings
from tests.agents.cache.cache_support import MODEL, Budget, question, said, settings_with
from tests.support import run

OPTED_IN = {"semantic_cache": {"threshold": 0.9}}
SETTINGS = settings_with(
    cache={"ttl_s": 0},
    semantic_cache={"ttl_s": 60, "wait_ms": 1000},
    scenarios={"faq": OPTED_IN, "shop": OPTED_IN, "quest": {**OPTED_IN, "context": ["quest"]}, "off": {}},
)

PAY, PAY_OTHERWISE = "How do I cancel my order?", "Could you tell me how to cancel an order?"


class Cache:
    """A started rung, what it counted, and a way to play whole walks with it."""

    def __init__(self, settings: Settings = SETTINGS, opens: Callable[[], Encoder] = NgramEncoder) -> None:
        self.counts: Counter[SemanticEvent] = Counter()
        self.model: ModelRef | None = MODEL
        self.clock = ManualClock()
        self.rung = SemanticCacheRung(settings, lambda _: self.model, self.clock, opens=opens, count=self._count)

    def _count(self, event: SemanticEvent) -> None:
        self.counts[event] += 1

    async def __aenter__(self) -> Cache:
        await self.rung.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.rung.stop()

    async def walk(self, asked: Question, then: Given | None) -> Given | Declined:
        """Ask; when there is nothing, `then` is what the ladder comes to."""
        result = await self.rung.answer(asked, Budget())
        self.rung.ended(asked, result if isinstance(result, Given) else then)
        return result

    async def teach(self, asked: Question, text: str = "Press cancel.", **changes: Any) -> None:
        """A miss that the model answers."""
        assert isinstance(await self.walk(asked, said(text, **changes)), Declined)

    async def gives(self, asked: Question) -> str | None:
        """The kept answer; None for a miss, which nobody answers then."""
        result = await self.walk(asked, None)
        return result.text if isinstance(result, Given) else None


def faq(text: str, **changes: Any) -> Question:
    """A question of a scenario that has opted in."""
    return question(text, **{"settings": SETTINGS, "scenario": "faq", **changes})


def test_a_question_of_the_same_meaning_gets_the_answer() -> None:
    """Degraded, with text, data and writer as they were, and no tokens."""

    async def going() -> Given | Declined:
        async with Cache() as cache:
            await cache.teach(faq(PAY), data={"a": [1]})
            cache.clock.advance(7)
            return await cache.walk(faq(PAY_OTHERWISE, session="other"), None)

    found = run(going())
    assert isinstance(found, Given)
    assert (found.outcome, found.text, found.data, found.model, found.usage) == ("semantic_cache", "Press cancel.", {"a": [1]}, MODEL, Usage())
    assert found.why == "similarity 1.00, 7 s old"


def test_off_unless_the_scenario_opts_in() -> None:
    """Without a threshold nothing is encoded, looked up or kept."""

    async def going() -> None:
        async with Cache() as cache:
            for scenario in ("off", "unnamed"):
                asked = question(PAY, settings=SETTINGS, scenario=scenario)
                await cache.teach(asked)
                assert await cache.gives(asked) is None
            assert cache.rung.entries == 0
            assert cache.counts == {"skipped": 4}

    run(going())


NOT_KEPT: dict[str, Given | None] = {
    "partial": said("Press", outcome="partial", finish_reason="deadline", reason="deadline"),
    "fallback": said("Press it.", outcome="fallback_model"),
    "rule": Given("rule", "Press it."),
    "default": Given("default", "Sorry.", reason="overload"),
    "filtered": Given("refused", "", reason="filtered_output"),
    "exact cache": said("Press it.", outcome="cache"),
    "another model": said("Press it.", model=ModelRef("smol", "v2")),
    "personal data": said("Write to ann@example.com."),
    "too long": said("x" * 5000),
    "nobody": None,
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_only_a_models_own_whole_answer_is_kept(name: str) -> None:
    """Degraded, filtered, foreign and personal answers are a miss the next time."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.walk(faq(PAY), NOT_KEPT[name])
            assert await cache.gives(faq(PAY, event="2")) is None
            assert cache.rung.entries == 0

    run(going())


OTHERS: dict[str, Callable[[], Question]] = {
    "tenant": lambda: faq(PAY, tenant="b"),
    "scenario": lambda: faq(PAY, scenario="shop"),
    "language": lambda: faq(PAY, locale="de"),
    "max_tokens": lambda: faq(PAY, max_tokens=3),
    "stop": lambda: faq(PAY, stop=("!",)),
    "choice": lambda: faq(PAY, constraint=Constraint(choice=("yes", "no"))),
    "state": lambda: faq(PAY, state={"plan": "gold"}),
    "conversation": lambda: faq(PAY, turns=(("I bought a horse", "Nice."),)),
    "temperature": lambda: faq(PAY, temperature=0.5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_can_change_an_answer_keeps_questions_apart(name: str) -> None:
    """The same words under another tenant, scenario, language, option, state or conversation are a miss."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY))
            assert await cache.gives(OTHERS[name]()) is None
            assert await cache.gives(faq(PAY)) == "Press cancel."

    run(going())


def test_only_declared_context_counts_where_some_is_declared() -> None:
    """Another value of a declared key is a miss, another one of the rest is not."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq("How do I win?", scenario="quest", state={"quest": "dragon", "hp": 3}), "With fire.")
            assert await cache.gives(faq("How do I win?", scenario="quest", state={"quest": "dragon", "hp": 9})) == "With fire."
            assert await cache.gives(faq("How do I win?", scenario="quest", state={"quest": "wolf", "hp": 3})) is None

    run(going())


@pytest.mark.parametrize(
    ("one", "other"), [("开启自动续费", "关闭自动续费"), ("转账100元", "转账1000元"), ("Enable two-factor login", "Disable two-factor login")]
)
def test_the_opposite_is_a_miss_that_names_its_guard(one: str, other: str) -> None:
    """However alike the words are."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(one))
            result = await cache.walk(faq(other), None)
            assert isinstance(result, Declined)
            assert result.verdict == "skipped"
            assert await cache.gives(faq(one)) == "Press cancel."

    run(going())


def test_a_new_model_version_starts_anew() -> None:
    """Its predecessor's answers are a miss, and none is kept while no model is in place."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY))
            cache.model = ModelRef("smol", "v2")
            assert await cache.gives(faq(PAY)) is None
            cache.model = None
            assert await cache.gives(faq(PAY)) is None

    run(going())


def test_answers_age() -> None:
    """After `semantic_cache.ttl_s` a question is new."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY))
            cache.clock.advance(61)
            assert await cache.gives(faq(PAY)) is None

    run(going())


def test_forgetting_a_person_drops_every_answer() -> None:
    """Nobody is given what was kept before, it takes no room, and what is learned afterwards is kept as ever."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY))
            cache.rung.forget()
            assert (cache.rung.entries, await cache.gives(faq(PAY))) == (0, None)
            await cache.teach(faq(PAY), "Press it twice.")
            assert await cache.gives(faq(PAY_OTHERWISE)) == "Press it twice."

    run(going())


@pytest.mark.parametrize("complains", ["e", "e2"])
def test_an_answer_called_wrong_is_gone_and_stays_gone(complains: str) -> None:
    """By the event it came from and by one that it was given to; the model's next answer to it is not kept."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY))
            assert await cache.gives(faq(PAY_OTHERWISE, event="e2")) == "Press cancel."
            assert cache.rung.evict(complains, "other tenant") == 0
            assert cache.rung.evict(complains, "default") == 1
            await cache.teach(faq(PAY))
            assert await cache.gives(faq(PAY)) is None
            cache.clock.advance(61)
            await cache.teach(faq(PAY), "Press it twice.")
            assert await cache.gives(faq(PAY)) == "Press it twice."

    run(going())


@pytest.mark.parametrize("text", ["", "   ", "x" * (MAX_CHARS + 1), "Cancel the order of ann@example.com"])
def test_some_texts_are_not_looked_up(text: str) -> None:
    """Empty ones, stories, and personal data."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(text))
            assert cache.rung.entries == 0
            assert cache.counts["skipped"] == 1

    run(going())


def test_what_one_event_does_with_data_is_not_seen_by_the_next() -> None:
    """Each gets its own copy."""

    async def going() -> None:
        async with Cache() as cache:
            await cache.teach(faq(PAY), data={"plan": ["gold"]})
            first, second = [await cache.walk(faq(PAY), None) for _ in range(2)]
            assert isinstance(first, Given)
            assert isinstance(second, Given)
            first.data["plan"].append("silver")
            assert second.data == {"plan": ["gold"]}

    run(going())


class Stuck(NgramEncoder):
    """An encoder that hangs once it is warm, until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self._calls = 0

    def encode(self, texts: Sequence[str]) -> Vectors:
        """The warm-up goes through."""
        self._calls += 1
        if self._calls > 2 and not self.gate.wait(30):
            msg = "nobody opened the gate"
            raise AssertionError(msg)
        return super().encode(texts)


def test_a_stuck_encoder_delays_nobody_beyond_the_wait() -> None:
    """The rung declines after `wait_ms`, and at once when the budget ends before; nothing is kept."""

    async def going() -> None:
        encoder = Stuck()
        async with Cache(settings_with(semantic_cache={"wait_ms": 5}, scenarios={"faq": OPTED_IN}), lambda: encoder) as cache:
            began = time.monotonic()
            for _ in range(40):
                await cache.teach(faq(PAY))
            ended = Budget()
            ended.stop.set_result("deadline")
            assert isinstance(await cache.rung.answer(faq(PAY), ended), Declined)
            assert isinstance(await cache.rung.answer(faq(PAY), Budget(-1.0)), Declined)
            assert time.monotonic() - began < 10  # hangs would take 30 s each
            assert cache.counts == {"busy": 42}
            assert cache.rung.entries == 0
            encoder.gate.set()

    run(going())


def test_before_the_start_and_after_the_stop_it_declines() -> None:
    """A rung that does not run answers nothing and breaks nothing."""

    async def going() -> None:
        cache = Cache()
        assert isinstance(await cache.walk(faq(PAY), said("x")), Declined)
        async with cache:
            await cache.teach(faq(PAY))
        assert isinstance(await cache.walk(faq(PAY), said("x")), Declined)
        assert cache.rung.evict("e", "default") == 1

    run(going())
