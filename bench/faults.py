"""Engines and workers killed while events come, as part of a run; `engine_faults` and `survival` do the same by hand and at more length."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from pathlib import Path

from bench.harness import WorkerProcess, signal_process
from bench.load import LoadClient
from bench.machine import cpu_use, read_cpu_ticks
from bench.prompts import event_maker
from bench.results import KillReport, SurvivalReport, spread, summarise
from bench.scenarios import Kills, Survival
from bench.survival import survive
from bench.systems import Fleet, Product, await_ready, worker_config
from schemas.errors import SetupError
from schemas.settings import App, Kafka, Settings
from streams.topic_admin import ensure_topics


async def measure_kills(fleet: Fleet, task: Kills) -> KillReport:
    """Kill the product's engine at about even times and count what the consumer saw.

    Raises:
        SetupError: the worker does not come back.
    """
    system = await fleet.get("answerby")
    if not isinstance(system, Product):
        raise TypeError(system)
    worker = system.worker
    restarts = await asyncio.to_thread(worker.metric_sum, "answerby_engine_restarts_total")
    make = event_maker(task.scenario, f"kills-{time.time_ns()}", budget_ms=task.budget_ms)
    async with LoadClient(fleet.bootstrap, prefix=system.prefix) as client:
        before = read_cpu_ticks()
        sending = asyncio.create_task(client.send_at(task.moments(), make))
        back = await _kill_engines(worker, task)
        lags = await sending
        await client.await_all(15)
        cpu = cpu_use(before, read_cpu_ticks())
        point = summarise(task.load, "answerby", client.result, lags, cpu)
    await await_ready(worker)
    after = await asyncio.to_thread(worker.metric_sum, "answerby_engine_restarts_total")
    return KillReport(len(back), round(after - restarts), spread(back), point)


async def _kill_engines(worker: WorkerProcess, task: Kills) -> list[float]:
    """Seconds from each kill until the worker was ready again. Restarts back off, so the last kills may find no time."""
    generator = random.Random(task.scenario)
    began = time.monotonic()
    every = task.seconds / (task.kills + 1)
    back: list[float] = []
    for number in range(1, task.kills + 1):
        await asyncio.sleep(max(0.0, began + every * (number + generator.uniform(-0.2, 0.2)) - time.monotonic()))
        await await_ready(worker)
        if time.monotonic() - began > task.seconds:
            break  # the load is over: a kill that nobody could notice proves nothing
        pid = (await asyncio.to_thread(worker.readiness))["engines"][0]["pid"]
        at = time.monotonic()
        signal_process(pid, signal.SIGKILL)
        await asyncio.to_thread(worker.await_ready, 10.0, ready=False)
        await await_ready(worker)
        back.append(time.monotonic() - at)
    return back


async def measure_survival(bootstrap: str, task: Survival) -> SurvivalReport:
    """Kill whole workers, with a scripted engine; `bench.survival` counts.

    Raises:
        SetupError: the topics or a worker do not come up.
    """
    name = f"survival{task.workers}"
    report = await ensure_topics(Settings(app=App(id=name), kafka=Kafka(bootstrap=bootstrap, topic_prefix=f"{name}-")))
    if not report.is_fit:
        raise SetupError(report.problem)
    config = worker_config(bootstrap, name, {"engine": "scripted"}, turns=4)
    with tempfile.TemporaryDirectory() as folder:
        workers = [WorkerProcess(Path(folder), config, name=f"{name}-{number}") for number in range(task.workers)]
        try:
            for worker in workers:
                worker.start(ready=False)
            for worker in workers:
                await await_ready(worker)
            seen = await survive(workers, bootstrap, rate=task.rate, seconds=task.seconds, kills=task.kills, prefix=f"{name}-")
        finally:
            for worker in workers:
                worker.__exit__()
    return SurvivalReport(task.workers, task.kills, seen)
