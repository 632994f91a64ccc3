"""One thread beside the event loop that encodes questions one after the other, so that the loop never waits for a model; what it runs is an `encoder`."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog

from agents.semantic.encoder import Encoder
from agents.semantic.guards import Signature, signature
from agents.semantic.index import Vector
from schemas.errors import AnswerbyError, SetupError

log = structlog.get_logger(__name__)

WAITING = 16
"""Questions that may wait: at 9 ms each the last one waits 150 ms, longer than anybody would be patient; more are declined at once."""

START_S = 60.0
"""For loading and compiling an encoder; a slow disk makes it seconds. Longer, and the worker says so instead of hanging."""

STOP_S = 2.0
"""For the question under way. The thread is a daemon: one that hangs in a library ends with the process."""

SWITCH_S = 0.001
"""How long this thread may hold the interpreter while the loop wants it. Python's own 5 ms is all that the loop may ever be late; the time goes
back to what it was at the stop."""

_WARM_UP = ("How do I turn off 2 lights before noon?", "怎么从北京到上海？")
"""The first text reads word lists and fills the library's buffers, which takes some 100 ms: longer than a question waits."""


class Encoded(NamedTuple):
    """What was made of a text."""

    vector: Vector
    signature: Signature
    seconds: float
    """In the thread, without waiting."""


class EncoderThread:
    """Owns the encoder; `start` and `stop` come in pairs, `encode` between them."""

    def __init__(self, open_encoder: Callable[[], Encoder], *, waiting: int = WAITING) -> None:
        self._open = open_encoder
        self._waiting = waiting
        self._queue: queue.SimpleQueue[tuple[str, asyncio.Future[Encoded]] | None] = queue.SimpleQueue()
        self._open_jobs = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._encoder: Encoder | None = None
        self._switch_s = 0.0

    @property
    def encoder(self) -> Encoder | None:
        """The encoder, once it is loaded and warm."""
        return self._encoder

    @property
    def waiting(self) -> int:
        """Questions waiting or under way."""
        return self._open_jobs

    async def start(self) -> None:
        """Load the encoder and encode once, at most `START_S`.

        Raises:
            SetupError: it is not here or cannot be loaded; the text says what to do.
        """
        self._loop = asyncio.get_running_loop()
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(min(self._switch_s, SWITCH_S))
        ready: asyncio.Future[Encoder] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="semantic-encoder", daemon=True)
        self._thread.start()
        done, _ = await asyncio.wait((ready,), timeout=START_S)
        if not done:
            self._queue.put(None)
            msg = f"the encoder of the semantic cache was not loaded after {START_S:.0f} s: look at disk and memory, or set semantic_cache.encoder to `ngrams`"
            raise SetupError(msg)
        self._encoder = ready.result()

    async def stop(self) -> None:
        """End the thread after the question under way; at most `STOP_S`."""
        thread, self._thread, self._encoder = self._thread, None, None
        if thread is None:
            return
        sys.setswitchinterval(self._switch_s)
        self._queue.put(None)
        await asyncio.to_thread(thread.join, STOP_S)
        if thread.is_alive():
            log.warning("the encoder does not end; it goes with the process")
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._queue.get_nowait()
                if job is not None:
                    job[1].cancel()
        self._queue.put(None)  # for a thread that comes back after all

    def encode(self, text: str) -> asyncio.Future[Encoded] | None:
        """Have `text` encoded; None when too many wait already or the encoder is not there. Cancelling the future takes its place in the queue back."""
        if self._encoder is None or self._loop is None or self._open_jobs >= self._waiting:
            return None
        job: asyncio.Future[Encoded] = self._loop.create_future()
        self._open_jobs += 1
        self._queue.put((text, job))
        return job

    def _run(self, ready: asyncio.Future[Encoder]) -> None:
        """The thread. Whatever an encoder raises becomes the job's failure: the thread must outlive it."""
        loop = ready.get_loop()
        try:
            encoder = self._open()
            for text in _WARM_UP:
                _encode(encoder, text)
        except Exception as error:  # the edge of the thread: the starter decides what it means
            known = error if isinstance(error, AnswerbyError) else SetupError(f"the encoder cannot be loaded ({error}): pull it again, or use `ngrams`")
            _call(loop, _settle, ready, known)
            return
        _call(loop, _settle, ready, encoder)
        while (job := self._queue.get()) is not None:
            text, future = job
            result: Encoded | Exception | None = None
            if not future.cancelled():
                try:
                    result = _encode(encoder, text)
                except Exception as error:  # the edge of the thread: one text must not end it
                    result = error
            if not _call(loop, self._finish, future, result):
                return

    def _finish(self, future: asyncio.Future[Encoded], result: Encoded | Exception | None) -> None:
        self._open_jobs -= 1
        if result is not None:
            _settle(future, result)


def _encode(encoder: Encoder, text: str) -> Encoded:
    began = time.perf_counter()
    vector = encoder.encode([text])[0]
    return Encoded(vector, signature(text), time.perf_counter() - began)


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> bool:
    """Run on the loop; False when the loop is gone."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)
        return True
    return False
