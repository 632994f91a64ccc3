"""Workers that leave and come back as planned, and a broker that is restarted, while events come: who is answered in time; kills are `survival`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness import WorkerProcess
from bench.load import LoadClient, LoadResult
from streams.broker.process import BrokerOptions, EmbeddedBroker

AFTER_S = 3.0
"""A hand-over is over for the person so long after the worker that came is ready: events sent before may still be due."""

BUDGETS_MS = (3000, 300)
"""One that outlasts a rebalance, and one that no rebalance can keep."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time during which something was handed over, Unix seconds."""

    began: float
    ended: float


async def rehearse(
    workers: Sequence[WorkerProcess], bootstrap: str, *, rate: float, seconds: float, every_s: float, sessions: int = 60, prefix: str = "", **broker: Any
) -> dict[str, Any]:
    """Bounce the workers in turn by SIGTERM, each start waiting for readiness; `broker` may hold `restart` and `restarts` for a broker to restart meanwhile."""
    async with LoadClient(bootstrap, prefix=prefix) as client:

        def make(index: int) -> dict[str, Any]:
            budget = BUDGETS_MS[index % len(BUDGETS_MS)]
            return {"event_id": f"e{index}", "session_id": f"s{index % sessions}", "text": f"turn {index} [[tokens=6]]", "deadline_ms": budget}

        sending = asyncio.create_task(client.send_open_loop(make, rate=rate, seconds=seconds))
        bounces: list[Window] = []
        leaving: list[Window] = []
        restarts: list[Window] = []
        number = 0
        while not sending.done():
            await asyncio.wait((sending,), timeout=every_s)
            if sending.done():
                break
            if number % 2 == 1 and len(restarts) < broker.get("restarts", 0):
                began = time.time()
                await broker["restart"]()
                restarts.append(Window(began, time.time()))
            else:
                bounce = await _bounce(workers[(number // 2) % len(workers)] if broker else workers[number % len(workers)])
                leaving.append(bounce[0])
                bounces.append(bounce[1])
            number += 1
        await sending
        await client.await_all(60)
        result = client.result
        return {
            "sent": len(result.sent),
            "lost": len(result.lost),
            "contradictory": len(result.contradictory),
            "repeats": result.repeats,
            "outcomes": result.outcomes(),
            "bounces": len(bounces),
            "left_in_s": [round(window.ended - window.began, 1) for window in leaving],
            "broker_restarts": len(restarts),
            "broker_away_s": [round(window.ended - window.began, 1) for window in restarts],
            "all_answer_after_s": [_all_answer_after(result, window.ended) for window in restarts],
            "in_time_during_hand_overs": {f"{budget} ms": _share(result, budget, bounces) for budget in BUDGETS_MS},
            "in_time_all": {f"{budget} ms": _share(result, budget, None) for budget in BUDGETS_MS},
            "longest_silence_s": _longest_silence(result, bounces),
        }


async def _bounce(worker: WorkerProcess) -> tuple[Window, Window]:
    """SIGTERM, and a new start: from the signal until the process ended, and until the hand-over back is over."""
    began = time.time()
    await asyncio.to_thread(worker.stop)
    left = time.time()
    await asyncio.to_thread(worker.start)
    return Window(began, left), Window(began, time.time() + AFTER_S)


def _share(result: LoadResult, budget_ms: int, windows: Sequence[Window] | None) -> str:
    """Events of one budget that a consumer had by their due, of all or of those sent in `windows`; late, missing and expired ones are not in time."""
    asked = [
        event_id
        for event_id, at in result.sent.items()
        if result.events[event_id]["deadline_ms"] == budget_ms and (windows is None or any(window.began <= at <= window.ended for window in windows))
    ]
    met = sum(_in_time(result, event_id) for event_id in asked)
    return f"{met}/{len(asked)} ({met / max(1, len(asked)):.1%})"


def _in_time(result: LoadResult, event_id: str) -> bool:
    seen = result.received.get(event_id)
    if not seen:
        return False
    event = result.events[event_id]
    in_time: bool = seen[0].at * 1000 <= event["occurred_at_ms"] + event["deadline_ms"] and seen[0].response["reason"] != "expired"
    return in_time


def _all_answer_after(result: LoadResult, at: float) -> float:
    """Seconds until every partition has answered an event that was sent after `at`."""
    first: dict[int, float] = {}
    for event_id, seen in result.received.items():
        if result.sent.get(event_id, 0.0) > at:
            first[seen[0].partition] = min(seen[0].at, first.get(seen[0].partition, seen[0].at))
    return round(max(first.values(), default=float("inf")) - at, 2)


def _longest_silence(result: LoadResult, windows: Sequence[Window]) -> float:
    """The longest time within a hand-over in which some partition gave no response."""
    longest = 0.0
    arrivals: dict[int, list[float]] = {}
    for seen in result.received.values():
        for item in seen:
            arrivals.setdefault(item.partition, []).append(item.at)
    for times in arrivals.values():
        ordered = sorted(times)
        for before, after in itertools.pairwise(ordered):
            if any(window.began <= after and before <= window.ended for window in windows):
                longest = max(longest, after - before)
    return round(longest, 2)


class RestartableBroker:
    """An embedded broker that comes back on its port with its records."""

    def __init__(self, options: BrokerOptions) -> None:
        self._options = options
        self._broker = EmbeddedBroker(options)

    @property
    def bootstrap(self) -> str:
        """`host:port`."""
        return self._broker.bootstrap

    def start(self) -> None:
        """Start it; the port stays from then on."""
        self._broker.start()
        self._options = BrokerOptions(port=self._broker.port, data_dir=self._options.data_dir)

    def stop(self) -> None:
        """Stop it."""
        self._broker.stop()

    def restart(self) -> None:
        """Stop it, and start another one in its place."""
        self._broker.stop()
        self._broker = EmbeddedBroker(self._options)
        self._broker.start()
