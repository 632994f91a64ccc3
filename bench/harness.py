"""A worker as its own process, for benchmarks and live tests: started with given settings, watched by its own port, killed for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY_S = 60.0
"""Start, model load and recovery, on a machine that does other work too."""


class WorkerProcess:
    """`answerby worker` with a settings file of its own; the newest one's port is always known."""

    def __init__(self, folder: Path, config: str, *, name: str = "worker") -> None:
        self._folder = folder
        self._config = folder / f"{name}.toml"
        self._config.write_text(config)
        tomllib.loads(config)
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = 0

    @property
    def pid(self) -> int:
        """The worker's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def port(self) -> int | None:
        """Where this start listens, once it has said so in its log."""
        for line in self._log.read_bytes()[self._seen :].splitlines():
            if b'"worker started"' in line or b'"status port"' in line:
                return int(json.loads(line)["port"])
        return None

    def start(self, *, ready: bool = True, arguments: Sequence[str] = ()) -> None:
        """Start the process, by default until it is ready."""
        self._log.touch()
        self._seen = self._log.stat().st_size
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agents.cli", "worker", "-c", str(self._config), *arguments], stderr=log, stdout=log, cwd=Path(__file__).parent.parent
            )
        if ready:
            self.await_ready()

    def await_end(self, seconds: float) -> int:
        """Wait until the process ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(seconds)

    def await_ready(self, seconds: float = READY_S, *, ready: bool = True) -> float:
        """Wait until `/readyz` says so; returns the seconds it took."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self._process is not None and self._process.poll() is not None:
                msg = f"the worker ended with {self._process.returncode}:\n{self.log_tail()}"
                raise AssertionError(msg)
            status, _ = self.get("/readyz")
            if (status == 200) is ready:
                return time.monotonic() - began
            time.sleep(0.05)
        msg = f"not {'ready' if ready else 'unready'} within {seconds} s:\n{self.log_tail()}"
        raise AssertionError(msg)

    def get(self, path: str) -> tuple[int, bytes]:
        """GET from the worker's port; status 0 when nothing listens."""
        port = self.port
        if port is None:
            return 0, b""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def readiness(self) -> dict[str, Any]:
        """The body of `/readyz`."""
        body: dict[str, Any] = json.loads(self.get("/readyz")[1] or b"{}")
        return body

    def metric_sum(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry `labels`."""
        total = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith((name + "{", name + " ")) and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def kill(self) -> None:
        """Kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
            raise

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def log_text(self) -> str:
        """Everything this and earlier starts have logged."""
        return self._log.read_text(errors="replace")

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                pass


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a process that a test knows by its id."""
    os.kill(pid, number)


def scripted_config(bootstrap: str, **model: Any) -> str:
    """Settings with one scripted engine and a free metrics port."""
    entries = {"name": "main", "engine": "scripted", **model}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in entries.items())
    return f'[kafka]\nbootstrap = "{bootstrap}"\n[worker]\nmetrics_port = 0\n[[models]]\n{lines}\n'
