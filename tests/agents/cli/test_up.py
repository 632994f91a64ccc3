"""`answerby up` as a program: ready, used, watched, and stopped in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

BOUND_S = 90.0
"""Generous: says only that something does not hang."""


class Up:
    """A running `answerby up` and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    @property
    def said(self) -> str:
        """All it has said so far."""
        return self._log.read_text(errors="replace")

    def await_said(self, text: str) -> None:
        """Wait until it says `text`; fails when it ends first."""
        until = time.monotonic() + BOUND_S
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, f"never said {text!r}: {self.said}"
            time.sleep(0.05)

    def child(self, word: str) -> psutil.Process:
        """Its child whose command has this word."""
        (found,) = [child for child in psutil.Process(self.process.pid).children() if any(word in part for part in child.cmdline())]
        return found


@contextmanager
def running(tmp_path: Path, *arguments: str) -> Iterator[Up]:
    """`answerby up` with the scripted engine, on free ports, its worker's log in the test's own folder."""
    log = tmp_path / "up.log"
    environ = {**os.environ, "ANSWERBY__MODELS__0__ENGINE": "scripted", "ANSWERBY__WORKER__METRICS_PORT": "0"}
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-m", "agents.cli", "up", "--port", "0", *arguments], stdout=stream, stderr=stream, env=environ)
    try:
        yield Up(process, log)
    finally:
        process.kill()
        process.wait()


def address(up: Up) -> str:
    """The broker's address, as it was told."""
    return next(line for line in up.said.splitlines() if line.startswith("broker")).split(" on ")[1].split(",")[0]


def ask(up: Up) -> str:
    """The response to one and the same event, as it is printed."""
    environ = {**os.environ, "ANSWERBY__KAFKA__BOOTSTRAP": address(up)}
    command = [sys.executable, "-m", "agents.cli", "send", "hi", "--event-id", "same", "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True, env=environ).stdout


def test_up_answers_until_it_is_stopped_and_keeps_what_it_answered(tmp_path: Path) -> None:
    """Once ready it answers; Ctrl-C and SIGTERM stop worker, then broker, exit 0, nothing stays; an event sent again after a restart gets the same answer."""
    answers = []
    for number in (signal.SIGINT, signal.SIGTERM):
        with running(tmp_path, "--data-dir", str(tmp_path / "kafka")) as up:
            up.await_said("\nready")
            answers.append(ask(up))
            family = psutil.Process(up.process.pid).children(recursive=True)
            up.process.send_signal(number)
            assert up.process.wait(BOUND_S) == 0
            _gone, alive = psutil.wait_procs(family, timeout=10)
            assert not alive
            assert "Traceback" not in up.said
            assert up.said.index("worker  stopping") < up.said.index("broker  stopping") < up.said.index("stopped")
    assert answers[0] == answers[1] != ""


def test_a_broker_that_dies_ends_the_rest(tmp_path: Path) -> None:
    """Kill -9 of the broker: said in one line, the worker stopped, exit 1; for a dying worker see the demo's tests, which share the code."""
    with running(tmp_path, "--ephemeral") as up:
        up.await_said("\nready")
        family = psutil.Process(up.process.pid).children(recursive=True)
        up.child("kafka.Kafka").kill()
        assert up.process.wait(BOUND_S) == 1
        assert "error: the broker ended by itself" in up.said
        assert "Traceback" not in up.said.split("error: ")[-1]
        _gone, alive = psutil.wait_procs(family, timeout=10)
        assert not alive


@pytest.mark.parametrize("command", ["up", "demo"])
def test_wrong_settings_start_nothing(command: str, tmp_path: Path) -> None:
    """A wrong scenario or rule is one line and exit 2, before any broker."""
    config = tmp_path / "answerby.toml"
    for text, says in (
        ('[scenarios.game.ladder]\nrungs = ["rules", "small"]\n', "small"),
        ('[[rules]]\nname = "r"\nmatch.patterns = ["("]\nanswer.en = "x"\n', "patterns"),
    ):
        config.write_text(text)
        done = subprocess.run([sys.executable, "-m", "agents.cli", command, "-c", str(config)], capture_output=True, text=True, timeout=BOUND_S, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("error: ")
        assert says in done.stderr
        assert done.stderr.count("\n") == 1
