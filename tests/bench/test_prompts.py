"""The benchmark's events."""

from __future__ import annotations

from typing import Any

from bench.prompts import LABELS, SESSIONS, event_maker, question


def test_every_system_gets_the_same_events() -> None:
    """Texts and sessions follow from the seed; only the ids differ between runs."""
    first, second = (event_maker("8", run, budget_ms=300) for run in ("a", "b"))

    def without_id(event: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in event.items() if key != "event_id"}

    assert [without_id(first(index)) for index in range(50)] == [without_id(second(index)) for index in range(50)]
    assert first(0)["event_id"] != second(0)["event_id"]


def test_points_do_not_share_prompts() -> None:
    """A system that stays up must not find one point's prompts in its cache at the next."""
    one, other = ({question(seed, index) for index in range(300)} for seed in ("4", "8"))
    assert len(one & other) < 10


def test_sessions_are_many() -> None:
    """Events spread over nearly all sessions."""
    make = event_maker("x", "r", budget_ms=300)
    assert len({make(index)["session_id"] for index in range(2000)}) > SESSIONS * 0.9


def test_labels_differ_early() -> None:
    """No two labels begin alike, so that a first token can decide."""
    assert len({label[0] for label in LABELS}) == len(LABELS)
