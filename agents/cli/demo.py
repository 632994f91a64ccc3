"""`answerby demo`: a broker, a worker and the real model for as long as an example log plays; a stack that stays up is `up`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from agents.cli.answer_view import answer_line, dead_letter_line, legend, reasons
from agents.cli.children import Child, await_ready, interruptible
from agents.cli.config import load_settings
from agents.cli.demo_log import EXAMPLE_LOG, Planned, read_log
from agents.cli.demo_report import Report, print_report
from agents.cli.parts import refuse_wrong_parts
from agents.runtime.cpus import available_cores, place
from schemas.dead_letters import HEADER_PREFIX
from schemas.errors import AnswerbyError, UsageError
from schemas.settings import Settings
from streams.broker.fetch import ProgressLines
from streams.broker.jars import KAFKA_VERSION
from streams.broker.probe import HOST, free_port
from streams.broker.process import BrokerOptions, EmbeddedBroker
from streams.clients import EventSender, Record, Tail
from streams.topic_admin import ensure_topics
from streams.topics import Topics

_READY_S = 180.0
"""Load and warm-up of the default model take some 5 s; on a crowded machine or a slow disk many times that."""

_LAST_ANSWERS_S = 10.0
"""Beyond the last event's budget: answers that come later than this will not come."""

_STOP_S = 15.0
"""Beyond the worker's own grace (worker.stop_ms): leaving Kafka's group and ending the engine."""

_PLAIN_WIDTH = 140
"""Columns where there is no terminal, so that a log's lines hold a bar and some text."""

_SPEEDS = (0.05, 100.0)


