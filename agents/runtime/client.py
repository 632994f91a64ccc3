"""One generation of one engine process as the worker sees it: start, ask, cancel, notice death or silence, stop; restarts are `supervisor`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import assert_never

import msgspec

from agents.runtime.ask import Ask
from agents.runtime.frames import BrokenFrame, FrameSplitter, decode_body, encode_frame
from agents.runtime.process import JOIN_S, EngineProcess
from agents.runtime.spec import EngineSpec
from schemas.inference import Beat, Cancel, FromEngine, Generate, Ready, Shutdown, StartFailed, Step

UNSENT_BYTES = 64 * 1024 * 1024
"""What may wait for a full pipe before the engine counts as hung at once; a full queue of the longest prompts is smaller."""

CHECKS_A_HANG = 5
"""Silence is looked at this often per hang_ms, so a hang is found at most 20 % late."""

BUSY_S = 1.7
"""A silent process that is running (or waiting for a disk) may be in a long native step on a crowded machine; it gets this long where hang_ms is
shorter, since a replacement costs seconds of no answers. A stopped or sleeping one gets hang_ms. Found within 2 s in either case."""

WORST_STEPS = 3
"""Times the longest foreseen step: a step that takes three times as long as it ever should does not end."""

LONGEST_HANG_S = 1.7
"""However slow the model, a hang is found within two seconds."""

UNREAD_S = 0.02
"""Silence shorter than this is never taken for a sign, so the pipe need not be looked into."""

READS_A_TURN = 4
"""Reads of one engine before the loop serves others: a flood of frames cannot starve the timers."""

_READ_BYTES = 1 << 18

_from_engine = msgspec.msgpack.Decoder(FromEngine)

log = logging.getLogger("answerby.engine")


class EngineClient:
    """Owns one child process from spawn to join. Nothing of it outlives it: pipe, requests and half-read frames die with the generation."""

    def __init__(self, spec: EngineSpec, on_step: Callable[[Step], None], worst_step_s: Callable[[], float] = lambda: 0.0) -> None:
        self._spec = spec
        self._worst_step_s = worst_step_s
        self._on_step = on_step
        self._loop = asyncio.get_running_loop()
        self._splitter = FrameSplitter()
        self._asks: dict[int, Ask] = {}
        self._unsent = bytearray()
        self._unsent_since = 0.0
        self._heard = self._loop.time()
        self._ready: asyncio.Future[Ready | str] = self._loop.create_future()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._check: asyncio.TimerHandle | None = None
        self._process: EngineProcess | None = None
        self.beat = Beat(0, 0, 0)

    @property
    def pid(self) -> int | None:
        """Of the process; None before the spawn and after the join."""
        return self._process.pid if self._process else None

    @property
    def ready(self) -> Ready | None:
        """What the engine said when it was warm; None before that and once it is over."""
        said = self._ready.result() if self._ready.done() else None
        return said if isinstance(said, Ready) and not self._over.done() else None

    @property
    def open_requests(self) -> int:
        """Requests that have not ended, waiting ones included."""
        return len(self._asks)

    def silent_s(self) -> float:
        """Seconds without a sign of life. What is in the pipe is read first: it may be the worker that was away."""
        if self._loop.time() - self._heard > UNREAD_S:
            self._on_readable()
        return self._loop.time() - self._heard

    async def start(self) -> Ready | str:
        """Spawn, send the spec and wait for Ready; a text says why the engine will not come. Bounded by the model's start_ms."""
        try:
            self._process = EngineProcess(f"{self._spec.model.name}/{self._spec.replica}")
        except OSError as error:  # no memory, processes or descriptors left: as much a reason to try again later as any other
            self._end(f"its process cannot be spawned ({error.strerror or error})")
            return await asyncio.shield(self._ready)
        self._heard = self._loop.time()
        self._loop.add_reader(self._process.socket, self._on_readable)
        self._watch()
        self._send(self._spec)
        return await asyncio.shield(self._ready)

    def ask(self, request: Generate, ask: Ask | None = None) -> Ask:
        """Send a request; `request.id` must be new to this generation. `ask` is what its owner holds already, if it had to wait."""
        ask = ask or Ask(request.id, self.cancel)
        if self.ready is None:
            ask.fail("engine_unavailable", "the engine is not ready")
            return ask
        self._asks[request.id] = ask
        try:
            self._send(request)
        except BrokenFrame as error:
            del self._asks[request.id]
            ask.fail("engine_error", str(error))
        return ask

    async def over(self) -> str:
        """Wait until this generation cannot serve any more; the text says why."""
        return await asyncio.shield(self._over)

    async def stop(self, grace_s: float) -> None:
        """Ask it to leave, kill it after `grace_s`, join it; takes at most `grace_s` + JOIN_S. May be called again."""
        process = self._process
        if process is None:
            self._end("never started")
            return
        if self.ready is not None and grace_s > 0:
            for ask in self._asks.values():
                ask.fail("engine_unavailable", "the engine is stopping")
            self._asks.clear()
            self._send(Shutdown())
            await process.join(grace_s)
        self._end("stopped")
        if await process.join(JOIN_S) is None:
            log.error("%s/%d: process %d does not die", self._spec.model.name, self._spec.replica, process.pid)
        process.close()
        self._process = None

    def cancel(self, request_id: int) -> None:
        """Nobody waits for it any more. Unknown ids are ignored."""
        if request_id in self._asks and not self._over.done():
            self._send(Cancel(request_id))

    def _send(self, message: msgspec.Struct) -> None:
        """Write what the pipe takes now and keep the rest: the worker never waits for an engine."""
        data = encode_frame(message)
        if self._process is None or self._over.done():
            return
        if self._unsent:
            self._unsent += data
            if len(self._unsent) > UNSENT_BYTES:
                self._end("the pipe is full")
            return
        try:
            sent = self._process.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._end(f"the pipe broke ({error})")
            return
        if sent < len(data):
            self._unsent += data[sent:]
            self._unsent_since = self._loop.time()
            self._loop.add_writer(self._process.socket, self._on_writable)

    def _on_writable(self) -> None:
        if self._process is None or self._over.done():
            return
        try:
            del self._unsent[: self._process.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"the pipe broke ({error})")
            return
        self._unsent_since = self._loop.time()
        if not self._unsent:
            self._loop.remove_writer(self._process.socket)

    def _on_readable(self) -> None:
        for _ in range(READS_A_TURN):
            if self._process is None or self._over.done():
                return
            try:
                data = self._process.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._end(f"the pipe broke ({error})")
                return
            if not data:
                truncated = self._splitter.finish()
                self._end("the process ended" if truncated is None else f"the process ended inside a frame ({truncated.received} bytes of it are discarded)")
                return
            self._heard = self._loop.time()
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            for body in self._splitter.feed(data):
                self._obey(decode_body(_from_engine, body))
        except BrokenFrame as error:
            self._end(str(error))

    def _obey(self, message: FromEngine) -> None:
        match message:
            case Step():
                self._settle(message)
                self._on_step(message)
            case Beat():
                self.beat = message
            case Ready():
                self.beat = Beat(0, message.memory_bytes, 0)
                if not self._ready.done():
                    self._ready.set_result(message)
            case StartFailed():
                self._end(message.error)
            case _:
                assert_never(message)

    def _settle(self, step: Step) -> None:
        for delta in step.deltas:
            if (ask := self._asks.get(delta.id)) is not None:
                ask.add(delta)
        for done in step.done:
            if (ask := self._asks.pop(done.id, None)) is not None:
                ask.finish(done)
        for failed in step.failed:
            if (ask := self._asks.pop(failed.id, None)) is not None:
                ask.fail("engine_error", failed.error)

    def _watch(self) -> None:
        """Look for silence. Reads first: after a pause of the worker itself the signs of life are still in the pipe."""
        if self._over.done():
            return
        self._on_readable()
        model = self._spec.model
        limit = self._hang_s() if self.ready else model.start_ms / 1000
        now = self._loop.time()
        silent = now - self._heard > limit
        if silent and now - self._heard < BUSY_S and self._process is not None and self._process.busy():
            silent = False
        if silent:
            what = f"no sign of life for {now - self._heard:.1f} s" if self.ready else f"not ready within start_ms ({model.start_ms})"
            self._end(what)
        elif self._unsent and now - self._unsent_since > limit:
            self._end("it does not read its pipe")
        else:
            self._check = self._loop.call_later(model.hang_ms / 1000 / CHECKS_A_HANG, self._watch)

    def _hang_s(self) -> float:
        """Silence that means a hang: hang_ms, or a few times the longest step that is foreseen where that is more."""
        return max(self._spec.model.hang_ms / 1000, min(WORST_STEPS * self._worst_step_s(), LONGEST_HANG_S))

    def _end(self, why: str) -> None:
        """The one way out: kill, and give every open request its end."""
        if self._over.done():
            return
        self._over.set_result(why)
        if not self._ready.done():
            self._ready.set_result(why)
        if self._check is not None:
            self._check.cancel()
        if self._process is not None:
            self._loop.remove_reader(self._process.socket)
            self._loop.remove_writer(self._process.socket)
            self._process.kill()
        for ask in self._asks.values():
            ask.fail("engine_unavailable", why)
        self._asks.clear()
