"""What the cache's tests share: questions, budgets, answers, and a rung over them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from agents.cache.exact import CacheEvent
from agents.cache.rung import CacheRung
from agents.cache.shared import SharedStore
from agents.context.prompt import build_prompt
from agents.ladder import Declined, Given, Question
from schemas.deadline import Clock, ManualClock
from schemas.events import InteractionEvent
from schemas.inference import Constraint
from schemas.responses import ModelRef, Usage
from schemas.session import SessionState, Turn
from schemas.settings import Settings, parse_settings
from schemas.settings_ladder import Scenario

MODEL = ModelRef("smol", "v1")


class Budget:
    """Time until `seconds` from now, or until the test ends it."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stop_at = time.monotonic() + seconds


def settings_with(**tree: Any) -> Settings:
    """Settings with a cache of a minute, and what `tree` adds."""
    return parse_settings({"cache": {"ttl_s": 60}, **tree})


SETTINGS = settings_with()


def question(
    text: str,
    *,
    settings: Settings = SETTINGS,
    tenant: str = "default",
    session: str = "s",
    event: str = "e",
    scenario: str = "default",
    locale: str = "en",
    state: dict[str, Any] | None = None,
    turns: tuple[tuple[str, str], ...] = (),
    max_tokens: int | None = None,
    temperature: float = 0.0,
    stop: tuple[str, ...] = (),
    constraint: Constraint | None = None,
) -> Question:
    """A question as `agents.decide` makes it, with the real prompt."""
    past = tuple(Turn(f"t{place}", 0, said, reply, "model") for place, (said, reply) in enumerate(turns))
    session_state = SessionState(turns=past, state=state or {})
    place = settings.scenarios.get(scenario, Scenario())
    told = settings.session if place.instructions is None else msgspec.structs.replace(settings.session, instructions=place.instructions)
    return Question(
        event=InteractionEvent(event_id=event, session_id=session, tenant=tenant, scenario=scenario, text=text),
        state=session_state,
        messages=build_prompt(text, session_state, told),
        max_tokens=max_tokens,
        temperature=temperature,
        stop=stop,
        constraint=constraint,
        locale=locale,
        tenant=tenant,
        scenario=place,
    )


def said(text: str, **changes: Any) -> Given:
    """A model's whole answer."""
    return Given(**{"outcome": "model", "text": text, "finish_reason": "stop", "model": MODEL, "usage": Usage(9, 0, 4), **changes})


class Cache:
    """A rung, what it counted, and a way to play whole walks with it."""

    def __init__(
        self,
        settings: Settings = SETTINGS,
        *,
        clock: Clock | None = None,
        store: SharedStore | None = None,
        needs_s: Callable[[Question], float] | None = lambda _: 0.0,
    ) -> None:
        self.counts: Counter[CacheEvent] = Counter()
        self.model: ModelRef | None = MODEL
        self.clock = clock or ManualClock()
        self.rung = CacheRung(settings, lambda _: self.model, self.clock, store=store, count=self._count, needs_s=needs_s)

    def _count(self, event: CacheEvent) -> None:
        self.counts[event] += 1

    async def walk(self, asked: Question, then: Given | None, budget: Budget | None = None) -> Given | Declined:
        """Ask; when there is nothing, `then` is what the ladder comes to."""
        result = await self.rung.answer(asked, budget or Budget())
        self.rung.ended(asked, result if isinstance(result, Given) else then)
        return result

    async def teach(self, asked: Question, text: str = "Yes.", **changes: Any) -> None:
        """A miss that the model answers."""
        result = await self.walk(asked, said(text, **changes))
        assert isinstance(result, Declined), result

    async def gives(self, asked: Question) -> str | None:
        """The kept answer; None for a miss, which nobody answers then."""
        result = await self.walk(asked, None)
        return result.text if isinstance(result, Given) else None
