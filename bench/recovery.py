"""Tables on disk: the same after a restart with and without the data directory, how long they take to come back, and whether memory stays flat.

Usage: python -m bench.recovery [--updates 100000] [--sessions 5000] [--then 0]

`--then N` sends N more events and measures memory on: a leak grows with events, not with sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from aiokafka import AIOKafkaProducer
from rocksdict import AccessType, Options, Rdict

from bench.harness import WorkerProcess
from bench.systems import worker_config
from streams.broker.testing import running_broker
from streams.data_dir import OFFSET_KEY, TABLES

NAME = "recovery"

BEHIND = 2000
"""Events sent and not yet answered at most: beyond it they only wait, and the producer's memory is not what is measured."""

RECOVERED_S = 900.0
"""Three changelog records an event, and some hundreds a second on a machine that has no time for it."""

PARTS = 5
"""Memory is read so often on the way: a leak shows as a line that goes on rising."""

DONE_S = 60.0
"""Without an event answered for so long the run is stuck."""


class TableHash(NamedTuple):
    """All stores of a data directory: one digest over every key and value, and how many there are."""

    digest: str
    entries: int


def hash_tables(folder: Path) -> TableHash:
    """Read every store that no worker has open; the order of writing and the offsets do not count."""
    digest, entries = hashlib.sha256(), 0
    for path in sorted((folder / TABLES).glob("*.db")):
        store = Rdict(str(path), options=Options(raw_mode=True), access_type=AccessType.read_only())
        try:
            for key, value in store.items():
                if not isinstance(key, bytes) or not isinstance(value, bytes):
                    raise TypeError(path)
                if key != OFFSET_KEY:
                    digest.update(f"{path.name} {len(key)} {len(value)} ".encode() + key + value)
                    entries += 1
        finally:
            store.close()
    return TableHash(digest.hexdigest(), entries)


async def send_updates(worker: WorkerProcess, bootstrap: str, *, first: int, count: int, sessions: int) -> None:
    """Send messages as fast as they are answered."""
    done = await asyncio.to_thread(worker.metric_sum, "answerby_events_total")
    goal, seen, moved = done + count, done, time.monotonic()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, acks="all") as producer:
        sent = 0
        while seen < goal:
            while sent < count and sent - (seen - done) < BEHIND:
                for number in range(first + sent, first + min(count, sent + 200)):
                    session = f"s{number % sessions}"
                    event = {"event_id": f"e{number}", "session_id": session, "text": f"turn {number}", "deadline_ms": 60_000, "answer": {"max_tokens": 2}}
                    await producer.send(f"{NAME}-interactions", value=msgpack.packb(event), key=session.encode())
                sent = min(count, sent + 200)
            await asyncio.sleep(0.2)
            now = await asyncio.to_thread(worker.metric_sum, "answerby_events_total")
            moved = time.monotonic() if now > seen else moved
            seen = now
            if time.monotonic() - moved > DONE_S:
                msg = f"no event answered for {DONE_S:.0f} s, {goal - seen:.0f} left"
                raise AssertionError(msg)


def measure(folder: Path, bootstrap: str, *, updates: int, sessions: int, then: int) -> dict[str, Any]:
    """Everything, in order; prints what it has so far to standard error."""
    data = folder / "data"
    config = worker_config(bootstrap, NAME, {"engine": "scripted", "max_batch": 64}, turns=4)
    config = config.replace("[worker]\n", f'[worker]\nstore = "rocksdb"\ndata_dir = "{data}"\n')
    report: dict[str, Any] = {"updates": updates, "sessions": sessions}
    with WorkerProcess(folder, config, name=NAME) as worker:
        worker.start()
        report["updates_per_s"], report["rss_mb"] = _update(worker, bootstrap, first=0, count=updates, sessions=sessions)
        if then:
            report["then"] = then
            report["updates_per_s_then"], report["rss_mb_then"] = _update(worker, bootstrap, first=updates, count=then, sessions=sessions)
        report["stop_s"] = _timed(worker.stop)
        kept = hash_tables(data)
        report |= {"entries": kept.entries, "digest": kept.digest, "data_mb": _size_mb(data)}
        report["with_data_dir"] = _restart(worker, data, kept)
        shutil.rmtree(data)
        report["without_data_dir"] = _restart(worker, data, kept)
        _start(worker)
        worker.kill()
        report["after_kill"] = _restart(worker, data, kept)
    return report


def _update(worker: WorkerProcess, bootstrap: str, *, first: int, count: int, sessions: int) -> tuple[float, list[float]]:
    """Updates a second, and the worker's memory in MB after each fifth of them."""
    began, resident = time.monotonic(), []
    part = count // PARTS
    for number in range(PARTS):
        asyncio.run(send_updates(worker, bootstrap, first=first + number * part, count=part, sessions=sessions))
        resident.append(round(worker.metric_sum("answerby_worker_resident_bytes") / 2**20, 1))
        _say(f"{first + (number + 1) * part} events: {resident[-1]} MB")
    return round(count / (time.monotonic() - began), 1), resident


def _restart(worker: WorkerProcess, data: Path, kept: TableHash) -> dict[str, Any]:
    ready_s = _timed(lambda: _start(worker))
    recovery_s = worker.readiness()["recovery_seconds"]
    worker.stop()
    found = hash_tables(data)
    _say(f"ready after {ready_s} s, recovery {recovery_s} s, same tables: {found == kept}")
    return {"ready_s": ready_s, "recovery_s": recovery_s, "same_tables": found == kept, "digest": found.digest}


def _start(worker: WorkerProcess) -> None:
    worker.start(ready=False)
    worker.await_ready(RECOVERED_S)


def _timed(work: Any) -> float:
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 2)


def _size_mb(folder: Path) -> float:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20, 1)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def main() -> None:
    """Run it and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--then", type=int, default=0)
    asked = parser.parse_args()
    with running_broker() as bootstrap, tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder), bootstrap, updates=asked.updates, sessions=asked.sessions, then=asked.then)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
