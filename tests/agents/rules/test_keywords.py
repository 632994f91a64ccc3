"""Keywords: what counts as the same text, and as a word of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.rules.keywords import Keyword, KeywordFinder, parse_keyword
from agents.rules.normalize import fold, fold_width

TEXTS = st.text(alphabet="aB1_ é退款カ한กſßİΣςﬁＡ①\u00ad\u200b\u0301-'!\n\t\u3000", max_size=24)


def keyword(written: str) -> Keyword:
    """A keyword that there is something to look for in."""
    found = parse_keyword(written)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("written", "text", "stands"),
    [
        ("art", "an art", True),
        ("art", "start", False),
        ("art", "arts", False),
        ("art", "art's art-house", True),
        ("art", "my_art", False),
        ("art*", "artists", True),
        ("art*", "start", False),
        ("*art", "start", True),
        ("*art*", "starting", True),
        ("ART", "aRt!", True),
        ("ａｒｔ", "ART", True),
        ("reset password", "please RESET \n  password", True),
        ("re\u00adfund", "ref\u200bund", True),
        ("100", "1000", False),
        ("100元", "转账1100元", False),
        ("100元", "转账100元", True),
        ("vip", "我是VIP会员", True),
        ("退款", "我要退款了", True),
        ("退款", "我要退\u200b款了", True),
        ("환불", "환불을 원해요", True),
        ("カード", "ｶｰﾄﾞをなくした", True),
        ("คืนเงิน", "ขอคืนเงินได้ไหม", True),
        ("café", "cafe\u0301", True),
        ("cafe", "café", False),
        ("straße", "STRASSE", True),
        ("❤", "I❤️you", True),
        (":)", "ok:)ok", True),
        ("c++", "I write C++.", True),
    ],
)
def test_keyword_stands_where_a_reader_sees_it(written: str, text: str, stands: bool) -> None:
    """Whole words where scripts have blanks between them, anywhere in those that have not; case, width and invisible characters do not matter."""
    assert keyword(written).stands_in(fold(text)) is stands
    assert KeywordFinder([keyword(written)]).find(fold(text)) == ({0} if stands else set())


@pytest.mark.parametrize("written", ["", "  ", "*", "**", "\u200b", " * "])
def test_nothing_is_no_keyword(written: str) -> None:
    """A keyword of blanks and stars would stand in every text."""
    assert parse_keyword(written) is None


@given(TEXTS)
@example("İ̇ſẞﬃ")
def test_folding_twice_changes_nothing(text: str) -> None:
    """The form is final, so that keyword and text meet in the same one; patterns' form likewise."""
    assert fold(fold(text)) == fold(text)
    assert fold_width(fold_width(text)) == fold_width(text)


@given(st.lists(st.text(alphabet="ab退款 *1é", min_size=1, max_size=4), max_size=12), TEXTS | st.text(alphabet="ab退款 1é", max_size=16))
def test_one_pass_finds_what_each_keyword_finds(written: list[str], text: str) -> None:
    """Keywords within, across and beside others are found as if each were looked for alone."""
    keywords = [found for one in written if (found := parse_keyword(one)) is not None]
    folded = fold(text)
    assert KeywordFinder(keywords).find(folded) == {number for number, one in enumerate(keywords) if one.stands_in(folded)}


def test_keywords_in_pieces() -> None:
    """Numbers stay those of the list when several automata share it."""
    keywords = [keyword(f"w{number}") for number in range(7000)]
    for in_pieces in (False, True):
        assert KeywordFinder(keywords, in_pieces=in_pieces).find("w6999 w0 w3500 w70001") == {0, 3500, 6999}
