"""Baseline: Faust and a continuous-batching engine process without admission, what a good model server gives; the simpler one is `onefile`.

Every request goes to the engine at once, is cut at the deadline, and what has been said by then is sent when it is long enough.

Usage: python -m bench.baselines.server --bootstrap HOST:PORT --prefix server- --model NAME --instructions TEXT
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from typing import Any

import faust
import msgpack
import uvloop

from agents.engines import find_files
from agents.runtime.ask import Finished
from agents.runtime.spec import EngineSpec
from agents.runtime.supervisor import Engine
from schemas.inference import Constraint, Generate, Message
from schemas.settings import Model

PUBLISH_MS = 20
"""As in `onefile`."""

MIN_TOKENS = 6
MAX_BATCH = 16
DEFAULT_TEXT = "I can't answer that in time right now. Please try again in a moment."

Answer = tuple[str, str, int, int]
"""Outcome, text, prompt tokens, new tokens."""


class Server:
    """An engine process that takes whatever comes: a batch of 16, the rest in line, first come first served."""

    def __init__(self, model: str, instructions: str) -> None:
        settings = Model(path=model, max_batch=MAX_BATCH, waiting=1_000_000)
        self._engine = Engine([EngineSpec(settings, find_files(settings), threads=1)])
        self._instructions = instructions
        self._started = asyncio.Event()

    async def serve(self) -> None:
        """Run the engine until cancelled."""
        await self._engine.start()
        self._started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self._engine.stop()

    async def answer(self, event: dict[str, Any], due: float) -> Answer | None:
        """The answer, or what there is of it at `due` (Unix seconds), or None."""
        await self._started.wait()
        left = due - time.time()
        if left <= 0:
            return None
        wanted = event.get("answer", {})
        constraint = Constraint(regex="|".join(map(re.escape, wanted["choice"]))) if "choice" in wanted else None
        messages = (Message("system", self._instructions), Message("user", event["text"]))
        ask = self._engine.ask(Generate(0, messages, wanted.get("max_tokens", 64), time.monotonic() + left, constraint=constraint))
        try:
            done = await asyncio.wait_for(ask.done(), left)
        except TimeoutError:
            ask.cancel()
            done = None
        if isinstance(done, Finished) and done.finish_reason in ("stop", "length"):
            return "model", done.text, done.prompt_tokens, done.completion_tokens
        if constraint is None and ask.tokens >= MIN_TOKENS:
            return "partial", ask.text, done.prompt_tokens if isinstance(done, Finished) else 0, ask.tokens
        return None


def build_app(bootstrap: str, prefix: str, model: str, instructions: str) -> faust.App:
    """The Faust app with its one agent."""
    app = faust.App(f"{prefix}bench", broker=f"kafka://{bootstrap}", web_enabled=False, topic_disable_leader=True, value_serializer="raw", key_serializer="raw")
    interactions = app.topic(f"{prefix}interactions", key_type=bytes, value_type=bytes)
    responses = app.topic(f"{prefix}responses", key_type=bytes, value_type=bytes)
    running: set[asyncio.Task[None]] = set()
    server = Server(model, instructions)
    app.task(server.serve)

    async def respond(key: bytes, value: bytes, stamp: float) -> None:
        event = msgpack.unpackb(value)
        began = event.get("occurred_at_ms", stamp * 1000) / 1000
        answer = await server.answer(event, began + (event["deadline_ms"] - PUBLISH_MS) / 1000)
        await responses.send(key=key, value=msgpack.packb(make_response(event, answer)))

    @app.agent(interactions)
    async def answer_events(stream: Any) -> None:
        async for item in stream.events():
            task = asyncio.create_task(respond(item.message.key, item.message.value, item.message.timestamp))
            running.add(task)
            task.add_done_callback(running.discard)

    return app


def make_response(event: dict[str, Any], answer: Answer | None) -> dict[str, Any]:
    """A record as the product's consumers read it."""
    outcome, text, prompt, tokens = answer or ("default", DEFAULT_TEXT, 0, 0)
    return {
        "event_id": event["event_id"],
        "session_id": event["session_id"],
        "outcome": outcome,
        "reason": None if outcome == "model" else "deadline",
        "text": text,
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens},
    }


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--prefix", "--model", "--instructions"):
        parser.add_argument(option, required=True)
    asked = parser.parse_args()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    app = build_app(asked.bootstrap, asked.prefix, asked.model, asked.instructions)
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main()
