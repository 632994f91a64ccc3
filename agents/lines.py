"""Events in flight and the order among them: one line a session, answered from its head; different sessions never wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from schemas.deadline import Deadline
from schemas.events import InteractionEvent
from schemas.responses import Rung
from streams.codecs import Encoding, Headers
from streams.partitions import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

Interrupt = Literal["deadline", "cancelled", "abandoned"]
"""Why work on an event must end now: its time is up, the person withdrew it, or its partition goes to another worker."""

SessionId = tuple[str, str]


class Inflight:
    """One event from arrival to release: what was asked, by when, and the interrupt that ends the work on it."""

    def __init__(self, source: Any, interaction: InteractionEvent | None, deadline: Deadline, *, session: SessionId, partition: Partition) -> None:
        self.source = source
        """Faust's event, kept alive: table writes find their partition through it."""
        self.interaction = interaction
        """None for a tombstone: the session ends, nothing is answered."""
        self.deadline = deadline
        self.session = session
        self.partition = partition
        self.encoding: Encoding = "msgpack"
        self.headers: Headers = ()
        self.default_text = ""
        self.disclosure = ""
        self.due = deadline.due
        self.stop_at = deadline.due
        """When the timer interrupts: what an engine makes after it comes too late."""
        self.start = deadline.due - deadline.budget_ms / 1000
        """When the event happened, monotonic: `latency_ms.total` counts from here."""
        self.decoded_at = deadline.arrived
        self.is_past = deadline.expired
        """No time is left for anything but the default: it came so late, or waited in this worker for so long. Such an event pulls nothing forward."""
        self.stop: asyncio.Future[Interrupt] = asyncio.get_running_loop().create_future()
        self.handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the response is with the producer, or there is none and those before it are: the session's next one may follow."""
        self.before: asyncio.Future[None] | None = None
        self.notes: list[Rung] = []
        self.staged = False
        self.answered = False
        self.beside = 0
        """How many others were being written when its bytes were fixed."""
        self.abandoned = False
        """Left to the partition's next owner: nothing may be written for it any more."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def offset(self) -> int:
        """The record's offset."""
        offset: int = self.source.message.offset
        return offset

    @property
    def cancelled(self) -> bool:
        """Whether the person has withdrawn it."""
        return self.stop.done() and self.stop.result() == "cancelled"

    def interrupt(self, why: Interrupt) -> None:
        """End the work on this event; the first cause wins."""
        if not self.stop.done():
            self.stop.set_result(why)
        self.disarm()

    def abandon(self) -> None:
        """Leave this event, uncommitted, to its partition's next owner."""
        self.abandoned = True
        self.interrupt("abandoned")

    def hand_on(self) -> None:
        """This event's response is with the producer, or there will be none: the next one may follow as soon as those before may not be overtaken."""
        if self.handed.done():
            return
        if self.before is None or self.before.done():
            self.handed.set_result(None)
        else:
            self.before.add_done_callback(lambda _: self.hand_on())

    def arm(self, lead: float) -> None:
        """Interrupt `lead` seconds before the due. The timer needs nothing but the loop: no model, no lock, no other task."""
        self.disarm()
        self.stop_at = self.due - lead
        if not self.stop.done():
            self._timer = asyncio.get_running_loop().call_later(max(0.0, self.stop_at - time.monotonic()), self.interrupt, "deadline")

    def disarm(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pull(self, due: float, lead: float) -> None:
        """A later event of the session is due at `due`: answer this one by then too."""
        if due < self.due and not self.staged:
            self.due = due
            self.notes.append(Rung("deadline", "changed", 0.0, "pulled"))
            self.arm(lead)


class SessionLines:
    """All lines; an event at the head of its line is handed to `begin`, the next one when the head has left."""

    def __init__(self, begin: Callable[[Inflight], None], lead: Callable[[], float]) -> None:
        self._lines: dict[SessionId, deque[Inflight]] = {}
        self._last: dict[SessionId, asyncio.Future[None]] = {}
        """By session, the `handed` of its newest event while it is open: an event has left its line before its response has left the worker."""
        self._begin = begin
        self._lead = lead

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def join(self, inflight: Inflight) -> None:
        """Put an event at the end of its line, and pull earlier dues forward to its own."""
        line = self._lines.setdefault(inflight.session, deque())
        self._follow(inflight)
        line.append(inflight)
        if not inflight.is_past and inflight.interaction is not None:
            lead = self._lead()
            inflight.arm(lead)
            self._pull(line, inflight, lead)
        if line[0] is inflight:
            self._begin(inflight)

    def _pull(self, line: deque[Inflight], newest: Inflight, lead: float) -> None:
        """From the end backwards, and no further than needed: dues never fall along a line, and a long one must not cost the loop its time."""
        for earlier in reversed(line):
            if earlier is newest or earlier.is_past:
                continue
            if earlier.due <= newest.due:
                return
            earlier.pull(newest.due, lead)

    def _follow(self, inflight: Inflight) -> None:
        session, handed = inflight.session, inflight.handed
        inflight.before = self._last.get(session)
        self._last[session] = handed

        def forget(done: asyncio.Future[None]) -> None:
            if self._last.get(session) is done:
                del self._last[session]

        handed.add_done_callback(forget)

    def leave(self, inflight: Inflight) -> None:
        """The head's new session value is staged (or its event is dropped): the next one may read it."""
        line = self._lines.get(inflight.session)
        if not line:
            return
        was_head = line[0] is inflight
        try:
            line.remove(inflight)
        except ValueError:
            return
        if not line:
            del self._lines[inflight.session]
        elif was_head:
            self._begin(line[0])

    def abandon(self, due_after: float) -> None:
        """In each line, leave the first event that is due after `due_after` (monotonic seconds) and all behind it: nothing may leave before it does."""
        for line in self._lines.values():
            left = False
            for inflight in line:
                left = left or (inflight.due > due_after and not inflight.staged)
                if left:
                    inflight.abandon()

    def find(self, session: SessionId, event_id: str) -> Inflight | None:
        """The event `event_id` of `session`, if it is waiting or being answered."""
        for inflight in self._lines.get(session, ()):
            if inflight.interaction is not None and inflight.interaction.event_id == event_id:
                return inflight
        return None