def demo(
    *,
    log: Annotated[Path, Parameter(help="the events and their timing, see examples/README.md", show_default=False)] = EXAMPLE_LOG,
    speed: Annotated[float, Parameter(help="2 plays twice as fast; budgets stay as they are")] = 1.0,
    json: Annotated[bool, Parameter(negative="", help="end with a summary as one line of JSON; all else goes to standard error")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings, for the model and the rest but Kafka [default: answerby.toml]")] = None,
) -> int:
    """Play a log of events against a real broker and the real model, and show each answer with where its time went.

    Needs nothing running: starts its own broker and worker on free ports and stops both. Exit 0 when every event was answered and every
    malformed record kept, else 1.

    Example: answerby demo --json
    """
    if not _SPEEDS[0] <= speed <= _SPEEDS[1]:
        msg = f"--speed {speed:g} is out of range: use {_SPEEDS[0]:g} to {_SPEEDS[1]:g}"
        raise UsageError(msg)
    settings = load_settings(config)
    refuse_wrong_parts(settings, own_broker=True)
    planned = read_log(log, speed, settings.limits, settings.deadline)
    console = Console(stderr=json, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=json, highlight=False, width=_PLAIN_WIDTH)
    with interruptible(), tempfile.TemporaryDirectory(prefix="answerby-demo-") as scratch, _broker(settings, console) as bootstrap:
        report = asyncio.run(_Demo(config, bootstrap, Path(scratch), console).run(planned))
    print_report(report, console)
    if report.missing():
        console.print(Text(f"\nwithout an answer: {', '.join(report.missing())}", style="bold red"))
    if json:
        sys.stderr.flush()
        sys.stdout.write(f"{msgspec.json.encode(report.summary()).decode()}\n")
    return 0 if report.complete else 1


@contextmanager
def _broker(settings: Settings, console: Console) -> Iterator[str]:
    """An ephemeral broker on a free port, on the cores that are not the engine's."""
    began = time.monotonic()
    broker = EmbeddedBroker(BrokerOptions(cpus=place(settings.models, available_cores(), settings.worker.cpus).worker), ProgressLines())
    broker.start()
    try:
        console.print(f"[bright_black]broker[/]  Apache Kafka {KAFKA_VERSION} on {broker.bootstrap}, up after {time.monotonic() - began:.1f} s")
        yield broker.bootstrap
    finally:
        broker.stop()


class _Demo:
    """One playing of a log: a worker is started, the log sent, what comes back shown and counted, the worker stopped."""

    def __init__(self, config: Path | None, bootstrap: str, scratch: Path, console: Console) -> None:
        port = free_port()
        self._environ = {**os.environ, **_overrides(bootstrap, port)}
        self._settings = load_settings(config, self._environ)
        self._names = Topics.of(self._settings)
        arguments = ("worker", *(("-c", str(config)) if config is not None else ()))
        self._worker = Child(arguments, scratch / "worker.log", self._environ)
        self._url = f"http://{HOST}:{port}"
        self._console = console
        self._report = Report()
        self._began = 0.0
        self._news = asyncio.Event()

    async def run(self, planned: tuple[Planned, ...]) -> Report:
        """Play the log and return what became of it.

        Raises:
            AnswerbyError: the worker or the broker failed; the worker's last lines were printed.
        """
        await ensure_topics(self._settings)
        began = time.monotonic()
        try:
            await self._worker.start()
            self._leave_the_engine_s_cores()
            said = await await_ready(self._worker, self._url, self._tell, _READY_S)
            models = ", ".join(f"{engine['model']} {engine['version']}" for engine in said.get("engines", ()))
            self._tell(f"ready with {models or 'no model'} after {time.monotonic() - began:.1f} s")
            await self._while_the_worker_lives(self._play(planned))
        except AnswerbyError:
            self._show_last_words()
            raise
        finally:
            await self._worker.stop(self._settings.worker.stop_ms / 1000 + _STOP_S)
        return self._report

    async def _while_the_worker_lives(self, work: Coroutine[Any, Any, None]) -> None:
        playing, living = asyncio.create_task(work, name="demo-play"), asyncio.create_task(self._worker.wait(), name="demo-worker")
        try:
            await asyncio.wait((playing, living), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                raise self._worker.failure()
            playing.result()
        finally:
            for task in (playing, living):
                task.cancel()
            await asyncio.gather(playing, living, return_exceptions=True)

    async def _play(self, planned: tuple[Planned, ...]) -> None:
        self._console.print(f"[bright_black]log[/]     {len(planned)} records over {planned[-1].at_s:.0f} s; a bar is an event's budget:")
        self._console.print(Text("        ").append_text(legend()), soft_wrap=True)
        self._console.print()
        async with Tail(self._settings, [self._names.responses, self._names.dead_letters]) as tail, EventSender(self._settings) as sender:
            reading = asyncio.create_task(self._read(tail), name="demo-reader")
            sending: list[asyncio.Task[None]] = []
            try:
                self._began = time.monotonic()
                for record in planned:
                    await asyncio.sleep(max(0.0, self._began + record.at_s - time.monotonic()))
                    sending.append(asyncio.create_task(self._send(sender, record)))  # an acknowledgement must not hold up the next event
                await asyncio.gather(*sending)
                await self._await_the_rest(planned)
            finally:
                for task in (reading, *sending):
                    task.cancel()
                await asyncio.gather(*sending, return_exceptions=True)
                with suppress(asyncio.CancelledError):
                    await reading

    async def _send(self, sender: EventSender, record: Planned) -> None:
        self._report.note_sent(record, time.monotonic())
        line = record.line
        if line.event is not None:
            occurred = time.time_ns() // 1_000_000 - round(line.late_by_ms)
            await sender.send({**line.event, "occurred_at_ms": occurred}, line.encoding)
        else:
            sent = await sender.send_raw(record.value, line.key.encode() if line.key is not None else None)
            self._report.note_malformed((sent.partition, sent.offset))
            self._news.set()

    async def _await_the_rest(self, planned: tuple[Planned, ...]) -> None:
        """Until all is accounted for, or nothing more can come."""
        budgets = [record.event.deadline_ms for record in planned if record.event is not None and record.event.deadline_ms is not None]
        longest = min(max([self._settings.deadline.default_ms, *budgets]), self._settings.deadline.max_ms) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(longest + _LAST_ANSWERS_S):
                while not self._report.complete:
                    self._news.clear()
                    await self._news.wait()

    async def _read(self, tail: Tail) -> None:
        async for record in tail:
            when = f"{time.monotonic() - self._began:5.1f} s"
            if record.topic == self._names.responses:
                response = record.decode()
                if self._report.note_answer(response, record.received_at):
                    self._console.print(answer_line(when, response, self._console.width), soft_wrap=True)
            else:
                self._show_dead_letter(record, when)
            self._news.set()

    def _show_dead_letter(self, record: Record, when: str) -> None:
        why = reasons(record.headers, HEADER_PREFIX)
        self._report.note_dead_letter((int(why["partition"]), int(why["offset"])))
        self._console.print(dead_letter_line(when, why, record.value, self._console.width), soft_wrap=True)

    def _leave_the_engine_s_cores(self) -> None:
        """What we print must not take the model's time; only now, because a child inherits where it may run."""
        cpus = place(self._settings.models, available_cores(), self._settings.worker.cpus).worker
        if cpus is not None:
            os.sched_setaffinity(0, cpus)

    def _tell(self, text: str) -> None:
        self._console.print(f"[bright_black]worker[/]  {text}")

    def _show_last_words(self) -> None:
        words = self._worker.last_words()
        if words:
            self._console.print(Text(f"the worker's last lines:\n{words}", style="bright_black"), soft_wrap=True)


def _overrides(bootstrap: str, port: int) -> dict[str, str]:
    """What a demo decides whatever the settings say: its own broker, its own port, nothing kept."""
    return {
        "ANSWERBY__APP__ID": "demo",
        "ANSWERBY__KAFKA__BOOTSTRAP": bootstrap,
        "ANSWERBY__KAFKA__REPLICATION": "1",
        "ANSWERBY__KAFKA__SECURITY__PROTOCOL": "PLAINTEXT",
        "ANSWERBY__WORKER__METRICS_HOST": HOST,
        "ANSWERBY__WORKER__METRICS_PORT": str(port),
        "ANSWERBY__WORKER__STORE": "memory",
    }
