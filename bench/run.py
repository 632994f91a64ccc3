"""Runs a plan against one broker and saves after every point; what a plan is made of is `scenarios`."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from bench.alone import ClosedLoop
from bench.faults import measure_kills, measure_survival
from bench.forecasts import Forecasts, read_forecasts
from bench.load import LoadClient
from bench.machine import Machine, cpu_use, read_cpu_ticks
from bench.prompts import event_maker
from bench.results import Load, Point, Report, save_report, summarise
from bench.scenarios import SYSTEMS, FastPath, Idle, Kills, LoadPoint, Survival, Task
from bench.scenarios import Ceiling as CeilingTask
from bench.systems import Fleet, Product
from streams.broker.process import BrokerOptions
from streams.broker.testing import running_broker

AFTER_S = 15.0
"""How long after the last due answers are waited for; what comes later is lost to anybody."""


@dataclass(slots=True)
class Run:
    """One run: its fleet, and its report as it grows."""

    fleet: Fleet
    systems: Sequence[str]
    out: Path
    machine: Machine
    settings: dict[str, Any]
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    forecasts: Forecasts | None = None
    parts: dict[str, list[Any]] = field(default_factory=lambda: {"points": [], "ceiling": [], "kills": [], "survival": []})

    async def take(self, task: Task) -> None:
        """Do one task and save."""
        match task:
            case LoadPoint():
                for name in self.systems:
                    await self.put_on(name, task.load, task.moments(), task.label)
            case CeilingTask():
                async with ClosedLoop(max(task.open_requests)) as engine:
                    for open_requests in task.open_requests:
                        self.add("ceiling", point := await engine.measure(open_requests, task.seconds))
                        self.say(f"ceiling, {open_requests} open: {point.tokens_per_s:.0f} tokens/s, p50 {point.latency_ms.p50} ms")
            case Idle():
                await self.idle(task)
            case FastPath():
                await self.fast_path(task)
            case Kills():
                self.fleet.stop(*(name for name in SYSTEMS if name != "answerby"))
                self.add("kills", await measure_kills(self.fleet, task))
                self.say(f"kills: {describe(self.parts['kills'][-1].point)}")
            case Survival():
                self.fleet.stop()
                self.add("survival", await measure_survival(self.fleet.bootstrap, task))
                self.say(f"survival, {task.workers} worker(s): {self.parts['survival'][-1].seen}")
            case _:
                assert_never(task)

    async def put_on(self, name: str, load: Load, moments: Sequence[float], seed: str, sessions: int | None = None) -> None:
        """One load on one system, which is at rest before and after."""
        system = await (self.fleet.get_scripted() if name == "scripted" else self.fleet.get(name))
        more = {} if sessions is None else {"sessions": sessions}
        make = event_maker(seed, f"{load.label}-{time.time_ns()}", budget_ms=load.budget_ms, choice=load.choice, **more)
        point = await drive(self.fleet.bootstrap, system.prefix, name, load, moments, make)
        await self.fleet.settle(name)
        self.say(f"{load.label} {name}: {describe(point)}")
        if name == "answerby" and isinstance(system, Product):
            self.forecasts = await asyncio.to_thread(read_forecasts, system.worker)
        self.add("points", point)

    async def idle(self, task: Idle) -> None:
        """Every system idles at the same time."""
        for name in self.systems:
            await self.fleet.get(name)
        await asyncio.sleep(task.seconds)
        load = Load(task.scenario, f"idle-{task.seconds:g}s", 0.0, task.budget_ms, task.budget_ms / 1000)
        for name in self.systems:
            await self.put_on(name, load, (0.0,), load.label)

    async def fast_path(self, task: FastPath) -> None:
        """The product alone, without a model's work."""
        self.fleet.stop()
        await self.put_on("scripted", task.load, task.moments(), task.scenario, task.sessions)
        self.fleet.stop()

    def add(self, part: str, value: Any) -> None:
        """Keep a measurement, on disk too."""
        self.parts[part].append(value)
        save_report(self.report(), self.out)

    def report(self) -> Report:
        """What there is so far."""
        parts: dict[str, Any] = {name: tuple(values) for name, values in self.parts.items()}
        took_s = round(time.monotonic() - self.began, 1)
        return Report(self.machine, self.settings, **parts, forecasts=self.forecasts, notes=tuple(self.fleet.notes), took_s=took_s)


async def drive(bootstrap: str, prefix: str, system: str, load: Load, moments: Sequence[float], make: Callable[[int], dict[str, Any]]) -> Point:
    """Send, wait, count. The collector rests meanwhile: its pauses would be taken for the system's."""
    async with LoadClient(bootstrap, prefix=prefix) as client:
        gc.collect()
        gc.disable()
        try:
            before = read_cpu_ticks()
            lags = await client.send_at(moments, make)
            await client.await_all(load.budget_ms / 1000)
            cpu = cpu_use(before, read_cpu_ticks())
            await client.await_all(AFTER_S)
        finally:
            gc.enable()
        return summarise(load, system, client.result, lags, cpu)


def describe(point: Point) -> str:
    """One line for the person who waits."""
    return (
        f"{point.sent} sent, model in time {point.model_share:.1%} ({point.model_per_s:.1f}/s, {point.tokens_per_s:.0f} tokens/s), "
        f"answered in time {point.in_time_share:.2%}, p99 {point.latency_ms.p99} ms, cpu {point.cpu.busy:.0%}, {point.outcomes}"
    )


def run_plan(
    tasks: Sequence[Task], systems: Sequence[str], out: Path, machine: Machine, settings: dict[str, Any], say: Callable[[str], None], broker: BrokerOptions
) -> Report:
    """The whole run; what it has so far is in `out` even when it breaks off."""
    import uvloop  # noqa: PLC0415 -- `report` needs none of this

    async def work(bootstrap: str, folder: Path) -> Report:
        fleet = Fleet(folder, bootstrap)
        run = Run(fleet, systems, out, machine, settings, say)
        try:
            for task in tasks:
                await run.take(task)
        finally:
            fleet.stop()
        save_report(run.report(), out)
        return run.report()

    with running_broker(broker) as bootstrap, tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work(bootstrap, Path(folder)))
