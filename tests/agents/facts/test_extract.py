"""Single sentences: what states a fact, what does not, and what corrects one; whole conversations are in `test_conversations`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.facts import extract, load_slots, split_decisions
from agents.facts.extract import MAX_FOUND
from schemas.settings_facts import Facts as FactsSettings
from schemas.settings_facts import Slot
from tests.agents.facts.playing import START_MS, built_in, know, said


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("My name is Bob.", {"name": "Bob"}),
        ("my name is bob", {"name": "bob"}),
        ("Order #A-12 is late", {"order_number": "A-12"}),
        ("Our budget is $1,500", {"budget": "1500 USD"}),
        ("I need twenty-five chairs", {"quantity:chair": "25"}),
        ("My flight is on 2026-03-05 at 7:40 am", {"date:flight": "2026-03-05 07:40"}),
        ("I'm allergic to nuts and shellfish", {"allergy:nut": "yes", "allergy:shellfish": "yes"}),
        ("我叫王小明", {"name": "王小明"}),
        ("预算是三千五百块", {"budget": "3500 CNY"}),
        ("我要买十二本书", {"quantity:书": "12"}),
        ("我的预约在下周一上午十点", {"date:预约": "Monday 10:00"}),
        ("我的预约在六月三号上午十一点", {"date:预约": "06-03 11:00"}),
        ("我特别喜欢咖啡", {"likes:咖啡": "yes"}),
        ("我要买六盏台灯", {"quantity:台灯": "6"}),
        ("We can't pay more than 900 euros", {"budget": "900 EUR"}),
        ("Name: Ann Lee, order number: QX4K2P", {"name": "Ann Lee", "order_number": "QX4K2P"}),
        ("姓名：王芳，电话：13912345678", {"name": "王芳", "phone": "13912345678"}),
    ],
)
def test_statements_set_facts(text: str, facts: dict[str, str]) -> None:
    """What a person states of themselves is read with its type, in both languages and in digits or words."""
    assert said(text) == facts


@pytest.mark.parametrize(
    "text",
    [
        "Is my name Bob?",
        "Is my order number A-12?",
        "My name is Bob, right?",
        "If I bought two mugs, my budget would be 50 euros.",
        "Suppose my name is Bob.",
        'He said "my name is Carl".',
        "My friend says my budget is 20 dollars.",
        "Maybe my flight is on Friday.",
        "I'm sorry about that.",
        "I'm not sure",
        "I want to know it",
        "A box holds 6 mugs.",
        "Nothing here works.",
        "Don't go over 5 minutes.",
        "My brother is allergic to cats.",
        "You are wrong by phone: 3 parcels came",
        "我的名字是李雷吗？",
        "如果我买两个杯子，预算就是100元",
        "他说他叫张三",
        "网站上写着“我叫张三”",
        "没人要八个座位",
        "我叫外卖了",
        "不超过三天就能到",
        "我最喜欢的",
        "叫我起床",
    ],
)
def test_what_is_not_stated_sets_nothing(text: str) -> None:
    """Questions, suppositions, other people's words and phrases that only look like facts leave no fact (a goal aside, there is none here)."""
    assert {name: value for name, value in said(text).items() if name != "goal"} == {}


def test_question_names_its_order() -> None:
    """A question about an order says which one is meant, though it states nothing else."""
    assert said("Is my order A-12 shipped?") == {"order_number": "A-12"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("My name is not Bob", {"name": "not Bob"}),
        ("My name isn't Bob", {"name": "not Bob"}),
        ("My budget isn't 500 euros", {"budget": "not 500 EUR"}),
        ("My name is not Bob but Bill", {"name": "Bill"}),
        ("I don't like coffee", {"likes:coffee": "no"}),
        ("I am not a student", {"status:student": "no"}),
        ("我不叫王明", {"name": "not 王明"}),
        ("我对花生不过敏", {"allergy:花生": "no"}),
        ("不需要发票", {"wants:发票": "no"}),
    ],
)
def test_negation_is_kept(text: str, facts: dict[str, str]) -> None:
    """What is denied is known as denied, and never as true."""
    assert said(text) == facts


@pytest.mark.parametrize(
    ("before", "text", "facts"),
    [
        ("I need 10 mugs. My budget is 200 euros.", "No, I meant 12, not 10.", {"quantity:mug": "12"}),
        ("I need 10 mugs. My budget is 200 euros.", "make it 250 euros", {"budget": "250 EUR"}),
        ("I need 10 mugs.", "I meant 30 trees", {}),
        ("My name is Hanna", "Sorry, it's Anna, not Hanna", {"name": "Anna"}),
        ("My meeting is on Friday at 3 pm", "Actually Thursday", {"date:meeting": "Thursday 15:00"}),
        ("我要买十个杯子", "不对，是12个，不是10个", {"quantity:杯子": "12"}),
        ("预算是300元", "改成400元", {"budget": "400 CNY"}),
        ("", "No, I meant 12, not 10.", {}),
    ],
)
def test_corrections_find_their_fact(before: str, text: str, facts: dict[str, str]) -> None:
    """A correction changes the fact with the old value, the unit or the thing that was named; where none fits, nothing."""
    assert said(text, known=know(before) if before else None) == facts


def test_correction_within_one_message() -> None:
    """The last word of a message counts."""
    assert said("My budget is 500 euros. No, I meant 600, not 500.") == {"budget": "600 EUR"}


def test_personal_slots_are_marked() -> None:
    """Name, e-mail, phone and address carry `personal`, so that they are kept and shown only where they may be."""
    text = "My name is Bob. My email is b@c.com. My phone is 0117 496 0123. My address is 8 Harbour Lane, Bristol."
    found = {fact.slot: fact.personal for fact in extract(text, "en", built_in(), "e", START_MS)}
    assert found == {"name": True, "email": True, "phone": True, "address": True}


def test_own_slot_of_a_scenario() -> None:
    """A slot of the settings is looked for in its scenarios alone, and waits for a confirm when it is a decision."""
    slot = Slot(
        name="hero_class",
        type="choice",
        patterns={"en": ("i (?:choose|pick) the (?P<value>[a-z]+)",)},
        choices={"mage": ("wizard",), "knight": ()},
        scenarios=("quest",),
        decision=True,
    )
    slots = load_slots(FactsSettings(slots=(slot,)))
    found = extract("I choose the wizard", "en", slots, "e", START_MS, scenario="quest")
    now, waits = split_decisions(slots, found)
    assert (now, [fact.value for fact in waits]) == ((), [fact.value for fact in found])
    assert found[0].slot == "hero_class"
    assert extract("I choose the wizard", "en", slots, "e", START_MS, scenario="shop") == ()


def test_bounded_number_of_facts() -> None:
    """A list without end does not push out everything else that is known."""
    text = ". ".join(f"I like thing{chr(97 + number)}x" for number in range(26)) + ". " + ". ".join(f"I like other{chr(97 + number)}y" for number in range(20))
    assert len(extract(text, "en", built_in(), "e", START_MS)) == MAX_FOUND


def test_long_text_is_read_to_its_bound() -> None:
    """Of 300 kB only the first `text_chars` are looked into."""
    text = "x" * 2001 + ". My name is Bob." + "y " * 150_000
    assert extract(text, "en", built_in(), "e", START_MS) == ()


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet='my name is not I meant 12,.?:"“我叫是不改成 ', max_size=200))
def test_any_text_is_read(text: str) -> None:
    """No text makes it fail, and the same text gives the same facts."""
    first = extract(text, "en", built_in(), "e", START_MS)
    assert first == extract(text, "en", built_in(), "e", START_MS)
