"""The cache as a rung: what is kept, what is given again, and what a person's objection does."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agents.cache import rung as rung_module
from agents.ladder import Declined, Given, ModelTimes
from schemas.deadline import ManualClock
from schemas.inference import Constraint
from schemas.responses import ModelRef, Usage
from tests.agents.cache.cache_support import MODEL, Budget, Cache, question, said, settings_with
from tests.support import run

PAY = question("How do I pay?")


def test_a_repeated_question_gets_the_answer_again() -> None:
    """As `cache`, with text and writer as they were; no tokens were read or made for it."""

    async def going() -> Given | Declined:
        cache = Cache()
        await cache.teach(PAY, "By card.", finish_reason="length")
        cache.clock.advance(12)  # type: ignore[attr-defined]  # a clock moved by hand
        return await cache.walk(question("how do I  pay?", session="other"), None)

    found = run(going())
    assert isinstance(found, Given)
    assert (found.outcome, found.text, found.finish_reason, found.model, found.usage, found.reason) == ("cache", "By card.", "length", MODEL, Usage(), None)
    assert found.why == "12 s old"


def test_data_is_given_again_and_never_shared() -> None:
    """A structured answer keeps its data; what one event does with it is not seen by the next."""

    async def going() -> None:
        cache = Cache()
        asked = question("Which plan?", constraint=Constraint(json_schema="{}"))
        await cache.teach(asked, '{"plan":["gold"]}', data={"plan": ["gold"]})
        first, second = [await cache.walk(asked, None) for _ in range(2)]
        assert isinstance(first, Given)
        assert isinstance(second, Given)
        first.data["plan"].append("silver")
        assert second.data == {"plan": ["gold"]}

    run(going())


NOT_KEPT: dict[str, Given | None] = {
    "partial": said("By", outcome="partial", finish_reason="deadline", reason="deadline"),
    "fallback": said("By card.", outcome="fallback_model"),
    "a rule's": Given("rule", "By card."),
    "the default": Given("default", "Sorry.", reason="overload"),
    "filtered": Given("refused", "", reason="filtered_output"),
    "another model's": said("By card.", model=ModelRef("smol", "v2")),
    "another cache's": said("By card.", outcome="semantic_cache"),
    "with personal data": said("Write to ann@example.com."),
    "with other data than its text": said("{}", data={"a": 1}),
    "from a shortened prompt": said("By card.", shortened=True),
    "nobody's": None,
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_only_a_models_own_whole_answer_is_kept(name: str) -> None:
    """Degraded, filtered, foreign and personal answers are a miss the next time."""

    async def going() -> str | None:
        cache = Cache()
        await cache.walk(PAY, NOT_KEPT[name])
        assert cache.rung.entries == 0
        return await cache.gives(question("How do I pay?", event="2"))

    assert run(going()) is None


def test_an_answer_that_speaks_of_one_persons_state_is_not_kept() -> None:
    """Where the scenario names its context, what the prompt showed beside it may not reach others."""
    settings = settings_with(scenarios={"order": {"context": ["status"]}})

    async def going() -> list[str | None]:
        cache = Cache(settings)
        asked = [question("Where?", settings=settings, scenario="order", state={"status": "sent", "name": name}) for name in ("Ann", "Bob")]
        await cache.teach(asked[0], "Ann, it is sent.")
        first = await cache.gives(asked[1])
        await cache.teach(asked[0], "It is sent.")
        return [first, await cache.gives(asked[1])]

    assert run(going()) == [None, "It is sent."]


def test_an_answer_out_of_a_conversation_is_not_kept_for_others() -> None:
    """In a scenario that stands alone only plain askers fill the cache, and askers in a conversation are given from it."""
    settings = settings_with(scenarios={"faq": {"cache": {"standalone": True}}})

    async def going() -> list[str | None]:
        cache = Cache(settings)
        late = question("How do I pay?", settings=settings, scenario="faq", turns=(("Hi", "Hello Ann"),))
        plain = question("How do I pay?", settings=settings, scenario="faq")
        await cache.teach(late, "As I said, Ann, by card.")
        first = await cache.gives(plain)
        await cache.teach(plain, "By card.")
        return [first, await cache.gives(late)]

    assert run(going()) == [None, "By card."]


def test_a_new_version_of_the_model_starts_afresh() -> None:
    """After a swap an old answer is not given, and an answer begun before the swap is not kept as the new one's."""

    async def going() -> list[str | None]:
        cache = Cache()
        await cache.teach(PAY, "By card.")
        cache.model = ModelRef("smol", "v2")
        found = [await cache.gives(PAY)]
        result = await cache.rung.answer(PAY, Budget())
        assert isinstance(result, Declined)
        cache.rung.ended(PAY, said("By card."))
        return [*found, await cache.gives(PAY)]

    assert run(going()) == [None, None]


