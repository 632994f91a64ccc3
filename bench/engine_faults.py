"""The engine is stopped or killed in mid-generation under load: lateness of every answer, and how long until it serves again.

Usage: python -m bench.engine_faults [--engine scripted|openvino] [--rate 8] [--seconds 40]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import WorkerProcess, scripted_config, signal_process
from bench.load import LoadClient, quantile
from streams.broker.testing import running_broker


def openvino_config(bootstrap: str) -> str:
    """Settings with the default model and a free metrics port."""
    return f'[kafka]\nbootstrap = "{bootstrap}"\n[worker]\nmetrics_port = 0\n[[models]]\nname = "main"\n'


async def hurt(worker: WorkerProcess, bootstrap: str, number: signal.Signals, *, rate: float, seconds: float, budget_ms: float) -> dict[str, Any]:
    """Send at `rate`, hurt the engine a third of the way in, and say what the consumer saw."""
    before = worker.metric_sum("answerby_engine_restarts_total")
    async with LoadClient(bootstrap) as client:
        run = str(time.time_ns())

        def make(index: int) -> dict[str, Any]:
            text = f"Question {index}: what is the capital of France? Tell me something about it."
            return {"event_id": f"{run}-{index}", "session_id": f"{run}-s{index % 20}", "text": text, "deadline_ms": budget_ms, "answer": {"max_tokens": 24}}

        sending = asyncio.create_task(client.send_open_loop(make, rate=rate, seconds=seconds))
        await asyncio.sleep(seconds / 3)
        pid = worker.readiness()["engines"][0]["pid"]
        at = time.monotonic()
        signal_process(pid, number)
        noticed = await asyncio.to_thread(worker.await_ready, 10.0, ready=False)
        await asyncio.to_thread(worker.await_ready, 60.0)
        ready_s = time.monotonic() - at
        await sending
        await client.await_all(10)
        late = client.result.lateness_ms()
        return {
            "signal": number.name,
            "sent": len(client.result.sent),
            "lost": len(client.result.lost),
            "repeats": client.result.repeats,
            "outcomes": client.result.outcomes(),
            "late": sum(value > 0 for value in late),
            "lateness_p99_ms": round(quantile(late, 0.99), 1),
            "lateness_max_ms": round(late[-1], 1),
            "unready_after_s": round(noticed, 2),
            "ready_again_after_s": round(ready_s, 2),
            "restarts": worker.metric_sum("answerby_engine_restarts_total") - before,
        }


def main() -> None:
    """Run both signals and print one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("scripted", "openvino"), default="openvino")
    parser.add_argument("--rate", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--budget-ms", type=float, default=600)
    asked = parser.parse_args()
    with running_broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        config = openvino_config(bootstrap) if asked.engine == "openvino" else scripted_config(bootstrap, token_ms=15)
        with WorkerProcess(Path(folder), config) as worker:
            worker.start()
            for number in (signal.SIGSTOP, signal.SIGKILL):
                report = asyncio.run(hurt(worker, bootstrap, number, rate=asked.rate, seconds=asked.seconds, budget_ms=asked.budget_ms))
                sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
