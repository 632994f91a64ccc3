"""The main engine is hung or killed again and again while events come: who answers, how late, and how the breaker opens and closes.

Usage: python -m bench.fallback [--engine scripted|openvino] [--fault hung|killed|both] [--rate 8] [--seconds 60] [--budget-ms 600]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.harness import WorkerProcess, signal_process
from bench.load import LoadClient, LoadResult, quantile
from streams.broker.testing import running_broker

OPEN, CLOSED = 2.0, 0.0
"""Values of answerby_breaker_state."""

FAULTS = {"hung": signal.SIGSTOP, "killed": signal.SIGKILL}

POLL_S = 0.05
BACK_S = 60.0
"""The last fault's restart, with the longest pause between two, and the load of a model on a busy machine."""

SCRIPTED: dict[str, dict[str, Any]] = {
    "main": {"token_ms": 15, "max_batch": 8, "hang_ms": 1000},
    "fallback": {"token_ms": 8, "max_batch": 8, "max_tokens": 12, "text": "This is a shorter answer."},
}
OPENVINO: dict[str, dict[str, Any]] = {"main": {}, "fallback": {"max_tokens": 12, "kv_cache_mb": 128}}


def two_models(bootstrap: str, models: dict[str, dict[str, Any]], engine: str) -> str:
    """Settings of a worker with a main model and a fallback."""
    lines = [f'[kafka]\nbootstrap = "{bootstrap}"\n[worker]\nmetrics_port = 0']
    for name, keys in models.items():
        lines += ["[[models]]", *(f"{key} = {json.dumps(value)}" for key, value in {"name": name, "engine": engine, **keys}.items())]
    return "\n".join(lines) + "\n"


class Torment:
    """Sends a signal to the main engine, and to each one that replaces it as soon as it is ready."""

    def __init__(self, worker: WorkerProcess, number: signal.Signals) -> None:
        self._worker = worker
        self._number = number
        self.began = 0.0
        self.struck: set[int] = set()
        self.struck_at: list[float] = []
        """Each as soon as it was ready: what lies between two is how long a replacement took, the wait before it included."""
        self.opened_s: float | None = None
        """From the first signal to the open breaker."""

    async def run(self, seconds: float) -> None:
        """Keep it up for `seconds`."""
        self.began = time.monotonic()
        while time.monotonic() - self.began < seconds:
            await asyncio.to_thread(self._strike)
            if self.opened_s is None and await asyncio.to_thread(breaker, self._worker) == OPEN:
                self.opened_s = time.monotonic() - self.began
            await asyncio.sleep(POLL_S)

    def is_over(self) -> bool:
        """Whether a main engine serves that was not struck: a stopped one counts as ready until it is missed."""
        return self._unhurt() is not None

    def _strike(self) -> None:
        pid = self._unhurt()
        if pid is not None:
            self.struck.add(pid)
            self.struck_at.append(time.monotonic())
            signal_process(pid, self._number)

    def _unhurt(self) -> int | None:
        main = self._worker.readiness().get("engines", [{}])[0]
        return main["pid"] if main.get("state") == "ready" and main["pid"] not in self.struck else None


def breaker(worker: WorkerProcess) -> float:
    """The main model's breaker, as the metrics show it."""
    return worker.metric_sum("answerby_breaker_state", model="main")


async def until(holds: Callable[[], bool], seconds: float) -> float | None:
    """Seconds until it holds; None when it did not within `seconds`."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if await asyncio.to_thread(holds):
            return time.monotonic() - began
        await asyncio.sleep(POLL_S)
    return None


async def suffer(
    worker: WorkerProcess, bootstrap: str, number: signal.Signals, *, rate: float, seconds: float, budget_ms: float, prefix: str = "", after_s: float = 4.0
) -> dict[str, Any]:
    """One fault for `seconds` under load, then the recovery, `after_s` of it also under load; what the consumer saw of the first part."""
    run = f"{number.name}-{time.time_ns()}"

    def make(index: int) -> dict[str, Any]:
        text = f"Question {index}: what is the capital of France? Tell me something about it."
        return {"event_id": f"{run}-{index}", "session_id": f"{run}-s{index % 20}", "text": text, "deadline_ms": budget_ms, "answer": {"max_tokens": 24}}

    async with LoadClient(bootstrap, prefix=prefix) as client:
        torment = Torment(worker, number)
        await asyncio.gather(client.send_open_loop(make, rate=rate, seconds=seconds), torment.run(seconds))
        await client.await_all(15)
        report = summary(client.result)
    opened = await asyncio.to_thread(worker.metric_sum, "answerby_breaker_opened_total", model="main")
    async with LoadClient(bootstrap, prefix=prefix) as client:
        ready_s = await until(torment.is_over, BACK_S)
        sending = asyncio.create_task(client.send_open_loop(lambda index: make(1_000_000 + index), rate=rate, seconds=after_s))
        closed_s = await until(lambda: breaker(worker) == CLOSED, 15.0)
        await sending
        await client.await_all(15)
        after = client.result.outcomes()
    return {
        "signal": number.name,
        **report,
        "engines_struck": len(torment.struck),
        "replaced_after_s": [_rounded(later - earlier, 1) for earlier, later in pairwise(torment.struck_at)],
        "breaker_open_after_s": _rounded(torment.opened_s),
        "breaker_opened": opened,
        "ready_again_after_s": _rounded(ready_s),
        "breaker_closed_after_ready_s": _rounded(closed_s),
        "outcomes_after": after,
    }


def summary(result: LoadResult) -> dict[str, Any]:
    """What a consumer saw."""
    late = result.lateness_ms()
    rungs = [rung for seen in result.received.values() for rung in seen[0].response["rungs"]]  # an answer of its own that was cut has the outcome `partial`
    by_fallback = sum(rung["rung"] == "fallback" and rung["verdict"] == "answered" for rung in rungs)
    return {
        "sent": len(result.sent),
        "lost": len(result.lost),
        "repeats": result.repeats,
        "late": sum(value > 0 for value in late),
        "lateness_p99_ms": _rounded(quantile(late, 0.99)),
        "lateness_max_ms": _rounded(late[-1] if late else None),
        "outcomes": result.outcomes(),
        "fallback_share": _rounded(by_fallback / max(1, len(result.sent)), 3),
        "declined": declined(result),
    }


def declined(result: LoadResult) -> dict[str, int]:
    """Why rungs did not answer, figures left out, the most common first."""
    whys = Counter(
        f"{rung['rung']} {rung['verdict']}: {re.sub(r'[0-9.]+', 'N', rung['why'])}"
        for seen in result.received.values()
        for rung in seen[0].response["rungs"]
        if rung["verdict"] != "answered"
    )
    return dict(whys.most_common(8))


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def main() -> None:
    """Hung, then killed; one JSON line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("scripted", "openvino"), default="openvino")
    parser.add_argument("--fault", choices=("both", *FAULTS), default="both")
    parser.add_argument("--rate", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--budget-ms", type=float, default=600)
    asked = parser.parse_args()
    models = OPENVINO if asked.engine == "openvino" else SCRIPTED
    with running_broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        with WorkerProcess(Path(folder), two_models(bootstrap, models, asked.engine)) as worker:
            worker.start()
            for number in FAULTS.values() if asked.fault == "both" else (FAULTS[asked.fault],):
                report = asyncio.run(suffer(worker, bootstrap, number, rate=asked.rate, seconds=asked.seconds, budget_ms=asked.budget_ms))
                sys.stdout.write(json.dumps({"engine": asked.engine, **report}) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
