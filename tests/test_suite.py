"""The suite's own guards: what a test leaves behind is noticed, and the three packages are this distribution's alone."""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
import threading

import pytest

from tests.support import abandoned_tasks, child_processes, foreground_threads, leftovers, run


def test_a_task_that_nobody_ended_is_noticed() -> None:
    """A task still running when its loop ends is named."""

    async def forgetful() -> asyncio.Task[None]:
        return asyncio.create_task(asyncio.sleep(3600), name="forgotten")

    with abandoned_tasks() as found:
        run(forgetful())
    assert len(found) == 1
    assert "forgotten" in found[0]


def test_a_loop_that_ends_clean_is_not_blamed() -> None:
    """Nothing is named when every task was awaited."""
    with abandoned_tasks() as found:
        run(asyncio.sleep(0))
    assert found == []


def test_a_process_that_outlives_its_test_is_noticed_and_ended() -> None:
    """A child still running after the grace is named and killed, so that later tests are not disturbed."""
    before = child_processes()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        assert any(f"process {child.pid}" in line for line in leftovers(before, foreground_threads()))
        assert child.wait(10) == -9
    finally:
        child.kill()
        child.wait()


def test_a_thread_that_outlives_its_test_is_noticed() -> None:
    """A foreground thread still running after the grace is named."""
    before, done = foreground_threads(), threading.Event()
    thread = threading.Thread(target=done.wait, name="lingering")
    thread.start()
    try:
        assert leftovers(child_processes(), before) == ["thread lingering"]
    finally:
        done.set()
        thread.join()


def test_a_loop_that_hangs_is_bounded() -> None:
    """`run` gives up at its time-out instead of hanging the suite."""
    with pytest.raises(TimeoutError):
        run(asyncio.sleep(3600), timeout_s=0.05)


@pytest.mark.parametrize("package", ["schemas", "streams", "agents"])
def test_no_other_distribution_brings_our_packages(package: str) -> None:
    """The three top-level names belong to this distribution alone, so that an import cannot find another's."""
    assert set(importlib.metadata.packages_distributions()[package]) == {"answerby"}
