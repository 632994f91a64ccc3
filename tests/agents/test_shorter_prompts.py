"""A prompt that could not be read in time is made shorter, on a real scripted engine that reads slowly; what goes first is `context.test_prompt`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from agents.context.prompt import Prompt
from agents.ladder import Given, Question
from agents.model_rung import ModelRung
from schemas.events import InteractionEvent
from schemas.session import SessionState, Turn
from schemas.settings import Session
from tests.agents.runtime.engines import running, scripted_spec
from tests.support import run

TURNS = tuple(Turn(f"e{number}", number, "some words of an earlier turn", "and what was said to it", "model") for number in range(40))


class Until:
    """A budget of so many seconds."""

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[Any] = loop.create_future()
        self.stop_at = time.monotonic() + seconds


def question(text: str) -> Question:
    """With forty earlier turns."""
    prompt = Prompt(text, SessionState(turns=TURNS), Session(), '{"name":"Ann"}')
    event = InteractionEvent(event_id="e", session_id="s", text=text)
    return Question(event, SessionState(), prompt.messages(), 6, 0.0, (), None, "en", shorter=prompt.shorter)


def read_in(seconds: float, text: str) -> tuple[int, Given]:
    """Words of the prompt that an engine with 5 ms a word read, and its answer."""

    async def scenario() -> tuple[int, Given]:
        async with running(scripted_spec(prefill_ms_per_token=5.0, token_ms=1.0)) as engine:
            given = await ModelRung(engine, outcome="model").answer(question(text), Until(seconds))
            assert isinstance(given, Given)
            return given.usage.prompt_tokens, given

    return run(scenario())


def test_with_time_enough_the_whole_prompt_is_read() -> None:
    """Nothing is left out that could be read."""
    read, given = read_in(20.0, "and now?")
    assert read == sum(len(message.text.split()) for message in question("and now?").messages)
    assert (given.outcome, given.shortened) == ("model", False)


def test_with_less_time_older_turns_are_left_out_and_the_model_still_answers() -> None:
    """An event that would have been refused for its long past is answered from a shorter one."""
    read, given = read_in(1.2, "and now?")
    assert 15 < read < 240
    assert given.shortened
    assert given.why.endswith("on a shorter prompt")
    assert given.outcome in ("model", "partial")


def test_a_long_message_is_read_from_its_end() -> None:
    """When the newest text alone takes too long, its start goes."""
    read, given = read_in(1.2, "word " * 1000 + "end")
    assert 15 < read < 240
    assert given.outcome in ("model", "partial")
