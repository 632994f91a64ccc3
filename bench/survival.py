"""Workers killed, and workers bounced in turn, under load: what is lost, repeated or late, and whether the tables hold what was said.

How long tables take to come back is `bench.recovery`.

Usage: python -m bench.survival [--workers 1|2] [--seconds 50] [--kills 5] [--rate 20]
       python -m bench.survival --bounce 10 [--seconds 80] [--rate 30] [--broker-restarts 2]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.handover import RestartableBroker, rehearse
from bench.harness import WorkerProcess
from bench.load import LoadClient, LoadResult, quantile
from bench.systems import worker_config
from schemas.session import SessionState, load_stored, session_key
from schemas.settings import App, Kafka, Settings
from streams.broker.process import BrokerOptions
from streams.topics import Topics

SESSIONS = 60

BUDGET_MS = 20_000
"""Of events sent while workers are killed: an event that expires in a gap is answered, but is no turn of its session."""

COMMITTED_S = 10.0
"""Commits come every half second; later than this they do not come."""

MARKS = {
    "imported": "status port",
    "engines": "engine ready",
    "connected": "worker started",
    "joined": "Highwater for active",
    "recovered": "Restore complete",
    "placed": "partition begins",
}
"""What a worker's log says on its way to the first answer, in about this order; the first line of a start with these words counts."""


async def survive(
    workers: list[WorkerProcess], bootstrap: str, *, rate: float, seconds: float, kills: int, prefix: str = "", app: str = "", budget_ms: int = 2000
) -> dict[str, Any]:
    """Send for `seconds`, kill and restart workers in turn, wait for the rest, and count; with `app` the tables are read too."""
    generator = random.Random(11)
    async with LoadClient(bootstrap, prefix=prefix) as client:

        def make(index: int) -> dict[str, Any]:
            return {"event_id": f"e{index}", "session_id": f"s{index % SESSIONS}", "text": f"turn {index} [[tokens=6]]", "deadline_ms": budget_ms}

        sending = asyncio.create_task(client.send_open_loop(make, rate=rate, seconds=seconds))
        killed: list[float] = []
        for number in range(kills):
            await asyncio.sleep(seconds / (kills + 1) * generator.uniform(0.8, 1.2))
            worker = workers[number % len(workers)]
            killed.append(time.time())
            await asyncio.to_thread(worker.kill)
            await asyncio.to_thread(worker.start, ready=False)
        await sending
        await client.await_all(60)
        report = _count(client.result)
        report["gap_s"] = max((gap_after(client.result, at) for at in killed), default=0.0)
        report["starts_s"] = [
            {**marks, "answered": gap_after(client.result, at)}
            for number, worker in enumerate(workers)
            for at, marks in read_starts(worker.log_text(), killed[number :: len(workers)]).items()
        ]
        if app:
            report |= await read_aftermath(bootstrap, client.result, prefix=prefix, app=app)
        return report


def _count(result: LoadResult) -> dict[str, Any]:
    latencies = result.latencies_ms()
    return {
        "sent": len(result.sent),
        "lost": len(result.lost),
        "contradictory": len(result.contradictory),
        "repeats": result.repeats,
        "out_of_order": _count_out_of_order(result.received),
        "outcomes": result.outcomes(),
        "p50_ms": round(quantile(latencies, 0.5), 1),
        "p99_ms": round(quantile(latencies, 0.99), 1),
        "max_ms": round(latencies[-1], 1) if latencies else None,
    }


def gap_after(result: LoadResult, at: float) -> float:
    """Seconds from a moment (Unix seconds) until the last partition gave its first response since; partitions without any count as not seen."""
    first: dict[int, float] = {}
    for seen in result.received.values():
        for item in seen:
            if item.at > at:
                first[item.partition] = min(item.at, first.get(item.partition, item.at))
    return round(max(first.values(), default=at) - at, 2)


def read_starts(log_text: str, killed: Sequence[float]) -> dict[float, dict[str, float]]:
    """By the moment of each kill (Unix seconds): how many seconds after it the next start of that worker reached each of MARKS."""
    lines: list[tuple[float, str]] = []
    for raw in log_text.splitlines():
        if raw.startswith("{"):
            line = json.loads(raw)
            lines.append((datetime.fromisoformat(line["timestamp"]).timestamp(), f"{line['event']} {line.get('state', '')}"))
    starts: dict[float, dict[str, float]] = {}
    for at, until in itertools.pairwise([*killed, float("inf")]):
        starts[at] = {mark: round(when - at, 2) for mark, words in MARKS.items() for when, text in reversed(lines) if at < when < until and words in text}
    return starts


