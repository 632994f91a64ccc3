"""Each guard by itself: what it tells apart, and what it must not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.semantic.guards import GUARDS, difference, find_asks, is_negated, signature
from agents.semantic.language import fold, stem
from agents.semantic.meanings import have_swapped
from agents.semantic.names import find_names
from agents.semantic.tune import read_pairs

EXAMPLES = Path(__file__).parents[3] / "examples" / "semantic_pairs.jsonl"


def guard(one: str, other: str) -> str | None:
    """Which guard tells two texts apart."""
    return difference(signature(one), signature(other))


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("chinese", "reset", "重置"),
        ("numbers", "转账100元", "转账1000元"),
        ("numbers", "Can I return it after 14 days?", "Can I return it after 30 days?"),
        ("units", "It costs 50 euros", "It costs 50 dollars"),
        ("units", "这个20斤", "这个20公斤"),
        ("negated", "My card was charged", "My card was not charged"),
        ("negated", "请通知我的家人", "别通知我的家人"),
        ("sides", "How do I turn on dark mode?", "How do I turn dark mode off?"),
        ("sides", "开启自动续费", "关闭自动续费"),
        ("sides", "Should I buy shares?", "Should I sell shares?"),
        ("sides", "How do I zoom in on the map?", "How do I zoom out on the map?"),
        ("members", "Is the red jacket here?", "Is the blue jacket here?"),
        ("members", "用微信支付", "用支付宝支付"),
        ("names", "Send it to Alice", "Send it to Robert"),
        ("names", "播放《夜空》", "播放《晨光》"),
        ("names", "给张伟打电话", "给李娜打电话"),
        ("names", "Does the X200 have Bluetooth?", "Does the X300 have Bluetooth?"),
        ("relations", "Move money from checking to savings", "Move money from savings to checking"),
        ("relations", "从北京到上海的高铁", "从上海到北京的高铁"),
        ("relations", "Is Basic cheaper than Pro?", "Is Pro cheaper than Basic?"),
        ("relations", "吃药前要吃饭吗", "吃饭前要吃药吗"),
        ("actors", "Can I follow him?", "Can he follow me?"),
        ("actors", "我能关注他吗", "他能关注我吗"),
        ("asks", "When does the sale start?", "Why does the sale start?"),
        ("asks", "什么时候发货", "为什么发货"),
        ("words", "How do I tune a violin?", "How do I tune a cello?"),
        ("words", "小提琴怎么调音", "大提琴怎么调音"),
        ("order", "Can the nurse overrule the surgeon?", "Can the surgeon overrule the nurse?"),
        ("order", "狮子能打败鳄鱼吗", "鳄鱼能打败狮子吗"),
    ],
)
def test_each_guard_tells_its_kind_apart(name: str, one: str, other: str) -> None:
    """And it is that guard which does."""
    assert guard(one, other) == name
    assert guard(other, one) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "What is the way to reset my password?"),
        ("Why don't you ship to Peru?", "Why don't you ship to Peru"),
        ("能不能开发票？", "可以开发票吗？"),
        ("How do I turn off the lights?", "How do I turn the lights off?"),
        ("怎么连接打印机？", "打印机怎么连接？"),
        ("转账200元给小明", "给小明转账两百元"),
        ("I want to borrow a book from the library", "How do I borrow a book from the library?"),
    ],
)
def test_the_same_said_otherwise_passes(one: str, other: str) -> None:
    """Guards hold back what differs, not what is only said in other words."""
    assert guard(one, other) is None


@pytest.mark.parametrize("text", ["能不能退款", "是不是坏了", "why don't you pay", "今天开不开门", "no problem", "差不多了", "I don't know how to pay"])
def test_sayings_deny_nothing(text: str) -> None:
    """A negation inside a saying is none."""
    assert not is_negated(fold(text))


@pytest.mark.parametrize("text", ["I can't pay", "never pay", "pay without a card", "没到账", "别发货", "无法登录"])
def test_negations_are_seen(text: str) -> None:
    """In both languages, joined or not."""
    assert is_negated(fold(text))


def test_two_negations_cancel_out() -> None:
    """`Can't … without` allows only with."""
    assert not is_negated(fold("I can't pay without a card"))


def test_where_by_hand_asks_how() -> None:
    """Where a setting is changed is how it is changed; where a thing is, is not."""
    assert find_asks(fold("Where can I change my address?")) == find_asks(fold("How can I change my address?"))
    assert find_asks(fold("Where is the station?")) == {"where"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('Play "Yellow Moon" for Anna', {"yellow moon", "yellow", "moon", "anna"}),
        ("Where is it?", set()),
        ("Anna's parcel", {"anna"}),
        ("请联系王小明老师", {"王小明"}),
        ("iPhone怎么开机", {"iphone"}),
        ("Mail me at a.b@example.org", {"a.b@example.org"}),
    ],
)
def test_names_are_found(text: str, names: set[str]) -> None:
    """Quoted, capitalised, coded and Chinese ones."""
    assert find_names(text) >= names
    assert bool(find_names(text)) == bool(names)


def test_swapped_places_need_something_between() -> None:
    """Parts that meet are only said the other way round, and both sides of an `and` may change."""
    assert have_swapped(("dog", "bite", "man"), ("man", "bite", "dog"))
    assert not have_swapped(("connect", "printer"), ("printer", "connect"))
    assert not have_swapped(("a", "and", "b"), ("b", "and", "a"))
    assert not have_swapped(("a", "b"), ("a", "b"))
    assert not have_swapped((), ("a",))


@pytest.mark.parametrize("forms", [("change", "changes", "changed", "changing"), ("cancel", "cancelled", "canceled", "cancelling"), ("address", "addresses")])
def test_forms_of_a_word_are_one(forms: tuple[str, ...]) -> None:
    """Plural, tense and doubled letters do not matter."""
    assert len({stem(form) for form in forms}) == 1


@given(st.text(max_size=120))
def test_any_text_agrees_with_itself(text: str) -> None:
    """No text raises, and none differs from itself."""
    assert guard(text, text) is None


@given(st.text(alphabet="abc 不一二百给从到前后我他\"'《》.?AB%$", max_size=40), st.text(alphabet="abc 不一二百给从到前后我他AB", max_size=40))
def test_differing_goes_both_ways(one: str, other: str) -> None:
    """Which text came first does not matter."""
    assert guard(one, other) == guard(other, one)


def test_one_word_more_is_for_encoders_that_know_what_it_means() -> None:
    """What knows words alone takes no more and no fewer; another word in place of one is never taken."""
    oven, door, fridge = (signature(f"How do I clean the {thing}?") for thing in ("oven", "oven door", "fridge"))
    assert difference(oven, door) == difference(door, oven) == "words"
    assert difference(oven, door, same_words=False) is None
    assert difference(oven, fridge, same_words=False) == "words"


@pytest.mark.parametrize("text", [text for pair in read_pairs(EXAMPLES) for text in (pair.a, pair.b) if re.search(r"\d", text)])
def test_another_digit_is_another_question(text: str) -> None:
    """Whichever digit of whichever text changes."""
    for place in [match.start() for match in re.finditer(r"\d", text)]:
        other = text[:place] + str((int(text[place]) + 3) % 10) + text[place + 1 :]
        assert guard(text, other) is not None, other


def test_every_guard_has_a_test() -> None:
    """The table above names them all."""
    marks = test_each_guard_tells_its_kind_apart.pytestmark  # type: ignore[attr-defined]  # what pytest keeps there has no types
    assert {case[0] for mark in marks for case in mark.args[1]} == set(GUARDS)
