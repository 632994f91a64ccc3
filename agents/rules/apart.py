"""Work in a thread that the end of the process does not wait for; `asyncio.to_thread` is for work that surely ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def start_apart(name: str, work: Callable[[], Result]) -> concurrent.futures.Future[Result]:
    """Begin `work` in a daemon thread: the interpreter joins those of the default executor when it ends, however long they hang."""
    done: concurrent.futures.Future[Result] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()

    def going() -> None:
        try:
            result = work()
        except BaseException as error:  # whoever waits is to know of it
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=going, name=name, daemon=True).start()
    return done


async def run_apart(name: str, work: Callable[[], Result]) -> Result:
    """What `work` gives back or raises. Cancelled, it leaves the thread to itself."""
    return await asyncio.wrap_future(start_apart(name, work))
