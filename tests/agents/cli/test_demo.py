"""The demo as a program: what it shows and says, how it fails, and that nothing of it stays behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

SCRIPTED = {"ANSWERBY__MODELS__0__ENGINE": "scripted", "ANSWERBY__MODELS__0__TOKEN_MS": "2"}
KEYS = {"events", "well_formed", "answered", "met", "late", "dead_letters", "outcomes", "p50_ms", "p99_ms"}
BOUND_S = 120.0
"""Generous: says only that something does not hang."""


def command(*arguments: str) -> list[str]:
    """`answerby demo` in this environment's Python."""
    return [sys.executable, "-m", "agents.cli", "demo", *arguments]


def finish(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a demo to its end."""
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=BOUND_S, check=False, env={**os.environ, **environ})


def await_that(holds: Callable[[], Any], what: str) -> Any:
    """Poll until `holds` gives something true; give that."""
    until = time.monotonic() + BOUND_S
    while not (found := holds()):
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.05)
    return found


def short_log(tmp_path: Path) -> Path:
    """Five records: three answers, one late, one malformed."""
    path = tmp_path / "short.jsonl"
    lines: list[dict[str, Any]] = [
        {"at_ms": 0, "event": {"event_id": "a", "session_id": "s", "text": "Hello!", "deadline_ms": 20_000, "answer": {"max_tokens": 8}}},
        {"at_ms": 50, "event": {"event_id": "b", "session_id": "t", "text": "你好！", "deadline_ms": 20_000, "answer": {"max_tokens": 8}}, "encoding": "json"},
        {"at_ms": 100, "value_hex": "c1", "key": "s"},
        {"at_ms": 150, "event": {"event_id": "a", "session_id": "s", "text": "Hello!", "deadline_ms": 20_000, "answer": {"max_tokens": 8}}},
        {"at_ms": 200, "event": {"event_id": "c", "session_id": "u", "text": "Too late", "deadline_ms": 500}, "late_by_ms": 900},
    ]
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
    return path


def test_the_example_log_is_answered_in_full() -> None:
    """Every event of the shipped log gets its answer in time, every malformed record is kept, and the last line is the contract's summary."""
    done = finish("--json", "--speed", "8", **SCRIPTED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    summary = json.loads(done.stdout)
    assert set(summary) == KEYS
    assert summary["events"] == summary["well_formed"] + summary["dead_letters"]
    assert summary["answered"] == summary["well_formed"] >= 42
    assert summary["met"] == summary["well_formed"] - summary["late"]
    assert summary["outcomes"]["model"] >= 0.7 * summary["well_formed"]
    assert summary["outcomes"]["refused"] == 1
    assert sum(summary["outcomes"].values()) == summary["answered"]
    assert 0 < summary["p50_ms"] <= summary["p99_ms"]
    for shown in ("undecodable", "not_a_map", "missing_field", "invalid_field", "unsupported_version", "expired", "no_consent", "empty_input", "p99 ms"):
        assert shown in done.stderr


def test_the_real_model_answers(tmp_path: Path) -> None:
    """With nothing but defaults the answers are the default model's own, in both languages; all that is shown is for reading, on standard output."""
    done = finish("--log", str(short_log(tmp_path)))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    for shown in ("ready with smollm2-135m", "4 of 4", "3 of 3", "1 of 1", "model 3, default 1", "time left"):
        assert shown in done.stdout


def test_a_model_that_is_not_here_is_one_line_with_its_cure() -> None:
    """The worker cannot start: its own error line, exit 1, and no traceback."""
    done = finish(ANSWERBY__MODELS__0__PATH="no-such-model")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the worker ended: ")
    assert "answerby models pull" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_settings_that_are_wrong_start_nothing() -> None:
    """Wrong settings end before a broker is started, with exit 2."""
    done = finish(ANSWERBY__DEADLINE__MIN_MS="soon")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_nothing_of_it_outlives_it(number: signal.Signals, tmp_path: Path) -> None:
    """However it is ended in mid-play, broker, worker and engine are gone soon after."""
    out = tmp_path / "out"
    with out.open("wb") as stream:
        demo = subprocess.Popen(command("--speed", "0.5"), stdout=stream, stderr=stream, env={**os.environ, **SCRIPTED})
    try:
        await_that(lambda: b" model " in out.read_bytes() or demo.poll() is not None, "a first answer")
        assert demo.poll() is None, out.read_text()
        family = psutil.Process(demo.pid).children(recursive=True)
        assert len(family) >= 3, "broker, worker, engine"
        demo.send_signal(number)
        assert demo.wait(BOUND_S) == (-number if number is signal.SIGKILL else 130)
        _gone, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
        assert "Traceback" not in out.read_text(errors="replace")
    finally:
        demo.kill()
        demo.wait()


def test_a_worker_that_dies_ends_the_demo(tmp_path: Path) -> None:
    """Kill -9 of the worker in mid-play: exit 1 and a line that says so, not a wait for answers that cannot come."""
    out = tmp_path / "out"
    with out.open("wb") as stream:
        demo = subprocess.Popen(command("--speed", "0.5"), stdout=stream, stderr=stream, env={**os.environ, **SCRIPTED})
    try:
        await_that(lambda: b" model " in out.read_bytes() or demo.poll() is not None, "a first answer")
        (worker,) = [child for child in psutil.Process(demo.pid).children() if "worker" in child.cmdline()]
        worker.kill()
        assert demo.wait(BOUND_S) == 1
        assert "error: the worker ended by itself (signal 9)" in out.read_text()
    finally:
        demo.kill()
        demo.wait()
