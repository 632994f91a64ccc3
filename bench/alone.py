"""The ceiling: the engine by itself, closed loop, with the benchmark's own prompts and lengths; everything else is measured through Kafka by `run`."""

from __future__ import annotations

import asyncio
import time

from agents.engines import find_files
from agents.runtime.ask import Ask, Finished
from agents.runtime.cpus import available_cores, place
from agents.runtime.spec import EngineSpec
from agents.runtime.supervisor import Engine
from bench.prompts import INSTRUCTIONS, NEW_TOKENS, question
from bench.results import CeilingPoint, spread
from bench.systems import MODEL
from schemas.errors import SetupError
from schemas.inference import Generate, Message
from schemas.settings import Model

LEAD_S = 1.0
"""Until every place in the batch is at another point of its answer."""

NEVER_S = 60.0
"""A due that no answer here comes near."""


class ClosedLoop:
    """One warm engine, with the batch and the core that the largest measurement needs."""

    def __init__(self, max_batch: int) -> None:
        model = Model(path=MODEL, max_batch=max_batch)
        where = place([model], available_cores()).engines[0][0]
        self._engine = Engine([EngineSpec(model, find_files(model), threads=where.threads, cpus=where.cpus)])
        self._open: dict[int, Ask] = {}
        self._ended: list[tuple[float, float, int]] = []
        self._problem = ""

    async def __aenter__(self) -> ClosedLoop:
        await self._engine.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.stop()

    async def measure(self, open_requests: int, seconds: float) -> CeilingPoint:
        """Keep `open_requests` open and count the tokens that come within `seconds`.

        Raises:
            SetupError: the engine failed a request.
        """
        self._ended.clear()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(open_requests):
                group.create_task(self._keep_open(number, f"ceiling-{open_requests}/{number}", stop))
            await asyncio.sleep(LEAD_S)
            begin, before = time.monotonic(), self._tokens()
            await asyncio.sleep(seconds)
            end, after = time.monotonic(), self._tokens()
            stop.set()
        if self._problem:
            raise SetupError(self._problem)
        within = [(at - asked) * 1000 for asked, at, _ in self._ended if begin <= at <= end]
        return CeilingPoint(open_requests, round(end - begin, 3), len(within), after - before, spread(within))

    def _tokens(self) -> int:
        """So far, half-done answers included."""
        return sum(tokens for _, _, tokens in self._ended) + sum(ask.tokens for ask in self._open.values())

    async def _keep_open(self, number: int, seed: str, stop: asyncio.Event) -> None:
        index = 0
        while not stop.is_set():
            asked = time.monotonic()
            messages = (Message("system", INSTRUCTIONS, len(INSTRUCTIONS)), Message("user", question(seed, index)))
            ask = self._open[number] = self._engine.ask(Generate(0, messages, NEW_TOKENS, asked + NEVER_S))
            outcome = await ask.done()
            del self._open[number]
            if not isinstance(outcome, Finished):
                self._problem = f"the engine failed a request: {outcome}"
                return
            self._ended.append((asked, time.monotonic(), outcome.completion_tokens))
            index += 1
