"""The events of the benchmark: short support questions that never repeat, over many sessions; when they leave is `arrivals`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

INSTRUCTIONS = "You are a helpful assistant. Answer in one short sentence."
"""With the chat template around it about 20 tokens, the same in every prompt."""

NEW_TOKENS = 16

SESSIONS = 200
"""So many that one session's events rarely meet; the sessions' history is off, so that all systems read the same prompts."""

LABELS = ("billing question", "delivery problem", "technical fault", "other request")
"""Four labels that differ in their first token and have more than one, as people's labels do."""

_NAMES = (
    *("Anna", "Boris", "Carla", "David", "Emma", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Leo", "Maria", "Nils", "Olga", "Paul"),
    *("Rosa", "Simon", "Tina", "Viktor", "Wanda", "Zoe", "Albert", "Bella", "Conrad", "Diana", "Edgar", "Flora", "George", "Helen", "Ivan", "Julia"),
)
_ASKS = ("how to repair", "why we replaced", "what to do with", "how to clean", "who should check", "when to return", "how we deliver", "why you need")
_THINGS = (
    *("the old bicycle", "a kitchen lamp", "the garden door", "a winter coat", "the coffee machine", "a train ticket", "the water pump", "a paper map"),
    *("the guitar case", "a wooden chair", "the phone charger", "a leather bag", "the radio", "a small boat", "the front window", "a heavy box"),
)
_WHEN = (
    "after the storm",
    "before the holiday",
    "without the receipt",
    "during the night",
    "in the new office",
    "for a friend abroad",
    "on a rainy day",
    "by train",
)


def question(seed: str, index: int) -> str:
    """The `index`th question under `seed`, about 15 tokens; it differs from its first word on, so that no cache holds more than the instructions."""
    generator = random.Random(f"{seed}/{index}")
    name, ask, thing, when = (generator.choice(words) for words in (_NAMES, _ASKS, _THINGS, _WHEN))
    return f"{name} wants to know {ask} {thing} {when}."


def event_maker(seed: str, run: str, *, budget_ms: float, choice: bool = False, sessions: int = SESSIONS) -> Callable[[int], dict[str, Any]]:
    """Events by index. Texts and sessions follow from `seed` alone; `run` keeps the ids of two runs apart."""

    def make(index: int) -> dict[str, Any]:
        session = random.Random(f"{seed}/{index}/session").randrange(sessions)
        answer: dict[str, Any] = {"max_tokens": NEW_TOKENS}
        if choice:
            answer["choice"] = list(LABELS)
        return {
            "event_id": f"{run}-{index}",
            "session_id": f"s{session}",
            "text": question(seed, index),
            "deadline_ms": budget_ms,
            "answer": answer,
        }

    return make
