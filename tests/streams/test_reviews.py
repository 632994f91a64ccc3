"""Handing disputed answers to people on the real broker: in order, and without harm when that cannot be done."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.reviews import Review
from schemas.settings import Settings
from schemas.settings_ladder import Feedback
from streams import reviews
from streams.clients import Tail
from streams.reviews import ReviewWriter
from streams.topic_admin import ensure_topics
from streams.topics import Topics, specs
from tests.support import run

pytestmark = pytest.mark.live


def review(number: int) -> Review:
    """One complaint."""
    return Review(
        at_ms=1, tenant="t", session_id="s", event_id=f"f{number}", ref=f"e{number}", verdict="wrong", outcome="model", reason=None, model=None, response_id="r"
    )


@pytest.fixture
def with_topic(kafka_settings: Settings) -> Settings:
    """Settings that name a topic for people."""
    return msgspec.structs.replace(kafka_settings, feedback=Feedback(topic="for-people"))


def test_reviews_arrive_in_order_on_a_topic_of_ours(with_topic: Settings) -> None:
    """The topic carries the prefix and is made with the others; what waits at a stop is still sent."""
    told: list[bool] = []

    async def sending() -> list[dict[str, Any]]:
        await ensure_topics(with_topic)
        writer = ReviewWriter(with_topic, told.append)
        await writer.start()
        async with Tail(with_topic, [Topics.of(with_topic).reviews]) as tail:
            assert all(writer.offer(review(number)) for number in range(5))
            await writer.stop()
            return [(await anext(tail)).decode() for _ in range(5)]

    assert Topics.of(with_topic).reviews == f"{with_topic.kafka.topic_prefix}for-people"
    assert [record["ref"] for record in run(sending())] == [f"e{number}" for number in range(5)]
    assert told == [True] * 5


def test_without_a_topic_nothing_is_taken(kafka_settings: Settings) -> None:
    """No topic is made, no connection opened."""

    async def offering() -> bool:
        writer = ReviewWriter(kafka_settings, lambda _: None)
        await writer.start()
        try:
            return writer.offer(review(1))
        finally:
            await writer.stop()

    assert run(offering()) is False
    assert "" not in {spec.name for spec in specs(kafka_settings)}


def test_more_than_may_wait_are_dropped_and_counted(with_topic: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays flat while nobody takes them."""
    monkeypatch.setattr(reviews, "WAITING", 3)
    told: list[bool] = []

    async def offering() -> list[bool]:
        writer = ReviewWriter(with_topic, told.append)
        return [writer.offer(review(number)) for number in range(5)]

    assert run(offering()) == [True, True, True, False, False]
    assert told == [False, False]
