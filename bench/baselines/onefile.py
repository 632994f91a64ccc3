"""Baseline: what a competent user writes in one file, Faust and openvino-genai's LLMPipeline; the one with a batching engine is `server`.

One generation at a time in a thread, cancelled at the deadline by its streamer; whoever gets no answer in time gets the default text in time.

Usage: python -m bench.baselines.onefile --bootstrap HOST:PORT --prefix onefile- --model FOLDER --instructions TEXT
"""

from __future__ import annotations

import argparse
import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import faust
import msgpack
import openvino_genai as genai
import uvloop

PUBLISH_MS = 20
"""Kept free for the way back: above the p99 of a send to a local broker, so that answers are not late by nature."""

DEFAULT_TEXT = "I can't answer that in time right now. Please try again in a moment."


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said within the time."""

    text: str
    prompt_tokens: int
    tokens: int


class Model:
    """One pipeline and the one thread that may use it; the thread's queue is the line of those who wait."""

    def __init__(self, folder: str, instructions: str) -> None:
        self._pipeline = genai.LLMPipeline(folder, "CPU", INFERENCE_NUM_THREADS=1)
        self._instructions = instructions
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def answer(self, event: dict[str, Any], due: float) -> Answer | None:
        """The answer, or None at `due` (Unix seconds). A request that has not begun then never begins."""
        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(loop.run_in_executor(self._thread, self._generate, event, due), due - time.time())
        except TimeoutError:
            return None
        except RuntimeError as error:
            print(f"generation failed: {error}", flush=True)
            return None

    def _generate(self, event: dict[str, Any], due: float) -> Answer | None:
        if time.time() >= due:
            return None
        late = False

        def stream(_: str) -> genai.StreamingStatus:
            nonlocal late
            late = time.time() >= due
            return genai.StreamingStatus.CANCEL if late else genai.StreamingStatus.RUNNING

        wanted = event.get("answer", {})
        config = self._pipeline.get_generation_config()
        config.do_sample = False
        config.max_new_tokens = wanted.get("max_tokens", 64)
        if "choice" in wanted:
            config.structured_output_config = genai.StructuredOutputConfig(regex="|".join(wanted["choice"]))
        history = genai.ChatHistory([{"role": "system", "content": self._instructions}, {"role": "user", "content": event["text"]}])
        result = self._pipeline.generate(history, config, stream)
        if late:
            return None
        metrics = result.perf_metrics
        return Answer(result.texts[0], metrics.get_num_input_tokens(), metrics.get_num_generated_tokens())


def build_app(bootstrap: str, prefix: str, model: Model) -> faust.App:
    """The Faust app with its one agent."""
    app = faust.App(f"{prefix}bench", broker=f"kafka://{bootstrap}", web_enabled=False, topic_disable_leader=True, value_serializer="raw", key_serializer="raw")
    interactions = app.topic(f"{prefix}interactions", key_type=bytes, value_type=bytes)
    responses = app.topic(f"{prefix}responses", key_type=bytes, value_type=bytes)
    running: set[asyncio.Task[None]] = set()

    async def respond(key: bytes, value: bytes, stamp: float) -> None:
        event = msgpack.unpackb(value)
        began = event.get("occurred_at_ms", stamp * 1000) / 1000
        answer = await model.answer(event, began + (event["deadline_ms"] - PUBLISH_MS) / 1000)
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
    ids = {"event_id": event["event_id"], "session_id": event["session_id"]}
    if answer is None:
        return {**ids, "outcome": "default", "reason": "deadline", "text": DEFAULT_TEXT, "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.tokens}
    return {**ids, "outcome": "model", "reason": None, "text": answer.text, "usage": usage}


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--prefix", "--model", "--instructions"):
        parser.add_argument(option, required=True)
    asked = parser.parse_args()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    app = build_app(asked.bootstrap, asked.prefix, Model(asked.model, asked.instructions))
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()


if __name__ == "__main__":
    main()