def test_an_answer_called_wrong_is_gone_whoever_says_so() -> None:
    """Feedback on the event it was written for, or on any that was given it, makes the question a miss; feedback on another event, or elsewhere, does not."""

    async def going() -> None:
        for event, session in (("e", "s"), ("again", "s2")):
            cache = Cache()
            await cache.teach(PAY, "With shells.")
            assert await cache.gives(question("How do I pay?", event="again", session="s2")) == "With shells."
            assert not cache.rung.evict("default", session, "no such event")
            assert not cache.rung.evict("another tenant", session, event)
            assert await cache.gives(question("How do I pay?", event="third")) == "With shells."
            assert cache.rung.evict("default", session, event)
            assert await cache.gives(PAY) is None
            await cache.walk(PAY, said("With shells."))
            assert await cache.gives(PAY) is None
            cache.clock.advance(60)  # type: ignore[attr-defined]
            await cache.teach(PAY, "By card.")
            assert await cache.gives(PAY) == "By card."

    run(going())


def test_an_answer_called_wrong_on_its_way_reaches_no_follower() -> None:
    """Who waits for the same answer goes on by themselves."""

    async def going() -> Given | Declined:
        cache = Cache()
        await cache.teach(PAY, "With shells.")
        cache.clock.advance(60)  # type: ignore[attr-defined]
        first, second = question("How do I pay?", event="1"), question("How do I pay?", event="2")
        assert isinstance(await cache.rung.answer(first, Budget()), Declined)
        follower = asyncio.ensure_future(cache.rung.answer(second, Budget()))
        await asyncio.sleep(0)
        assert cache.rung.evict("default", "s", "e")
        cache.rung.ended(first, said("With shells."))
        return await follower

    assert isinstance(run(going()), Declined)


def test_identical_questions_make_one_request() -> None:
    """A hundred at once: one goes down to the model, the others are given its answer, and their wait is said to be a wait."""

    async def going() -> list[Given | Declined]:
        cache = Cache()
        asked = [question("How do I pay?", event=str(number), session=str(number)) for number in range(100)]
        tasks = [asyncio.ensure_future(cache.rung.answer(one, Budget())) for one in asked]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in tasks].count(True) == 1
        cache.rung.ended(asked[0], said("By card."))
        results = await asyncio.gather(*tasks)
        assert (cache.counts["miss"], cache.counts["followed"], cache.counts["stored"]) == (1, 99, 1)
        assert cache.rung.evict("default", "77", "77"), "those who followed were given it too"
        return results

    first, *others = run(going())
    assert isinstance(first, Declined)
    assert first.why == "no kept answer"
    assert all(isinstance(one, Given) and one.outcome == "cache" and one.times.queue > 0 for one in others)


def test_a_leader_that_fails_sends_one_to_the_model_and_not_all() -> None:
    """One who waited asks next and the rest wait for it; they are given its answer when it comes."""

    async def going() -> list[Given | Declined]:
        cache = Cache()
        asked = [question("How do I pay?", event=str(number), session=str(number)) for number in range(30)]
        tasks = [asyncio.ensure_future(cache.rung.answer(one, Budget())) for one in asked]
        for number in range(2):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED) if number == 0 else await tasks[number]
            assert [task.done() for task in tasks].count(True) == number + 1
            cache.rung.ended(asked[number], None if number == 0 else said("By card."))
            for _ in range(5):
                await asyncio.sleep(0)
        return list(await asyncio.gather(*tasks))

    results = run(going())
    assert [isinstance(one, Declined) for one in results].count(True) == 2
    assert all(isinstance(one, Given) and one.outcome == "cache" for one in results[2:])


