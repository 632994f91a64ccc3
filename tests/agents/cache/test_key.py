"""What makes two questions the same: everything that can change the answer, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agents.cache.key import MAX_QUESTION_CHARS, Identifier, Identity, repeats_hidden
from schemas.inference import Constraint, Message
from schemas.responses import ModelRef
from schemas.settings import Settings
from tests.agents.cache.cache_support import MODEL, question, settings_with

FAQ = settings_with(
    scenarios={
        "faq": {"cache": {"standalone": True}},
        "order": {"context": ["order.status", "plan"]},
        "off": {"cache": {"ttl_s": 0}},
        "short": {"cache": {"ttl_s": 5}},
    }
)


def identity(settings: Settings = FAQ, model: ModelRef | None = MODEL, **asked: Any) -> Identity:
    """The identity of a question that has one."""
    found = Identifier(settings, lambda _: model).identify(question(**{"text": "How do I pay?", **asked}, settings=settings))
    assert isinstance(found, Identity), found
    return found


def why_none(settings: Settings = FAQ, model: ModelRef | None = MODEL, **asked: Any) -> str:
    """Why a question has no identity."""
    found = Identifier(settings, lambda _: model).identify(question(**{"text": "How do I pay?", **asked}, settings=settings))
    assert isinstance(found, str), found
    return found


OTHERWISE: dict[str, dict[str, Any]] = {
    "another text": {"text": "How do I pay later?"},
    "another tenant": {"tenant": "acme"},
    "another scenario": {"scenario": "sales"},
    "another locale": {"locale": "zh"},
    "another model": {"model": ModelRef("other", "v1")},
    "another version": {"model": ModelRef("smol", "v2")},
    "other state": {"state": {"plan": "gold"}},
    "another conversation": {"turns": (("Do you ship?", "Yes."),)},
    "another length": {"max_tokens": 5},
    "another stop": {"stop": ("\n",)},
    "choices": {"constraint": Constraint(choice=("yes", "no"))},
    "choices in another order": {"constraint": Constraint(choice=("no", "yes"))},
    "a pattern": {"constraint": Constraint(regex="a+")},
    "a schema": {"constraint": Constraint(json_schema='{"type":"object"}')},
    "other instructions": {"settings": settings_with(session={"instructions": "Be brief."})},
    "another length of the model": {"settings": settings_with(models=[{"max_tokens": 7}])},
    "another memory": {"settings": settings_with(session={"turns": 2})},
    "other rungs": {"settings": settings_with(ladder={"rungs": ["cache", "main", "default"]})},
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_whatever_can_change_the_answer_is_another_question(name: str) -> None:
    """Each part alone keeps questions apart, and all of these differ from each other."""
    keys = {other: identity(**parts).key for other, parts in OTHERWISE.items()}
    keys["the plain one"] = identity().key
    assert [other for other, key in keys.items() if key == keys[name]] == [name]


def test_what_cannot_change_the_answer_is_the_same_question() -> None:
    """Session, event, spelling of a locale, disclosure and the engine's speed do not count."""
    plain = identity()
    same = (
        identity(session="other", event="other"),
        identity(text="how do  I pay?"),
        identity(locale="EN"),
        identity(settings=settings_with(policy={"disclosure": {"en": "AI."}}, models=[{"threads": 2}], deadline={"default_ms": 900})),
    )
    assert {one.key for one in same} == {plain.key}


def test_a_scenario_that_names_its_context_differs_by_that_alone() -> None:
    """The named keys count, one that is absent is not one that is null, and other state does not."""
    keys = [
        identity(scenario="order", state=state).key
        for state in ({}, {"order": {"status": None}}, {"order": {"status": "sent"}}, {"order": {"status": "sent"}, "plan": "gold"}, {"plan": "gold"})
    ]
    assert len(set(keys)) == len(keys)
    assert identity(scenario="order", state={"order": {"status": "sent", "id": 7}, "name": "Ann"}).key == keys[2]


def test_a_named_key_may_hold_dots_itself() -> None:
    """`order.status` is the key `status` of `order`, a key of that very name, or both: what a prompt shows of either keeps questions apart."""
    states: tuple[dict[str, Any], ...] = (
        {},
        {"order.status": "sent"},
        {"order.status": "lost"},
        {"order": {"status": "lost"}, "order.status": "sent"},
        {"order": {"status": "sent"}, "order.status": "lost"},
    )
    assert len({identity(scenario="order", state=state).key for state in states}) == len(states)


def test_other_conversations_are_other_questions_unless_the_scenario_stands_alone() -> None:
    """A follow-up never gets another conversation's answer; an FAQ hits whatever was said before, and is filled by plain askers alone."""
    turns = (("Which plans are there?", "Gold and silver."),)
    follow_up, elsewhere = identity(text="And the other one?", turns=turns), identity(text="And the other one?", turns=(("Which sizes?", "S and M."),))
    assert follow_up.key != elsewhere.key
    assert follow_up.is_pure
    plain, late = identity(scenario="faq"), identity(scenario="faq", turns=turns)
    assert plain.key == late.key
    assert (plain.is_pure, late.is_pure) == (True, False)


