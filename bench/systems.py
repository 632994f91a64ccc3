"""The systems under test as processes: the product's worker and the two baselines, each on topics of its own, started once and warmed; loads are `run`."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from agents.engines import find_files
from bench.harness import WorkerProcess
from bench.load import LoadClient
from bench.prompts import INSTRUCTIONS, event_maker
from schemas.errors import SetupError
from schemas.settings import App, Kafka, Model, Settings
from streams.broker import child as lifeline
from streams.topic_admin import ensure_topics

READY_S = 120.0
"""A model's load on a busy machine; longer, and the system is taken for broken."""

WARM_RATE, WARM_S = 8.0, 5.0
"""The load that warms each system before its first point: enough for kernels, caches and the product's own measured reserve."""

IDLE_S = 30.0
"""After a point every answer is out within seconds; a system that still works then would spoil the next point, and is started anew."""

MODEL = "smollm2-135m"

_SETTLE_S = 1.0
_POLL_S = 0.1
_FIRST_BUDGET_MS = 2000.0


class System(Protocol):
    """One system: a process that reads `PREFIXinteractions` and writes `PREFIXresponses`."""

    name: str
    prefix: str

    def start(self) -> None:
        """Spawn it, without waiting."""

    def idle(self) -> bool:
        """Whether it has nothing in hand, as far as it can be asked."""

    def problem(self) -> str | None:
        """Why it cannot answer any more; None while it runs."""

    def stop(self) -> None:
        """End it; bounded."""


def worker_config(bootstrap: str, name: str, model: Mapping[str, Any] | None = None, *, turns: int = 0) -> str:
    """Settings of a worker for the benchmark: its own topics and group, the benchmark's instructions, no history, one model."""
    entries = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {"name": "main", **(model or {})}.items())
    return (
        f'[app]\nid = "{name}"\n[kafka]\nbootstrap = "{bootstrap}"\ntopic_prefix = "{name}-"\n[worker]\nmetrics_port = 0\n'
        f"[session]\nturns = {turns}\ninstructions = {json.dumps(INSTRUCTIONS)}\n[[models]]\n{entries}\n"
    )


class Product:
    """`answerby worker`."""

    def __init__(self, folder: Path, bootstrap: str, name: str = "answerby", model: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.prefix = f"{name}-"
        self.worker = WorkerProcess(folder, worker_config(bootstrap, name, model), name=name)

    def start(self) -> None:
        """Spawn it, without waiting."""
        self.worker.start(ready=False)

    def idle(self) -> bool:
        """By its own gauges."""
        return self.worker.metric_sum("answerby_running_requests") + self.worker.metric_sum("answerby_waiting_requests") == 0

    def problem(self) -> str | None:
        """The end of its log, when it has ended."""
        return None if self.worker.running else self.worker.log_tail()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        self.worker.__exit__()


class Baseline:
    """One of the programs under `bench/baselines`."""

    def __init__(self, folder: Path, bootstrap: str, name: str) -> None:
        self.name = name
        self.prefix = f"{name}-"
        self._log = folder / f"{name}.log"
        model = MODEL if name == "server" else find_files(Model(path=MODEL)).path
        self._arguments = ("--bootstrap", bootstrap, "--prefix", self.prefix, "--model", model, "--instructions", INSTRUCTIONS)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Spawn it tied to this thread's life, without waiting; to be called from the main thread."""
        tie = (sys.executable, "-I", "-S", str(lifeline.__file__), str(os.getpid()), "0", "-")
        with self._log.open("ab") as out:
            command = (*tie, sys.executable, "-P", "-m", f"bench.baselines.{self.name}", *self._arguments)
            here = str(Path(__file__).parent.parent)
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._log.parent, env={**os.environ, "PYTHONPATH": here})

    def idle(self) -> bool:
        """It cannot be asked."""
        return True

    def problem(self) -> str | None:
        """The end of its log, when it has ended."""
        if self._process is not None and self._process.poll() is None:
            return None
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)


class Fleet:
    """The systems that run now. All that were asked for stay up, since starting takes longer than idling costs; only one is under load at a time."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._folder = folder
        self._up: dict[str, System] = {}
        self._numbers = itertools.count(1)
        self.notes: list[str] = []

    async def get(self, name: str) -> System:
        """The system, started and warmed when it was not up.

        Raises:
            SetupError: it does not come up; the text ends with its log.
        """
        if name not in self._up:
            await self._bring_up(name, lambda: Product(self._folder, self.bootstrap) if name == "answerby" else Baseline(self._folder, self.bootstrap, name))
        return self._up[name]

    async def get_scripted(self) -> System:
        """The product with an engine that takes no time."""
        name = "scripted"
        if name not in self._up:
            await self._bring_up(name, lambda: Product(self._folder, self.bootstrap, name, {"engine": "scripted"}))
        return self._up[name]

    async def settle(self, name: str) -> None:
        """Wait until a system that was under load is at rest; one that is not is started anew by the next `get`, and noted."""
        system, end = self._up[name], time.monotonic() + IDLE_S
        await asyncio.sleep(_SETTLE_S)  # what a baseline still generates cannot be asked for; no generation here is longer
        while not await asyncio.to_thread(system.idle):
            if time.monotonic() > end or system.problem() is not None:
                self.notes.append(f"{name} was not at rest {IDLE_S:.0f} s after a point and was started anew")
                self.stop(name)
                return
            await asyncio.sleep(_POLL_S)

    def stop(self, *names: str) -> None:
        """Stop these, or all."""
        for name in names or tuple(self._up):
            if (system := self._up.pop(name, None)) is not None:
                system.stop()

    async def _bring_up(self, name: str, make: Callable[[], System]) -> None:
        kafka = Kafka(bootstrap=self.bootstrap, topic_prefix=f"{name}-")
        report = await ensure_topics(Settings(app=App(id=name), kafka=kafka))
        if not report.is_fit:
            raise SetupError(report.problem)
        system = make()
        system.start()
        self._up[name] = system
        await self._await_first_answer(system)
        await self._warm(system)

    async def _await_first_answer(self, system: System) -> None:
        async with LoadClient(self.bootstrap, prefix=system.prefix) as client:
            await client.send(event_maker("first", self._run(), budget_ms=_FIRST_BUDGET_MS)(0))
            end = time.monotonic() + READY_S
            while client.result.lost:
                await client.await_all(1.0)
                problem = system.problem()
                if problem is not None or time.monotonic() > end:
                    text = f"{system.name} does not answer:\n{problem or 'it runs, and is silent'}"
                    raise SetupError(text)

    async def _warm(self, system: System) -> None:
        async with LoadClient(self.bootstrap, prefix=system.prefix) as client:
            await client.send_open_loop(event_maker("warm", self._run(), budget_ms=_FIRST_BUDGET_MS), rate=WARM_RATE, seconds=WARM_S)
            await client.send_open_loop(event_maker("labels", self._run(), budget_ms=_FIRST_BUDGET_MS, choice=True), rate=4, seconds=1)
            await client.await_all(IDLE_S)
        await self.settle(system.name)

    def _run(self) -> str:
        return f"w{next(self._numbers)}"


async def await_ready(worker: WorkerProcess, seconds: float = READY_S) -> float:
    """Wait for a worker's `/readyz` without blocking; seconds it took."""
    began = time.monotonic()
    with suppress(AssertionError):
        return await asyncio.to_thread(worker.await_ready, seconds)
    text = f"the worker is not ready after {time.monotonic() - began:.0f} s:\n{worker.log_tail()}"
    raise SetupError(text)
