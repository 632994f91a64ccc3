"""Two questions to the ladder, asked through Kafka: how fast a repeated question comes from the cache, and what a flood of two tenants gets.

`python -m bench.ladder cache` and `python -m bench.ladder flood`; the rates of the model rungs are `python -m bench`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness import WorkerProcess
from bench.load import LoadClient, quantile
from bench.prompts import INSTRUCTIONS, NEW_TOKENS, question
from bench.results import BY_MODEL
from streams.broker.testing import running_broker

CACHE_RATE, CACHE_S, CACHE_BUDGET_MS = 100.0, 30.0, 1000.0

FLOOD_EVENTS, FLOOD_S, FLOOD_BUDGET_MS = 5000, 5.0, 800.0

SMALL_EVERY = 11
"""One event in so many is the small tenant's: ten to one."""

WARM_EVENTS = 20


def config(bootstrap: str, more: str) -> str:
    """A worker without history, so that a question depends on nothing but itself."""
    return f'[kafka]\nbootstrap = "{bootstrap}"\n[worker]\nmetrics_port = 0\n[session]\nturns = 0\ninstructions = "{INSTRUCTIONS}"\n{more}'


async def measure_cache(bootstrap: str, folder: Path) -> None:
    """One question over and over, from many sessions."""
    settings = config(bootstrap, '[cache]\nttl_s = 3600\n[[models]]\nengine = "scripted"\ntoken_ms = 20\nmax_tokens = 8\n')
    with WorkerProcess(folder, settings) as worker:
        await asyncio.to_thread(worker.start)
        async with LoadClient(bootstrap) as client:
            await client.send_open_loop(_asks("w", "What are your opening hours?", CACHE_BUDGET_MS), rate=20, seconds=1)
            await client.await_all(10)
        async with LoadClient(bootstrap) as client:
            await client.send_open_loop(_asks("c", "What are your opening hours?", CACHE_BUDGET_MS), rate=CACHE_RATE, seconds=CACHE_S)
            await client.await_all(10)
            times = client.result.latencies_ms()
            print(
                f"{len(client.result.sent)} events at {CACHE_RATE:g}/s: p50 {quantile(times, 0.5):.1f} ms, p99 {quantile(times, 0.99):.1f} ms, "
                f"lost {len(client.result.lost)}, {client.result.outcomes()}"
            )


async def measure_flood(bootstrap: str, folder: Path, events: int, model: str) -> None:
    """Two tenants, ten to one, far above what the engine can do."""
    settings = config(bootstrap, f"[[models]]\n{model}")
    with WorkerProcess(folder, settings) as worker:
        await asyncio.to_thread(worker.start)
        async with LoadClient(bootstrap) as client:
            await client.send_open_loop(_flood("w"), rate=8, seconds=WARM_EVENTS / 8)
            await client.await_all(10)
        before = worker.metric_sum("answerby_worker_resident_bytes")
        async with LoadClient(bootstrap) as client:
            lags = sorted(await client.send_at([index * FLOOD_S / events for index in range(events)], _flood("f")))
            began = time.monotonic()
            await client.await_all(60)
            _print_flood(client, time.monotonic() - began, lags)
        after = worker.metric_sum("answerby_worker_resident_bytes")
        print(f"memory of the worker {before / 1e6:.0f} MB before, {after / 1e6:.0f} MB after")


def _print_flood(client: LoadClient, waited_s: float, lags: list[float]) -> None:
    result = client.result
    late = [ms for ms in result.lateness_ms() if ms > 0]
    by_model: Counter[str] = Counter()
    for seen in result.received.values():
        if seen[0].response["outcome"] in BY_MODEL:
            by_model[seen[0].response["tenant"]] += 1
    print(
        f"{len(result.sent)} events in {FLOOD_S:g} s (client behind by {quantile(lags, 0.99) * 1000:.0f} ms), all out {waited_s:.1f} s after the last: "
        f"{len(result.sent) - len(late) - len(result.lost)} in time, {len(late)} late (p50 {quantile(late, 0.5):.0f}, worst {max(late, default=0):.0f} ms), "
        f"{len(result.lost)} lost, model answers by tenant {dict(by_model)}, {result.outcomes()}"
    )


def _asks(run: str, text: str, budget_ms: float) -> Callable[[int], dict[str, Any]]:
    stamp = time.time_ns()
    return lambda index: {"event_id": f"{run}{stamp}-{index}", "session_id": f"s{index % 500}", "text": text, "deadline_ms": budget_ms}


def _flood(run: str) -> Callable[[int], dict[str, Any]]:
    stamp = time.time_ns()

    def make(index: int) -> dict[str, Any]:
        tenant = "small" if index % SMALL_EVERY == 0 else "big"
        return {
            "event_id": f"{run}{stamp}-{index}",
            "session_id": f"{tenant}-{index % 700}",
            "tenant": tenant,
            "text": question("flood", index),
            "deadline_ms": FLOOD_BUDGET_MS,
            "answer": {"max_tokens": NEW_TOKENS},
        }

    return make


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(prog="python -m bench.ladder", description=__doc__)
    parser.add_argument("what", choices=("cache", "flood"))
    parser.add_argument("--events", type=int, default=FLOOD_EVENTS, help="of the flood, in five seconds")
    parser.add_argument("--scripted", action="store_true", help="a scripted engine of 20 ms a token instead of the real model")
    asked = parser.parse_args()
    model = 'engine = "scripted"\ntoken_ms = 20\nmax_batch = 2\n' if asked.scripted else ""
    with running_broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        work = measure_cache(bootstrap, Path(folder)) if asked.what == "cache" else measure_flood(bootstrap, Path(folder), asked.events, model)
        asyncio.run(work)


if __name__ == "__main__":
    main()
