"""`answerby broker`: runs the embedded Apache Kafka alone until it is told to stop; the process it runs is `streams.broker.process`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import cyclopts
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from agents.cli.config import load_settings
from schemas.errors import SetupError, UsageError
from streams.broker.fetch import ProgressLines
from streams.broker.jars import KAFKA_VERSION
from streams.broker.process import BrokerOptions, EmbeddedBroker
from streams.home import Progress as Report
from streams.home import answerby_home
from streams.security import bootstrap_servers

_LOOK_S = 0.25
"""How soon a stop that was asked for, or a broker that ended, is noticed."""

_STOP_S = 15.0
"""A broker with much to write needs a few seconds; after this it is killed and repairs its files at the next start."""


def broker(
    *,
    port: Annotated[int | None, cyclopts.Parameter(help="of the broker, on 127.0.0.1; 0 takes a free one [default: that of kafka.bootstrap]")] = None,
    data_dir: Annotated[Path | None, cyclopts.Parameter(help="where records are kept [default: $ANSWERBY_HOME/broker]")] = None,
    ephemeral: Annotated[bool, cyclopts.Parameter(negative="", help="keep records in a new directory that is removed at the end")] = False,
    json: Annotated[bool, cyclopts.Parameter(negative="", help="say where it is as one line of JSON")] = False,
    config: Annotated[
        Path | None, cyclopts.Parameter(name=["-c", "--config"], help="settings, for the port [default: answerby.toml here, if there is one]")
    ] = None,
) -> int:
    """Run a real Apache Kafka on this machine until Ctrl-C; fetches it first when it is not here.

    Example: answerby broker --port 9092
    """
    options = broker_options(port, data_dir, ephemeral, config)
    stop = _StopSignal()
    with _shown(Console(stderr=True)) as report, stop.listening():
        embedded = EmbeddedBroker(options, report)
        try:
            embedded.start()
        except KeyboardInterrupt:
            return 0
    try:
        with stop.noting():
            _announce(embedded, json=json)
            while not stop.asked and embedded.join(_LOOK_S) is None:
                pass
        if not stop.asked:
            msg = f"the broker ended by itself ({embedded.last_words() or 'it said nothing'}): start it again"
            raise SetupError(msg)
    finally:
        embedded.stop(_STOP_S)
    return 0


def broker_options(port: int | None, data_dir: Path | None, ephemeral: bool, config: Path | None) -> BrokerOptions:
    """What the command's arguments ask for.

    Raises:
        UsageError: a port that is none, or both a directory and none to keep.
        ConfigError: the settings file is wrong.
    """
    if ephemeral and data_dir is not None:
        msg = "--ephemeral keeps nothing, so it cannot go with --data-dir: leave one out"
        raise UsageError(msg)
    if port is None:
        port = int(bootstrap_servers(load_settings(config).kafka)[0].rpartition(":")[2])
    if not 0 <= port < 1 << 16:
        msg = f"--port {port} is not a port: use 1 to 65535, or 0 for a free one"
        raise UsageError(msg)
    return BrokerOptions(port=port, data_dir=None if ephemeral else data_dir or answerby_home() / "broker")


def _announce(embedded: EmbeddedBroker, *, json: bool) -> None:
    if json:
        line = msgspec.json.encode({"bootstrap": embedded.bootstrap, "pid": embedded.pid, "data_dir": str(embedded.data_dir)}).decode()
    else:
        line = f"Apache Kafka {KAFKA_VERSION} is ready on {embedded.bootstrap}, its data in {embedded.data_dir}; Ctrl-C stops it"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _StopSignal:
    """Ctrl-C and SIGTERM: while starting they interrupt, later they are noted, so that nothing interrupts the orderly stop."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The first signal raises KeyboardInterrupt; the clean-up that follows is left alone."""

        def interrupt(number: int, frame: FrameType | None) -> None:
            if not self.asked:
                self.asked = True
                raise KeyboardInterrupt

        with _handling(interrupt):
            yield

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A signal is only noted."""

        def note(number: int, frame: FrameType | None) -> None:
            self.asked = True

        with _handling(note):
            yield


@contextmanager
def _handling(handler: object) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def _shown(console: Console) -> Iterator[Report]:
    """A bar on a terminal, lines elsewhere; nothing at all when nothing has to be fetched."""
    if not console.is_terminal:
        yield ProgressLines()
        return
    with Progress(TextColumn("fetching Apache Kafka"), BarColumn(), DownloadColumn(), console=console, transient=True) as bar:
        task = bar.add_task("fetch", total=None, visible=False)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        yield advance