def test_whatever_else_a_prompt_tells_of_a_person_keeps_its_answer_from_others() -> None:
    """A prompt with more than instructions and state, say what is remembered of somebody, is not a plain one where only some state counts."""
    settings = settings_with(scenarios={"order": {"context": ["plan"], "instructions": "Be kind."}})
    asked = question("Where is it?", settings=settings, scenario="order", state={"plan": "gold", "name": "Ann"})
    identifier = Identifier(settings, lambda _: MODEL)
    plain = identifier.identify(asked)
    told = Message("system", asked.messages[0].text + "\nShe lives in Delft.")
    knowing = identifier.identify(msgspec.structs.replace(asked, messages=(told, *asked.messages[1:])))
    assert isinstance(plain, Identity)
    assert isinstance(knowing, Identity)
    assert (plain.is_pure, knowing.is_pure, plain.key == knowing.key) == (True, False, True)


def test_asking_the_same_again_is_the_same_question() -> None:
    """A conversation of nothing but this question gives it no other meaning, but its prompt is not a plain one; any other turn counts."""
    again = identity(turns=(("how do I pay?", "By card."), ("How do I pay?", "")))
    assert again.key == identity().key
    assert not again.is_pure
    assert identity(turns=(("How do I pay?", "By card."), ("And cash?", "No."))).key != identity().key


def test_what_is_never_kept_says_why() -> None:
    """Chance, personal data, long texts, scenarios without a cache and a missing model have no identity."""
    assert why_none(temperature=0.5) == "a temperature above 0"
    assert why_none(text="my mail is ann@example.com, how do I pay?") == "personal data in the question"
    assert why_none(text="x" * (MAX_QUESTION_CHARS + 1)) == "too long a question"
    assert why_none(scenario="off") == "not kept for this scenario"
    assert why_none(settings=Settings()) == "not kept for this scenario"
    assert why_none(model=None) == "no model in place"
    assert identity(scenario="short").ttl_s == 5


def test_the_first_model_of_the_scenarios_ladder_is_asked_for() -> None:
    """A scenario with a ladder of its own has its own model's answers."""
    settings = settings_with(
        models=[{"name": "main"}, {"name": "big"}],
        ladder={"rungs": ["cache", "main", "default"]},
        scenarios={"deep": {"ladder": {"rungs": ["cache", "big", "main"]}}},
    )
    refs = {"main": ModelRef("smol", "1"), "big": ModelRef("big", "1")}
    identifier = Identifier(settings, refs.get)
    found = [identifier.identify(question("hi", settings=settings, scenario=name)) for name in ("default", "deep")]
    assert [one.writer.name for one in found if isinstance(one, Identity)] == ["smol", "big"]


def test_an_answer_that_speaks_of_other_state_is_seen() -> None:
    """Values outside the context that the person did not say may not reach others; those inside it, and short ones, may."""
    asked = question(
        "Where is my parcel?", settings=FAQ, scenario="order", state={"name": "Ann Lee", "order": {"status": "sent", "id": 48213}, "n": 3, "城": "杭州"}
    )
    assert repeats_hidden(asked, "Dear ann lee, it is sent.")
    assert repeats_hidden(asked, "Order 48213 is sent.")
    assert repeats_hidden(asked, "已到杭州。")
    assert not repeats_hidden(asked, "It is sent and takes 3 days.")
    said = question("I am Ann Lee. Where is it?", settings=FAQ, scenario="order", state={"name": "Ann Lee"})
    assert not repeats_hidden(said, "Dear Ann Lee, it is sent.")
    assert repeats_hidden(asked, "Order 48,213 is sent.")
    assert repeats_hidden(asked, "订单４８２１３已发出。")
    listed = question("Where?", settings=FAQ, scenario="order", state={"order": [{"status": "held by customs"}]})
    assert repeats_hidden(listed, "It is held by customs.")
    crowded = question("Where?", settings=FAQ, scenario="order", state={"all": list(range(2000))})
    assert repeats_hidden(crowded, "Here.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.0, 1.0, 2.5]) | st.text("ab0", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(["pay?", "pay later?", "付款", "付款1"]),
        "tenant": st.sampled_from(["a", "b", "ab"]),
        "scenario": st.sampled_from(["a", "b", "ab"]),
        "locale": st.sampled_from(["en", "en-GB", "zh"]),
        "max_tokens": st.none() | st.integers(1, 3),
        "stop": st.lists(st.sampled_from(["a", "b", "ab"]), max_size=2).map(tuple),
        "constraint": st.none()
        | st.builds(Constraint, choice=st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=2).map(tuple))
        | st.builds(Constraint, regex=st.sampled_from(["a", "b"]))
        | st.builds(Constraint, json_schema=st.sampled_from(["a", "b"])),
        "state": st.dictionaries(st.sampled_from(["a", "b"]), JSON, max_size=2),
        "turns": st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["", "a", "b"])), max_size=2).map(tuple),
    }
)


@given(PARTS, PARTS)
def test_two_questions_share_a_key_only_when_they_are_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    """However the parts are mixed, no two different ones meet: not across tenants, scenarios, locales, options, state or conversations."""
    encoded = [msgspec.msgpack.encode(parts, order="deterministic") for parts in (one, other)]
    assume(encoded[0] != encoded[1] and _shown(one) != _shown(other))
    assert identity(**one).key != identity(**other).key


@given(PARTS)
def test_the_same_question_has_the_same_key_each_time(parts: dict[str, Any]) -> None:
    """A key is a pure function of the question, in whatever order its state came."""
    turned = {**parts, "state": dict(reversed(parts["state"].items()))}
    assert identity(**parts).key == identity(**turned, session="x", event="y").key


def _shown(parts: dict[str, Any]) -> Any:
    """Two sets of parts whose prompts read the same are one question: 1 and 1.0 aside, only an empty state and none do."""
    return [question(**parts, settings=FAQ).messages, {key: value for key, value in parts.items() if key not in ("state", "turns")}]
