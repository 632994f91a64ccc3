"""What tests of every folder share: bounded loops and watches for what a test leaves behind; fixtures are in `conftest`."""

from __future__ import annotations

import asyncio
import asyncio.runners
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psutil

Result = TypeVar("Result")

_cancel_all_tasks = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]  # there is no public place to see what is abandoned

_GRACE_S = 3.0
"""A child that was told to stop may need a moment to be gone; on a busy machine a JVM takes one or two seconds."""

_POLL_S = 0.02

_KEPT_BY_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers of the standard library that live as long as the interpreter, whoever caused them."""


def run(coro: Coroutine[Any, Any, Result], timeout_s: float = 60.0) -> Result:
    """Run `coro` on a loop of its own, at most `timeout_s` seconds; tasks that it leaves behind fail the test (see `conftest`)."""

    async def bounded() -> Result:
        async with asyncio.timeout(timeout_s):
            return await coro

    return asyncio.run(bounded())


@contextmanager
def abandoned_tasks() -> Iterator[list[str]]:
    """A list that fills with the tasks which `asyncio.run` has to cancel at its end because nobody ended them."""
    found: list[str] = []

    def record_and_cancel(loop: asyncio.AbstractEventLoop) -> None:
        found.extend(f"task {task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks(loop))
        _cancel_all_tasks(loop)

    outer = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]
    asyncio.runners._cancel_all_tasks = record_and_cancel  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        asyncio.runners._cancel_all_tasks = outer  # type: ignore[attr-defined]


def child_processes() -> dict[int, str]:
    """Our living children and theirs: process id to command line, without what Python itself keeps."""
    found: dict[int, str] = {}
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                continue
            command = " ".join(child.cmdline()) or child.name()
        except psutil.NoSuchProcess:
            continue
        if not any(name in command for name in _KEPT_BY_PYTHON):
            found[child.pid] = command[:200]
    return found


def foreground_threads() -> set[threading.Thread]:
    """Threads that would keep the interpreter from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()}


def leftovers(children_before: dict[int, str], threads_before: set[threading.Thread]) -> list[str]:
    """What is there now and was not before, after a moment's grace, one line each."""
    give_up = time.monotonic() + _GRACE_S
    while True:
        children = {pid: command for pid, command in child_processes().items() if pid not in children_before}
        threads = [thread for thread in foreground_threads() - threads_before if thread.is_alive()]
        if not (children or threads):
            return []
        if time.monotonic() >= give_up:
            _end(children)
            return [f"process {pid}: {command}" for pid, command in children.items()] + [f"thread {thread.name}" for thread in threads]
        time.sleep(_POLL_S)


def _end(children: dict[int, str]) -> None:
    """One test's leftover must not make the next ones fail."""
    for pid in children:
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            continue
