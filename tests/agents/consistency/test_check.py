"""Answers against known facts and confirmed decisions: what raises an alarm, and what must not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.consistency import check, repair
from schemas.facts import Fact, Facts, Text
from schemas.session import Decision
from tests.agents.facts.playing import START_MS, built_in, know

ENGLISH = (
    "My name is Bob Smith, my order number is A-12.",
    "I need 12 mugs. My budget is 500 euros.",
    "My appointment is on Friday at 3 pm.",
    "I don't want gift wrapping. I'm allergic to nuts.",
)
CHINESE = ("我叫王小明，订单号是A12。", "我要买五个杯子，预算是300元。", "我的预约在周五下午三点。", "我不要发票，我对花生过敏。")
DECISIONS = (
    Decision("d1", "Transfer 100 euros to Anna", START_MS),
    Decision("d2", "Cancel order B-77", START_MS + 1),
    Decision("d3", "关闭自动续费", START_MS + 2),
)


def alarms(answer: str, locale: str = "en") -> list[str]:
    """The slots that an answer contradicts."""
    known = know(*(CHINESE if locale == "zh" else ENGLISH), locale=locale)
    return [alarm.slot for alarm in check(answer, known, DECISIONS, locale, built_in(), at_ms=START_MS)]


@pytest.mark.parametrize(
    ("answer", "slots"),
    [
        ("Hello Carl, how are you?", ["name"]),
        ("Your name is not Bob Smith.", ["name"]),
        ("Your order A-13 is late.", ["order_number"]),
        ("Your 10 mugs are packed.", ["quantity"]),
        ("That is within your budget of 600 euros.", ["budget"]),
        ("Your appointment is on Thursday.", ["date"]),
        ("Your appointment is on Friday at 16:00.", ["date"]),
        ("Your appointment is tomorrow at 4 pm.", ["date"]),
        ("As you want gift wrapping, it is in red paper.", ["wants"]),
        ("You are not allergic to nuts.", ["allergy"]),
    ],
)
def test_contradictions_of_facts(answer: str, slots: list[str]) -> None:
    """Names, codes, numbers, dates and yes or no are compared by their slot."""
    assert alarms(answer) == slots


@pytest.mark.parametrize(
    ("answer", "slots"),
    [
        ("您的名字是王大力。", ["name"]),
        ("订单A13已发出。", ["order_number"]),
        ("您要买六个杯子。", ["quantity"]),
        ("您的预算是400元。", ["budget"]),
        ("您的预约在周四。", ["date"]),
        ("您需要发票，已附上。", ["wants"]),
        ("您对花生不过敏。", ["allergy"]),
    ],
)
def test_contradictions_of_facts_in_chinese(answer: str, slots: list[str]) -> None:
    """The same in Chinese."""
    assert alarms(answer, "zh") == slots


@pytest.mark.parametrize(
    "answer",
    [
        "Hello Bob, hello again.",
        "Dear customer, thanks.",
        "A box holds 6 mugs, and most people spend 900 euros.",
        "Is your name Carl?",
        "If your budget was 900 euros, there would be more.",
        "Your previous order A-11 was late.",
        "You could compare order A-12 with order A-13.",
        "Your appointment is on Friday at 15:00.",
        "Your appointment is in March.",
        "Your budget is enough.",
        'You said "my name is Carl" once.',
        "I need 10 mugs myself.",
        "",
        "???",
    ],
)
def test_no_alarm_for_what_is_not_said(answer: str) -> None:
    """What is right, asked, supposed, past, quoted, of others or not mentioned raises no alarm."""
    assert alarms(answer) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I have transferred 1000 euros to Anna.", True),
        ("I have transferred 100 euros to Bert.", True),
        ("I have transferred 100 euros to Anna.", False),
        ("I have transferred 30 euros to Bert.", False),
        ("Your order B-77 has not been cancelled.", True),
        ("Your order B-77 remains active.", True),
        ("Your order B-77 is cancelled.", False),
        ("Your order B-78 has not been cancelled.", False),
        ("I could not cancel order B-77, sorry.", False),
        ("Your order B-77 will be cancelled tonight.", False),
        ("自动续费已经开启。", True),
        ("自动续费没有关闭。", True),
        ("自动续费已经关闭。", False),
    ],
)
def test_decisions(answer: str, expected: bool) -> None:
    """A confirmed decision is contradicted by its denial, its opposite, another amount or recipient, and by nothing else."""
    assert [alarm.slot for alarm in check(answer, Facts(), DECISIONS, "en", built_in())] == (["decision"] if expected else [])


def test_a_later_decision_counts() -> None:
    """Who has renewed after having cancelled is not told that it should be cancelled."""
    later = Decision("d9", "Keep order B-77", START_MS + 9)
    assert check("Your order B-77 remains active.", Facts(), (*DECISIONS, later), "en", built_in()) == ()


def test_guesses_and_unpinned_facts_hold_nothing_up() -> None:
    """Only pinned facts of some confidence stand against the model."""
    for fact in (Fact("name", Text("Bob"), "e", 1, pinned=False), Fact("name", Text("Bob"), "e", 1, pinned=True, confidence=0.5)):
        assert check("Hello Carl", Facts((fact,)), (), "en", built_in()) == ()


def test_denied_fact_must_not_be_said() -> None:
    """After `my name is not Bob` an answer to Bob is wrong, and one to Carl is not."""
    known = know("My name is not Bob")
    assert [alarm.slot for alarm in check("Hello Bob", known, (), "en", built_in())] == ["name"]
    assert check("Hello Carl", known, (), "en", built_in()) == ()


@pytest.mark.parametrize(
    ("answer", "locale", "mended"),
    [
        ("Hello Carl, your order A-13 is late.", "en", "Hello Bob Smith, your order A-12 is late."),
        ("Your 10 mugs cost 80 euros.", "en", "Your 12 mugs cost 80 euros."),
        ("I have transferred 1000 euros to Anna.", "en", "I have transferred 100 euros to Anna."),
        ("您好，您的预算是400元，您要买六个杯子。", "zh", "您好，您的预算是300元，您要买5个杯子。"),
        ("Your appointment is on Thursday.", "en", None),
        ("You are not allergic to nuts.", "en", None),
        ("Hello Carl, you are not allergic to nuts.", "en", None),
        ("All is well.", "en", "All is well."),
    ],
)
def test_repair(answer: str, locale: str, mended: str | None) -> None:
    """Names, codes and numbers are replaced, and nothing is half mended; what is mended passes the check."""
    known = know(*(CHINESE if locale == "zh" else ENGLISH), locale=locale)
    assert repair(answer, check(answer, known, DECISIONS, locale, built_in())) == mended
    if mended is not None:
        assert check(mended, known, DECISIONS, locale, built_in()) == ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["your", "name", "is", "Carl", "order", "A-13", "budget", "of", "900", "euros", "not", ",", ".", "您的", "预算是", "“", "ﬁ", "１０", "mugs"]
        ),
        max_size=25,
    )
)
def test_any_answer_is_checked_and_mended(words: list[str]) -> None:
    """Whatever the words, places lie within the answer, and what can be mended is."""
    answer = " ".join(words)
    known = know(*ENGLISH)
    found = check(answer, known, DECISIONS, "en", built_in())
    assert all(0 <= alarm.start <= alarm.end <= len(answer) or alarm.replacement is None for alarm in found)
    mended = repair(answer, found)
    assert mended is None or not found or mended != answer
