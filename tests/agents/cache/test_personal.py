"""Personal data by its form, in English and Chinese texts, and the numbers that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cache.personal import MOST_IBAN_STARTS, PersonalKind, find_personal, holds_personal

FOUND: tuple[tuple[str, PersonalKind, str], ...] = (
    ("write to ann.lee+x@mail.example.com please", "email", "ann.lee+x@mail.example.com"),
    ("邮箱是zhang_san@example.cn，谢谢", "email", "zhang_san@example.cn"),
    ("write to ann@bücher.example please", "email", "ann@bücher.example"),
    ("写到张三@公司.cn吧", "email", "@公司.cn"),
    ("邮箱：ｌｉ＠ｅｘａｍｐｌｅ．ｃｎ", "email", "ｌｉ＠ｅｘａｍｐｌｅ．ｃｎ"),
    ("我的手机号是13812345678", "phone", "13812345678"),
    ("联系 138 1234 5678 吧", "phone", "138 1234 5678"),
    ("电话０１０－６２７５１２３４", "phone", "０１０－６２７５１２３４"),
    ("reach me on +44 20 7946 0958.", "phone", "+44 20 7946 0958"),
    ("it is (415) 555-2671, thanks", "phone", "(415) 555-2671"),
    ("my phone number is 5552671", "phone", "phone number is 5552671"),
    ("card 4111 1111 1111 1111 12/27", "card", "4111 1111 1111 1111"),
    ("卡号6222020200112233446", "card", "6222020200112233446"),
    ("5555-5555-5555-4444 123", "card", "5555-5555-5555-4444"),
    ("身份证11010519900307123X", "national_id", "11010519900307123X"),
    ("SSN 123-45-6789", "national_id", "123-45-6789"),
    ("pay to DE89 3704 0044 0532 0130 00 today", "iban", "DE89 3704 0044 0532 0130 00"),
    ("REF 12 AB12 GB29NWBK60161331926819", "iban", "GB29NWBK60161331926819"),
)
HARMLESS = (
    "Open Monday to Friday, 09:00-17:30.",
    "转账1000元，手续费2.5元",
    "Version 2026.4.1 came out on 2026-11-30 at 10:15:00.",
    "1,234,567.89 EUR for 12000 items",
    "The hotel has 200 rooms and 1500 guests",
    "order 2026113000017 of 3",
    "4111 1111 1111 1112 is not a card's number",
    "11010519901307123X has no thirteenth month",
    "a@b and c @ d.com",
    "π is 3.14159265358979",
    "AB12 is a gate",
)


@pytest.mark.parametrize(("text", "kind", "shown"), FOUND)
def test_each_kind_is_found_where_it_stands(text: str, kind: PersonalKind, shown: str) -> None:
    """Kind and place are those of the text as it came, full-width signs included."""
    finds = [(found.kind, text[found.start : found.end]) for found in find_personal(text)]
    assert (kind, shown) in finds
    assert holds_personal(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_other_numbers_are_none(text: str) -> None:
    """Dates, amounts, versions and numbers with a wrong check digit are not personal."""
    assert find_personal(text) == ()
    assert not holds_personal(text)


@given(st.text(alphabet="0123456789 -.()+@aZ电话", max_size=300))
def test_any_text_can_be_searched(text: str) -> None:
    """Finds lie within the text, and the quick answer is the same as the long one."""
    finds = find_personal(text)
    assert all(0 <= found.start < found.end <= len(text) for found in finds)
    assert holds_personal(text) == bool(finds)


def is_iban(number: str) -> bool:
    """ISO 13616 by its own words."""
    plain = number.replace(" ", "").upper()
    return len(plain) >= 15 and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1


@given(st.lists(st.text("0123AZ", min_size=1, max_size=6), min_size=3, max_size=7), st.integers(0, 96))
def test_an_iban_ends_where_its_check_digits_say(groups: list[str], check: int) -> None:
    """Of the endings at a blank the longest with the right remainder counts, as when each is divided anew."""
    text = " ".join([f"DE{check:02}{groups[0]}", *groups[1:]])
    signs, longest = 0, len(text)
    for place, sign in enumerate(text):
        signs += sign != " "
        if signs > 34:
            longest = place
            break
    ends = [end for end in range(len(text) + 1) if (end == longest or (end < longest and text[end] == " ")) and is_iban(text[:end])]
    assert [found.end for found in find_personal(text) if found.kind == "iban" and found.start == 0] == ends[-1:]


def test_a_text_of_nothing_but_beginnings_is_not_kept() -> None:
    """More beginnings of account numbers than are looked at: it may hold one, and so counts as holding one."""
    assert not holds_personal("AA12 " * (MOST_IBAN_STARTS - 1))
    assert holds_personal("AA12 " * 800)
