"""What the engine's tests share: specs, requests, and an engine that is stopped whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from agents.runtime.ask import Finished, Outcome
from agents.runtime.spec import EngineSpec, ResolvedModel
from agents.runtime.supervisor import Engine, EngineHooks, EngineStatus, NoHooks
from schemas.inference import Constraint, Generate, Message, Step
from schemas.settings import Model

SCRIPTED = ResolvedModel("scripted", "", "1")


class Recorder(NoHooks):
    """Hooks that keep what they are told."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.states: list[str] = []
        self.restarts: list[str] = []

    def on_step(self, status: EngineStatus, step: Step) -> None:
        """Keep the step."""
        self.steps.append(step)

    def on_state(self, status: EngineStatus) -> None:
        """Keep the state."""
        self.states.append(status.state)

    def on_restart(self, status: EngineStatus, why: str) -> None:
        """Keep the reason."""
        self.restarts.append(why)


def scripted_spec(replica: int = 0, **model: Any) -> EngineSpec:
    """A scripted replica."""
    return EngineSpec(Model(engine="scripted", **model), SCRIPTED, replica)


def prompt(text: str, max_tokens: int = 10, *, seconds: float = 30.0, stop: tuple[str, ...] = (), constraint: Constraint | None = None) -> Generate:
    """A request whose last user text is `text` and that is due in `seconds`."""
    messages = (Message("system", "Be brief."), Message("user", text))
    return Generate(0, messages, max_tokens, time.monotonic() + seconds, stop=stop, constraint=constraint)


def finished(outcome: Outcome) -> Finished:
    """The outcome of a request that must have been answered."""
    assert isinstance(outcome, Finished), outcome
    return outcome


@asynccontextmanager
async def running(*specs: EngineSpec, hooks: EngineHooks | None = None) -> AsyncIterator[Engine]:
    """A started engine."""
    engine = Engine(specs, hooks)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for something that has no event of its own."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 -- what is waited for (a signal's effect, a kernel's queue) sets no event
            await asyncio.sleep(0.005)


def pid_of(engine: Engine, replica: int = 0) -> int:
    """Of a replica that has a process."""
    pid = engine.status()[replica].pid
    assert pid is not None
    return pid


def send_signal(engine: Engine, number: signal.Signals) -> int:
    """To the first replica; its process id."""
    pid = pid_of(engine)
    os.kill(pid, number)
    return pid


def open_descriptors() -> set[str]:
    """What this process has open, by number and target."""
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name}:{os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue
    return found
