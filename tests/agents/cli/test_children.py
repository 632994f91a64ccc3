"""Child processes of `up` and `demo`: each start has a bounded stop, and none outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agents.cli.children import Child, await_ready, fetch_readiness, interruptible
from schemas.errors import SetupError
from streams.broker.probe import free_port
from tests.support import run

GONE_S = 10.0
"""Generous: says only that something does not stay."""


def child(tmp_path: Path, *arguments: str) -> Child:
    """One of our commands as a child."""
    return Child(arguments, tmp_path / "child.log", os.environ)


def test_a_child_s_words_are_in_its_log_and_its_end_is_told(tmp_path: Path) -> None:
    """A command that fails leaves its own error line, which becomes ours."""

    async def scenario() -> tuple[int, str, str]:
        one = await child(tmp_path, "config", "check", "-c", str(tmp_path / "none.toml")).start()
        code = await one.wait()
        return code, one.last_words(), str(one.failure())

    code, words, failure = run(scenario())
    assert code == 2
    assert words.startswith("error: ")
    assert failure == f"the config ended: {words.removeprefix('error: ')}"


def test_last_words_are_the_child_s_own(tmp_path: Path) -> None:
    """What an earlier run left in the log is not shown as this one's, nor taken for its error."""
    (tmp_path / "child.log").write_text("error: an old one\n")

    async def scenario() -> tuple[str, str]:
        one = await child(tmp_path, "topics", "check", "--wait", "60").start()
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        await one.wait()
        return one.last_words(), str(one.failure())

    words, failure = run(scenario())
    assert "an old one" not in words
    assert "signal 9" in failure


def test_a_long_log_is_cut_and_written_on(tmp_path: Path) -> None:
    """Above the bound it is copied beside itself and emptied; the child's next words stand at its start."""
    log = tmp_path / "child.log"
    log.write_text("old " * 100)

    async def scenario() -> str:
        environ = {**os.environ, "ANSWERBY__KAFKA__BOOTSTRAP": f"127.0.0.1:{free_port()}"}
        one = await Child(("topics", "check", "--wait", "3"), log, environ).start()
        async with asyncio.timeout(GONE_S * 3):
            while "waiting for a broker" not in log.read_text():  # noqa: ASYNC110  a file has no event
                await asyncio.sleep(0.02)
        one.bound_log(10_000)
        assert log.read_text().startswith("old old")
        one.bound_log(100)
        assert log.read_text() == ""
        await one.wait()
        return one.last_words()

    assert run(scenario()).startswith("error: ")
    assert (tmp_path / "child.log.1").read_text().startswith("old old")


def test_a_child_that_died_without_a_word_is_told_by_its_signal(tmp_path: Path) -> None:
    """No error line: the signal or the exit code says how it ended."""

    async def scenario() -> str:
        one = await child(tmp_path, "topics", "check", "--wait", "60").start()
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
        await one.wait()
        return str(one.failure())

    assert "signal 9" in run(scenario())


def test_a_child_stops_when_asked_and_twice_is_fine(tmp_path: Path) -> None:
    """SIGTERM first; the second call finds it gone."""

    async def scenario() -> int | None:
        one = await child(tmp_path, "topics", "check", "--wait", "60").start()
        await one.stop(GONE_S)
        await one.stop(GONE_S)
        return one.returncode

    assert run(scenario()) is not None


def test_a_child_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """A child that takes no notice of SIGTERM is gone after the grace."""

    async def scenario() -> int | None:
        heeded = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a child inherits what is ignored
        try:
            one = await child(tmp_path, "topics", "check", "--wait", "60").start()
        finally:
            signal.signal(signal.SIGTERM, heeded)
        await one.stop(0.2)
        return one.returncode

    assert run(scenario()) == -signal.SIGKILL


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """Kill -9 of the parent takes the child along: nothing is left that nobody owns."""
    script = f"""
import asyncio, os
from pathlib import Path
from agents.cli.children import Child
async def main():
    one = await Child(("topics", "check", "--wait", "600"), Path({str(tmp_path / "child.log")!r}), os.environ).start()
    print(one.pid, flush=True)
    await one.wait()
asyncio.run(main())
"""
    environ = {**os.environ, "ANSWERBY__KAFKA__BOOTSTRAP": f"127.0.0.1:{free_port()}"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environ, text=True) as parent:
        assert parent.stdout is not None
        grandchild = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    grandchild.wait(GONE_S)


def test_a_folder_of_the_user_s_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package called `agents` where the user happens to be is not what the child runs."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)

    async def scenario() -> tuple[int, str]:
        one = await child(tmp_path, "--version").start()
        return await one.wait(), one.last_words()

    code, words = run(scenario())
    assert (code, words.count("wrong")) == (0, 0)


def test_waiting_for_readiness_is_bounded(tmp_path: Path) -> None:
    """A worker that never answers is waited for no longer than asked, and what was waited for is told once."""
    told: list[str] = []

    async def scenario() -> None:
        one = await child(tmp_path, "topics", "check", "--wait", "60").start()
        try:
            await await_ready(one, f"http://127.0.0.1:{free_port()}", told.append, 0.5)
        finally:
            await one.stop(GONE_S)

    with pytest.raises(SetupError, match="not ready within"):
        run(scenario())
    assert told == ["starting"]


def test_a_worker_that_ends_while_we_wait_is_told_at_once(tmp_path: Path) -> None:
    """Its own error line, long before the time-out."""

    async def scenario() -> None:
        one = await child(tmp_path, "worker", "-c", str(tmp_path / "none.toml")).start()
        await await_ready(one, f"http://127.0.0.1:{free_port()}", lambda _text: None, 60.0)

    with pytest.raises(SetupError, match="no such file"):
        run(scenario(), timeout_s=30)


def test_nothing_listening_is_not_an_error() -> None:
    """A worker that has not opened its port yet is simply not ready."""
    assert run(fetch_readiness(f"http://127.0.0.1:{free_port()}")) is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_both_signals_run_the_clean_up(number: signal.Signals) -> None:
    """SIGTERM ends the work as Ctrl-C does, and the handlers are given back afterwards."""
    cleaned: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, number)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    before = signal.getsignal(signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():
        asyncio.run(work())
    assert cleaned == ["yes"]
    assert time.monotonic() - began < 20
    assert signal.getsignal(signal.SIGTERM) is before
