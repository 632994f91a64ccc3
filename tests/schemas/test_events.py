"""Events: two records are the same event when their digests are equal, and only what carries meaning counts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import AnswerOptions, Consent, InteractionEvent

EVENT = InteractionEvent(event_id="e-1", session_id="s-1", text="Buy the sword", state={"gold": 120, "quest": {"id": 7, "step": 2}})

MEANINGFUL: dict[str, dict[str, Any]] = {
    "kind": {"kind": "decision"},
    "text": {"text": "Buy the shield"},
    "text that is absent": {"text": None},
    "text that is empty": {"text": ""},
    "state": {"state": {"gold": 121, "quest": {"id": 7, "step": 2}}},
    "state, deep inside": {"state": {"gold": 120, "quest": {"id": 7, "step": 3}}},
    "ref": {"ref": "e-0"},
    "accept": {"accept": False},
    "answer.max_tokens": {"answer": AnswerOptions(max_tokens=4)},
    "answer.choice": {"answer": AnswerOptions(choice=("yes", "no"))},
    "answer.stream": {"answer": AnswerOptions(stream=True)},
    "consent.ai_reply": {"consent": Consent(ai_reply=False)},
    "consent.store_history": {"consent": Consent(store_history=True)},
    "scenario": {"scenario": "shop"},
}


@pytest.mark.parametrize("field", MEANINGFUL)
def test_another_meaning_has_another_digest(field: str) -> None:
    """A change of any field that the contract lists makes another event of it."""
    assert msgspec.structs.replace(EVENT, **MEANINGFUL[field]).digest() != EVENT.digest()


@pytest.mark.parametrize(
    "fields",
    [{"deadline_ms": 5.0}, {"occurred_at_ms": 1}, {"metadata": {"try": "2"}}, {"locale": "zh"}, {"subject": "p"}, {"event_id": "e-2"}, {"tenant": "t"}],
    ids=lambda fields: str(next(iter(fields))),
)
def test_the_way_it_was_sent_is_not_its_meaning(fields: dict[str, Any]) -> None:
    """A producer may send an event again with a new stamp, budget or metadata and still mean the same."""
    assert msgspec.structs.replace(EVENT, **fields).digest() == EVENT.digest()


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.dictionaries(st.text(max_size=4), st.booleans(), max_size=5), min_size=2, max_size=6))
def test_the_order_of_maps_is_not_meaning(state: dict[str, Any]) -> None:
    """Maps that differ only in order, at any depth, are the same event."""
    state = {key: value for key, value in state.items() if isinstance(value, dict) or -(2**63) <= value < 2**64}
    turned = {key: dict(reversed(list(value.items()))) if isinstance(value, dict) else value for key, value in reversed(list(state.items()))}
    assert msgspec.structs.replace(EVENT, state=turned).digest() == msgspec.structs.replace(EVENT, state=state).digest()


def test_texts_that_touch_are_not_confused() -> None:
    """Moving characters from one field to the next changes the digest."""
    one = msgspec.structs.replace(EVENT, text="ab", ref="c")
    other = msgspec.structs.replace(EVENT, text="a", ref="bc")
    assert one.digest() != other.digest()


def test_a_digest_is_the_same_in_every_release() -> None:
    """Kept answers outlive the process that kept them, so the digest of a given event may not change by accident."""
    assert len(EVENT.digest()) == 16
    assert EVENT.digest().hex() == "2201b82e867fb22d2d032e4d3db16a2f"