async def read_aftermath(bootstrap: str, result: LoadResult, *, prefix: str, app: str) -> dict[str, Any]:
    """What the tables' changelog and the group's offsets say after a run: sessions whose turns are not exactly the sent ones, and records not committed.

    The worker must keep at least as many turns as a session has events.
    """
    settings = Settings(app=App(id=app), kafka=Kafka(bootstrap=bootstrap, topic_prefix=prefix))
    topics = Topics.of(settings)
    sent: dict[bytes, list[str]] = {}
    for event_id, event in result.events.items():
        sent.setdefault(session_key("default", event["session_id"]), []).append(event_id)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=app, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        held = await _read_last(consumer, topics.sessions_changelog, settings.kafka.partitions)
        turns = {key: [turn.event_id for turn in load_stored(value, SessionState).turns] for key, value in held.items()}
        wrong = {key.decode(errors="replace"): turns.get(key) for key, wanted in sent.items() if turns.get(key) != wanted}
        behind = await _await_committed(consumer, topics.interactions, settings.kafka.partitions)
    finally:
        await consumer.stop()
    return {"sessions": len(sent), "sessions_with_wrong_turns": len(wrong), "records_not_committed": behind}


async def _read_last(consumer: AIOKafkaConsumer, topic: str, partitions: int) -> dict[bytes, bytes]:
    """The last value of each key of a compacted topic."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(places)
    await consumer.seek_to_beginning(*places)
    ends = await consumer.end_offsets(places)
    held: dict[bytes, bytes] = {}
    while any([await consumer.position(place) < ends[place] for place in places]):
        for records in (await consumer.getmany(timeout_ms=250)).values():
            for record in records:
                if record.value is None:
                    held.pop(record.key, None)
                else:
                    held[record.key] = record.value
    return held


async def _await_committed(consumer: AIOKafkaConsumer, topic: str, partitions: int) -> int:
    """Records that the group has not committed, once it has had time to."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    until = time.monotonic() + COMMITTED_S
    while True:
        ends = await consumer.end_offsets(places)
        behind = sum([ends[place] - (await consumer.committed(place) or 0) for place in places])
        if not behind or time.monotonic() > until:
            return int(behind)
        await asyncio.sleep(0.2)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--store", choices=("memory", "rocksdb"), default="memory")
    parser.add_argument("--bounce", type=float, help="instead of kills, two workers of which one is bounced every so many seconds")
    parser.add_argument("--broker-restarts", type=int, default=0, help="with --bounce, also restart the broker so many times")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = RestartableBroker(BrokerOptions(data_dir=Path(folder) / "broker"))
        broker.start()
        try:
            report = _run(asked, broker, Path(folder))
        finally:
            broker.stop()
    sys.stdout.write(json.dumps(report) + "\n")


def _run(asked: argparse.Namespace, broker: RestartableBroker, folder: Path) -> dict[str, Any]:
    name = "survival"
    turns = max(20, 2 * round(asked.rate * asked.seconds / SESSIONS))
    count = 2 if asked.bounce else asked.workers
    workers = []
    for number in range(count):
        store = f'[worker]\nstore = "{asked.store}"\ndata_dir = "{folder / f"data-{number}"}"\n'
        config = worker_config(broker.bootstrap, name, {"engine": "scripted"}, turns=turns).replace("[worker]\n", store)
        workers.append(WorkerProcess(folder, config, name=f"worker-{number}"))
    report: dict[str, Any] = {}
    try:
        for worker in workers:
            worker.start()
        began = time.monotonic()
        report = asyncio.run(_measure(asked, broker, workers, name))
        report["took_s"] = round(time.monotonic() - began, 1)
        report["seek_backs"] = sum(worker.metric_sum("answerby_seek_backs_total") for worker in workers)
        report["recovery_s"] = [worker.readiness().get("recovery_seconds") for worker in workers]
        return report
    finally:
        for worker in workers:
            worker.__exit__()
        if not report or report["lost"]:
            sys.stderr.write("\n".join(worker.log_tail(60) for worker in workers) + "\n")


async def _measure(asked: argparse.Namespace, broker: RestartableBroker, workers: list[WorkerProcess], name: str) -> dict[str, Any]:
    prefix = f"{name}-"
    if not asked.bounce:
        return await survive(
            workers,
            broker.bootstrap,
            rate=asked.rate,
            seconds=asked.seconds,
            kills=asked.kills,
            prefix=prefix,
            app=name,
            budget_ms=BUDGET_MS,
        )
    more = {}
    if asked.broker_restarts:
        more = {"restart": lambda: asyncio.to_thread(broker.restart), "restarts": asked.broker_restarts}
    return await rehearse(workers, broker.bootstrap, rate=asked.rate, seconds=asked.seconds, every_s=asked.bounce, prefix=prefix, **more)


if __name__ == "__main__":
    main()
