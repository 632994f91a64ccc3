"""kill -9 under load: what is lost, what is repeated, whether repeats are byte-identical, how long the gaps are.

Usage: python -m bench.survival [--workers 1|2] [--seconds 120] [--kills 5] [--rate 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import WorkerProcess, scripted_config
from bench.load import LoadClient, quantile
from streams.broker.testing import running_broker


async def survive(
    workers: list[WorkerProcess], bootstrap: str, *, rate: float, seconds: float, kills: int, sessions: int = 50, prefix: str = ""
) -> dict[str, Any]:
    """Send for `seconds`, kill and restart workers in turn, wait for the rest, and count."""
    generator = random.Random(11)
    async with LoadClient(bootstrap, prefix=prefix) as client:

        def make(index: int) -> dict[str, Any]:
            return {"event_id": f"e{index}", "session_id": f"s{index % sessions}", "text": f"turn {index} [[tokens=6]]", "deadline_ms": 2000}

        sending = asyncio.create_task(client.send_open_loop(make, rate=rate, seconds=seconds))
        for number in range(kills):
            await asyncio.sleep(seconds / (kills + 1) * generator.uniform(0.8, 1.2))
            worker = workers[number % len(workers)]
            await asyncio.to_thread(worker.kill)
            await asyncio.to_thread(worker.start, ready=False)
        await sending
        await client.await_all(60)
        result = client.result
        order = {}
        for seen in result.received.values():
            first = min(seen, key=lambda item: item.offset)
            order[(first.partition, first.offset)] = first.response
        out_of_order = _count_out_of_order(result.received)
        latencies = result.latencies_ms()
        return {
            "sent": len(result.sent),
            "lost": len(result.lost),
            "contradictory": len(result.contradictory),
            "repeats": result.repeats,
            "out_of_order": out_of_order,
            "outcomes": result.outcomes(),
            "p50_ms": round(quantile(latencies, 0.5), 1),
            "p99_ms": round(quantile(latencies, 0.99), 1),
            "max_ms": round(latencies[-1], 1) if latencies else None,
        }


def _count_out_of_order(received: dict[str, Any]) -> int:
    """First responses of one session that left before an earlier event's."""
    last: dict[str, int] = {}
    wrong = 0
    firsts = sorted((min(seen, key=lambda item: item.offset) for seen in received.values()), key=lambda item: (item.partition, item.offset))
    for item in firsts:
        session, number = item.response["session_id"], int(item.response["event_id"].removeprefix("e"))
        wrong += number < last.get(session, -1)
        last[session] = max(number, last.get(session, -1))
    return wrong


def main() -> None:
    """Run it and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rate", type=float, default=50)
    asked = parser.parse_args()
    with running_broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        workers = [WorkerProcess(Path(folder), scripted_config(bootstrap), name=f"worker-{number}") for number in range(asked.workers)]
        try:
            for worker in workers:
                worker.start()
            began = time.monotonic()
            report = asyncio.run(survive(workers, bootstrap, rate=asked.rate, seconds=asked.seconds, kills=asked.kills))
            report["took_s"] = round(time.monotonic() - began, 1)
            report["seek_backs"] = sum(worker.metric_sum("answerby_seek_backs_total") for worker in workers)
        finally:
            for worker in workers:
                worker.__exit__()
            if "report" not in dir() or report["lost"]:
                sys.stderr.write("\n".join(worker.log_tail(60) for worker in workers) + "\n")
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
