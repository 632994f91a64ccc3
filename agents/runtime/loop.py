"""The child's step loop: one thread reads requests, steps the model, cuts at dues and cancels, and reports; how a step is done is `backend`."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import msgspec

from agents.runtime.backend import Backend, Ended, RequestRefused, StepResult
from agents.runtime.cost_model import CostModel
from agents.runtime.frames import FrameSplitter, decode_body, encode_frame
from agents.runtime.memory import process_figures
from schemas.errors import AnswerbyError
from schemas.inference import Beat, Cancel, Delta, Done, Failed, FinishReason, Generate, Shutdown, Step, ToEngine

BEAT_S = 0.2
"""Sign of life and memory figures; five fit into the shortest useful hang_ms, so one that is late is not taken for a hang."""

WRITE_S = 10.0
"""How long a worker may leave the pipe unread (stopped in a debugger, say) before this process gives up; it is replaced when the worker goes on."""

_READ_BYTES = 1 << 18

_to_engine = msgspec.msgpack.Decoder(ToEngine)


class WorkerGone(AnswerbyError):
    """Raised when the pipe is closed or not read by the worker; the process ends, since nobody can be answered."""


@dataclass(slots=True)
class _Open:
    """A request between its frame and its Done; moments in monotonic seconds, 0.0 while they have not come."""

    request: Generate
    received: float
    started: float = 0.0
    first: float = 0.0


class StepLoop:
    """Serves one worker over one socket until Shutdown or the end of the stream."""

    def __init__(self, sock: socket.socket, backend: Backend, cost: CostModel, *, chunk: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._sock = sock
        self._cost = cost
        self._chunk = chunk
        self._backend = backend
        self._splitter = FrameSplitter()
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._waiting: deque[int] = deque()
        self._tails: list[Delta] = []
        self._done: list[Done] = []
        self._failed: list[Failed] = []
        self._next_beat = 0.0
        self._busy_since: float | None = None
        self._over = False

    def serve(self) -> None:
        """Run until the worker says Shutdown.

        Raises:
            WorkerGone: the worker closed the pipe or stopped reading it.
        """
        self._sock.setblocking(False)
        while not self._over:
            self._receive()
            self._admit()
            result = self._step()
            self._cut_late()
            self._report(result)

    def send(self, message: msgspec.Struct) -> None:
        """Write one frame, waiting at most WRITE_S for room.

        Raises:
            WorkerGone: there was none, or the pipe is closed.
        """
        data = memoryview(encode_frame(message))
        until = self._clock() + WRITE_S
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                if not select.select([], [self._sock], [], max(0.0, until - self._clock()))[1]:
                    text = f"the worker has not read the pipe for {WRITE_S:g} s"
                    raise WorkerGone(text) from None
            except OSError as error:
                text = f"the worker closed the pipe ({error})"
                raise WorkerGone(text) from None

    def _receive(self) -> None:
        wait = self._wait_s()
        if wait > 0 and not select.select([self._sock], [], [], wait)[0]:
            return
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            text = f"the pipe broke ({error})"
            raise WorkerGone(text) from None
        if not data:
            text = "the worker closed the pipe"
            raise WorkerGone(text)
        self._take_frames(data)

    def _wait_s(self) -> float:
        step_at = self._backend.step_at
        if step_at == 0.0:
            return 0.0
        moments = [entry.request.due for entry in self._open.values()]
        moments.append(self._next_beat)
        if step_at is not None:
            moments.append(step_at)
        return max(0.0, min(moments) - self._clock())

    def _take_frames(self, data: bytes) -> None:
        for body in self._splitter.feed(data):
            message: ToEngine = decode_body(_to_engine, body)
            match message:
                case Generate():
                    self._open[message.id] = _Open(message, self._clock())
                    self._waiting.append(message.id)
                case Cancel():
                    if message.id in self._open:
                        self._end(message.id, "cancelled")
                case Shutdown():
                    self._over = True
                case _:
                    assert_never(message)

    def _admit(self) -> None:
        while self._waiting and self._backend.room > 0:
            entry = self._open[self._waiting[0]]
            if entry.request.due <= self._clock():
                self._end(entry.request.id, "deadline")
                continue
            self._waiting.popleft()
            entry.started = self._clock()
            try:
                self._backend.add(entry.request)
            except RequestRefused as error:
                del self._open[entry.request.id]
                self._failed.append(Failed(entry.request.id, str(error)))

    def _step(self) -> StepResult | None:
        step_at, now = self._backend.step_at, self._clock()
        if step_at is None or (step_at > now and self._busy_since is None):
            self._busy_since = None
            return None
        if self._busy_since is None:
            self._busy_since = now
        if step_at > now:
            return None
        try:
            result = self._backend.step()
        except Exception as error:  # native code may raise anything, and then nothing is known about any request in the batch
            self._failed += [Failed(request_id, f"the step failed: {type(error).__name__}") for request_id in self._open]
            self._report(None)
            raise
        if result is not None:
            result = self._timed(result)
            self._cost.learn(result.batch, result.prefill_tokens, result.seconds, time.monotonic())
            self._settle(result)
        return result

    def _timed(self, result: StepResult) -> StepResult:
        """The step with the whole time since the last one ended: reading the pipe, reporting and waking up cost those who wait as much as the model does."""
        now = self._clock()
        seconds = result.seconds if self._busy_since is None else now - self._busy_since
        still_busy = self._backend.step_at is not None
        self._busy_since = now if still_busy else None
        return replace(result, seconds=seconds)

    def _settle(self, result: StepResult) -> None:
        now = self._clock()
        for request_id in result.first:
            self._open[request_id].first = now
        for ended in result.ended:
            self._close(ended)
        for failed in result.failed:
            del self._open[failed.id]
            self._failed.append(failed)

    def _cut_late(self) -> None:
        """End now what the next step would only bring after its due: the last word must still be of use."""
        now = self._clock()
        at = now + self._next_step_s()
        for request_id in [request_id for request_id, entry in self._open.items() if entry.request.due <= (at if entry.started else now)]:
            self._end(request_id, "deadline")

    def _next_step_s(self) -> float:
        progress = self._backend.progress()
        if not progress:
            return 0.0
        decoding = sum(item.prefill_left == 0 for item in progress)
        reading = min(max(1, self._chunk - decoding), sum(item.prefill_left for item in progress))
        return self._cost.step_s(decoding, reading)

    def _end(self, request_id: int, reason: FinishReason) -> None:
        if self._open[request_id].started:
            self._close(self._backend.end(request_id, reason))
        else:
            self._waiting.remove(request_id)
            self._close(Ended(request_id, reason, 0, 0, 0))

    def _close(self, ended: Ended) -> None:
        entry, now = self._open.pop(ended.id), self._clock()
        started = entry.started or now
        first = entry.first or now
        done = Done(
            ended.id,
            ended.finish_reason,
            ended.prompt_tokens,
            ended.cached_tokens,
            ended.completion_tokens,
            prefill_ms=(first - started) * 1000,
            generate_ms=(now - first) * 1000,
            queue_ms=(started - entry.received) * 1000,
            shared_tokens=ended.shared_tokens,
            padding_tokens=ended.padding_tokens,
        )
        self._done.append(done)
        if ended.tail is not None:
            self._tails.append(ended.tail)

    def _report(self, result: StepResult | None) -> None:
        if result is not None or self._done or self._failed:
            deltas = (*(result.deltas if result else ()), *self._tails)
            step = Step(
                result.seconds if result else 0.0,
                result.batch if result else 0,
                result.prefill_tokens if result else 0,
                deltas,
                tuple(self._done),
                tuple(self._failed),
                self._backend.progress(),
            )
            for taken in (self._tails, self._done, self._failed):
                taken.clear()
            self.send(step)
        now = self._clock()
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            figures = process_figures()
            self.send(Beat(len(self._open), figures.rss_bytes, figures.major_faults))
