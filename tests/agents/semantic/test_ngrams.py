"""The encoder without a model: near for the same meaning, far for another, always of one shape."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agents.semantic.ngrams import NgramEncoder

ENCODER = NgramEncoder()


def likeness(one: str, other: str) -> float:
    """Cosine of two texts."""
    left, right = ENCODER.encode([one, other])
    return float(left @ right)


def test_synonyms_and_fillers_do_not_matter() -> None:
    """What is asked counts, not how politely."""
    assert likeness("Could you please tell me how to cancel an order?", "How do I cancel my order?") > 0.99
    assert likeness("怎么修改收货地址？", "请问如何更改收货地址") > 0.99


def test_other_content_is_far() -> None:
    """One other word of two is no likeness."""
    assert likeness("How do I track a parcel?", "How do I paint a fence?") < 0.3
    assert likeness("怎么查物流", "怎么种番茄") < 0.3


def test_a_typing_error_stays_near() -> None:
    """Pieces of words hold a mistyped one near itself."""
    assert likeness("kubernetes", "kubernettes") > likeness("kubernetes", "elasticsearch")


@given(st.lists(st.text(max_size=80), max_size=4))
def test_every_text_has_one_row_of_length_one_or_none(texts: list[str]) -> None:
    """float32, [texts, size], each normalised; a text without anything to go by is all zero."""
    rows = ENCODER.encode(texts)
    assert rows.shape == (len(texts), ENCODER.size)
    assert rows.dtype == np.float32
    for length in np.linalg.norm(rows, axis=1):
        assert length == 0 or abs(length - 1) < 1e-5


def test_the_same_everywhere() -> None:
    """Vectors do not depend on the process: no hash that is salted."""
    assert np.flatnonzero(ENCODER.encode(["refund"])[0])[:3].tolist() == np.flatnonzero(NgramEncoder().encode(["refund"])[0])[:3].tolist()
