"""`answerby up`: everything on this machine that answering needs, until Ctrl-C; a single part is `broker` or `worker`, a short show is `demo`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from agents.cli.broker import broker_options
from agents.cli.children import Child, await_ready, fetch_readiness, interruptible
from agents.cli.config import load_settings
from agents.cli.parts import refuse_wrong_parts
from agents.runtime.cpus import available_cores, place
from schemas.errors import AnswerbyError, SetupError
from streams.broker.fetch import ProgressLines
from streams.broker.jars import KAFKA_VERSION
from streams.broker.probe import free_port
from streams.broker.process import BrokerOptions, EmbeddedBroker
from streams.home import answerby_home

_READY_S = 300.0
"""After an outage the worker reads its changelogs before it is ready."""

_LOOK_S = 1.0
"""How often the parts are looked at: a person's status line, and how late a dead broker is noticed."""

_WORKER_STOP_S, _BROKER_STOP_S = 15.0, 15.0
"""Beyond worker.stop_ms: leaving the group and ending engines; for the broker: writing what it holds."""

_LOG_BYTES = 16_777_216
"""A worker's log is kept up to this size, and once more as `.1`: at worst 32 MiB of disk and what is written within a second."""


def up(
    *,
    port: Annotated[int | None, Parameter(help="of the broker, on 127.0.0.1; 0 takes a free one [default: that of kafka.bootstrap]")] = None,
    data_dir: Annotated[Path | None, Parameter(help="where the broker keeps its records [default: $ANSWERBY_HOME/broker]")] = None,
    ephemeral: Annotated[bool, Parameter(negative="", help="keep records in a new directory that is removed at the end")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Run broker and worker on this machine until Ctrl-C; exit 1 when one of them ends by itself.

    Records and answers are kept between runs. Try `answerby send` and `answerby watch` in another terminal.

    Example: answerby up -c answerby.toml
    """
    settings = load_settings(config)
    refuse_wrong_parts(settings, own_broker=True)
    chosen = broker_options(port, data_dir, ephemeral, config)
    cpus = place(settings.models, available_cores(), settings.worker.cpus).worker
    options = BrokerOptions(port=chosen.port, data_dir=chosen.data_dir, cpus=cpus)
    console = Console(stderr=True, highlight=False)
    with interruptible(), _quiet_end(), _broker(options, console) as broker:
        asyncio.run(_Stack(config, broker, console).run())
    return 0


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Ctrl-C is how this is meant to end."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")


@contextmanager
def _broker(options: BrokerOptions, console: Console) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(options, ProgressLines())
    began = time.monotonic()
    with console.status("broker: starting"):
        broker.start()
    try:
        _say(console, "broker", f"Apache Kafka {KAFKA_VERSION} on {broker.bootstrap}, its data in {broker.data_dir}, up after {time.monotonic() - began:.1f} s")
        yield broker
    finally:
        _say(console, "broker", "stopping")
        broker.stop(_BROKER_STOP_S)


class _Stack:
    """The worker beside a running broker: started, watched, and stopped before the broker is."""

    def __init__(self, config: Path | None, broker: EmbeddedBroker, console: Console) -> None:
        environ = {**os.environ, "ANSWERBY__KAFKA__BOOTSTRAP": broker.bootstrap, "ANSWERBY__KAFKA__SECURITY__PROTOCOL": "PLAINTEXT"}
        settings = load_settings(config, environ)
        port = settings.worker.metrics_port or free_port()
        self._url = f"http://{settings.worker.metrics_host}:{port}"
        self._settings, self._broker, self._console = settings, broker, console
        self._log = _log_file(broker.bootstrap)
        arguments = ("worker", *(("-c", str(config)) if config is not None else ()))
        self._worker = Child(arguments, self._log, {**environ, "ANSWERBY__WORKER__METRICS_PORT": str(port)})

    async def run(self) -> None:
        """Run until a part ends or this task is cancelled.

        Raises:
            SetupError: a part ended by itself; the worker's last lines were printed.
        """
        try:
            await self._worker.start()
            began = time.monotonic()
            with self._console.status("worker: starting") as status:
                said = await await_ready(self._worker, self._url, lambda text: status.update(f"worker: {text}"), _READY_S)
            models = ", ".join(f"{engine['model']} {engine['version']}" for engine in said.get("engines", ()))
            _say(
                self._console,
                "worker",
                f"ready with {models or 'no model'} after {time.monotonic() - began:.1f} s; metrics at {self._url}/metrics, log in {self._log}",
            )
            _say(self._console, "ready", f"send events to {self._settings.kafka.topic_prefix}interactions at {self._broker.bootstrap}; Ctrl-C stops all")
            await self._watch()
        except AnswerbyError:
            words = self._worker.last_words()
            if words:
                self._console.print(Text(f"the worker's last lines:\n{words}", style="bright_black"), soft_wrap=True)
            raise
        finally:
            _say(self._console, "worker", "stopping")
            await self._worker.stop(self._settings.worker.stop_ms / 1000 + _WORKER_STOP_S)

    async def _watch(self) -> None:
        """Show how it is going, until the worker or the broker ends."""
        with self._console.status("up") as status:
            while True:
                if self._worker.returncode is not None:
                    raise self._worker.failure()
                if self._broker.pid is None:
                    msg = f"the broker ended by itself ({self._broker.last_words() or 'it said nothing'}): start again"
                    raise SetupError(msg)
                self._worker.bound_log(_LOG_BYTES)
                status.update(_describe(await fetch_readiness(self._url)))
                await asyncio.sleep(_LOOK_S)


def _describe(said: dict[str, Any] | None) -> str:
    """One line: is it ready, which partitions, how the engines are."""
    if said is None:
        return "worker: not answering"
    engines = ", ".join(f"{engine['name']} {engine['state']} ({engine['restarts']} restarts)" for engine in said.get("engines", ()))
    return f"worker: {'ready' if said.get('ready', True) else 'not ready'}, partitions {said.get('partitions', [])}, engines: {engines or 'none'}"


def _log_file(bootstrap: str) -> Path:
    """One for each broker's port, so that two `up` at once do not write into each other's."""
    path = answerby_home() / "logs" / f"worker-{bootstrap.rpartition(':')[2]}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _say(console: Console, part: str, text: str) -> None:
    console.print(Text(f"{part:7} ", style="bright_black").append(text, "default"), soft_wrap=True)