def test_a_follower_that_cannot_wait_asks_for_itself() -> None:
    """With no more time than the next rung needs it declines at once, without spoiling the flight for others."""

    async def going() -> Given | Declined:
        cache = Cache(needs_s=lambda _: 0.5)
        first, second = question("hi?", event="1"), question("hi?", event="2")
        await cache.rung.answer(first, Budget())
        result = await cache.rung.answer(second, Budget(0.4))
        cache.rung.ended(second, None)
        assert cache.rung.waiting_for == 1
        cache.rung.ended(first, None)
        assert cache.rung.waiting_for == 0
        return result

    found = run(going())
    assert isinstance(found, Declined)
    assert found.why == "no time to wait for the same question before it"


def test_what_the_next_rung_needs_is_learned_from_its_answers() -> None:
    """After answers whose first words took half a second, nobody with less than that waits for another's; after quick ones they do."""

    async def going() -> list[bool]:
        waits = []
        for seconds in (0.5, 0.001):
            cache = Cache(needs_s=None)
            await cache.teach(question("first?"), times=ModelTimes(prefill=seconds, generate=4 * seconds), usage=Usage(9, 0, 24))
            ahead = question("hi?", event="1")
            await cache.rung.answer(ahead, Budget())
            follower = asyncio.ensure_future(cache.rung.answer(question("hi?", event="2"), Budget(0.6)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waits.append(not follower.done())
            cache.rung.ended(ahead, None)
            assert isinstance(await follower, Declined)
        return waits

    assert run(going()) == [False, True]


def test_ends_that_are_never_told_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest open question is let go at the bound, and those who wait for it too."""
    monkeypatch.setattr(rung_module, "MAX_OPEN", 3)

    async def going() -> int:
        cache = Cache()
        asked = [question(f"{number}?") for number in range(5)]
        first = await cache.rung.answer(asked[0], Budget())
        assert isinstance(first, Declined)
        waiting = asyncio.ensure_future(cache.rung.answer(question("0?", event="x"), Budget()))
        await asyncio.sleep(0)
        for one in asked[1:]:
            await cache.rung.answer(one, Budget())
        assert isinstance(await asyncio.wait_for(waiting, 5), Declined)
        await cache.rung.stop()
        return cache.rung.waiting_for

    assert run(going()) == 0


PARTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["pay?", "Pay?", " pay? ", "refund?"]),
        "tenant": st.sampled_from(["a", "b"]),
        "scenario": st.sampled_from(["faq", "order", "else"]),
        "locale": st.sampled_from(["en", "zh"]),
        "max_tokens": st.sampled_from([None, 5]),
        "state": st.sampled_from([{}, {"plan": "gold"}, {"plan": "gold", "noise": 1}]),
        "turns": st.sampled_from([(), (("hi", "hello"),)]),
    }
)


@hypothesis_settings(max_examples=100)
@given(st.lists(PARTS, min_size=2, max_size=12))
def test_nobody_is_ever_given_what_was_written_for_another_question(asked: list[dict[str, Any]]) -> None:
    """Whatever is asked in whatever order, a kept answer comes from the same tenant, scenario, locale, options, text and relevant context."""
    settings = settings_with(scenarios={"faq": {"cache": {"standalone": True}}, "order": {"context": ["plan"]}})
    numbers = itertools.count()

    async def going() -> None:
        cache = Cache(settings, clock=ManualClock())
        written: dict[str, Any] = {}
        for parts in asked:
            one = question(**parts, settings=settings, event=str(next(numbers)))
            text = f"answer number {next(numbers)}"
            result = await cache.walk(one, said(text))
            if isinstance(result, Given):
                assert written[result.text] == relevant(parts)
            else:
                written[text] = relevant(parts)

    run(going())


def relevant(parts: dict[str, Any]) -> Any:
    """What an answer depends on, told independently of the product."""
    plain = [parts["text"].strip(), parts["tenant"], parts["scenario"], parts["locale"], parts["max_tokens"]]
    if parts["scenario"] == "faq":
        return plain
    state = parts["state"] if parts["scenario"] == "else" else parts["state"].get("plan")
    return [*plain, state, parts["turns"]]
