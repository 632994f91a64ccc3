"""The Faust agent: takes each record once and in order, and sees it through to one final response or one dead letter.

What an event is answered with is `agents.decide`; how it reaches Kafka is `agents.settle`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from agents.answers import headers_of
from agents.deadlines import PER_EVENT_S, Reserve, compute_deadline
from agents.lines import Inflight, SessionLines
from schemas.dead_letters import Undecodable
from schemas.deadline import Clock, Deadline
from schemas.events import InteractionEvent
from schemas.settings import Settings, text_for_locale
from streams.codecs import decode_event, decode_tombstone, encoding_of
from streams.offsets import Known, SeekBack, Taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from agents.crowding import Crowding
    from agents.decide import Decider
    from agents.settle import Settler
    from streams.metrics import Metrics
    from streams.partitions import Partition, PartitionBoard

log = structlog.get_logger(__name__)

LEAD_S = 0.006
"""From the timer to fixed bytes on a loop with other work: without it a default would be fixed just after the reserve began. At 4 ms the third event of a
session's line, which is fixed after the two before it, sometimes was."""

MAX_LEAD_S = 0.100
"""A flood must not take the model's whole time."""

LAST_FLUSH_S = 0.05
"""For expired events even when no time is left: one batch, which is most of what ever waits."""

REARM_FROM = 16
"""Events in flight from which on earlier timers are set anew each time there are twice as many: the first of a burst would otherwise be fixed with the time
that one event needs, and leave with all the others. Fewer make no difference."""

CROWD = 2
"""Records taken without giving the loop back. An answer passes some ten turns of the loop on its way out, and with more records a turn those of a burst
all leave together, at its end. By so many may `limits.in_flight` be exceeded."""


class Responder:
    """One worker's intake: lines, timers, and the tasks that answer."""

    def __init__(  # noqa: PLR0913  # wired in one place, and it needs them all
        self,
        settings: Settings,
        *,
        board: PartitionBoard,
        metrics: Metrics,
        reserve: Reserve,
        decider: Decider,
        settler: Settler,
        crowding: Crowding,
        seek: Callable[[int, int], Awaitable[None]],
        on_crash: Callable[[BaseException], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._board = board
        self._metrics = metrics
        self._reserve = reserve
        self._decider = decider
        self._settler = settler
        self._crowding = crowding
        self._seek = seek
        self._on_crash = on_crash
        self._clock = clock
        self.lines = SessionLines(self._begin, self.lead)
        self._tasks: set[asyncio.Task[None]] = set()
        self._inflight: set[Inflight] = set()
        self._armed_for = REARM_FROM
        """Events in flight when timers were last set anew, or will be for the first time."""
        self._room = asyncio.Event()
        self._room.set()
        self._draining = False
        settler.lines = self.lines
        board.on_release = self._make_room

    @property
    def in_flight(self) -> int:
        """Records taken and not yet released."""
        return self._board.running

    @property
    def full(self) -> bool:
        """Whether records wait because `limits.in_flight` is reached."""
        return not self._room.is_set()

    def lead(self) -> float:
        """How long before its due an event is interrupted: the reserve, and the time to fix and write the bytes of all that come due together."""
        return self._reserve.seconds() + min(MAX_LEAD_S, LEAD_S + PER_EVENT_S * len(self._inflight))

    async def run(self, events: AsyncIterator[Any]) -> None:
        """Take events as Faust delivers them; never raises for a record's sake."""
        since_pause = 0
        async for event in events:
            self.accept(event)
            since_pause += 1
            if since_pause >= CROWD:
                since_pause = 0
                await asyncio.sleep(0)
                if self.in_flight >= self._settings.limits.in_flight:
                    self._room.clear()
                await self._room.wait()

    def accept(self, source: Any) -> None:
        """Take one record: at most a fraction of a millisecond, and nothing here waits."""
        message = source.message
        partition = self._board.get(message.partition)
        if partition is None or self._draining:
            return
        take = partition.tracker.take(message.offset)
        match take:
            case Taken():
                partition.last_progress = time.monotonic()
                self._take_guarded(source, partition)
            case Known():
                return
            case SeekBack(offset):
                self._metrics.seeks.inc()
                log.warning("records were skipped by delivery, reading again", partition=message.partition, offset=offset, seen=message.offset)
                self._spawn(self._seek(message.partition, offset))
            case _:
                assert_never(take)

    async def drain(self, seconds: float) -> None:
        """Finish what is due within `seconds` and abandon the rest, uncommitted: its next owner answers it."""
        self._draining = True
        horizon = time.monotonic() + seconds
        self.lines.abandon(due_after=horizon)
        while (self._tasks or self._settler.waiting) and (left := horizon - time.monotonic()) > 0:
            if self._tasks:
                await asyncio.wait(tuple(self._tasks), timeout=left)
            else:
                await self._settler.flush(left)
        await self._settler.flush(LAST_FLUSH_S)
        self.lines.abandon(due_after=float("-inf"))

    def resume(self) -> None:
        """Partitions were assigned: take records again."""
        self._draining = False

    async def stop(self) -> None:
        """Cancel what is left; nothing of it was committed."""
        self._draining = True
        for inflight in tuple(self._inflight):
            inflight.disarm()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=1.0)

    def _take_guarded(self, source: Any, partition: Partition) -> None:
        """A surprise here would end Faust's agent and acknowledge the record unanswered."""
        try:
            self._take(source, partition)
        except Exception as error:  # the edge of one record: a bug of ours must cost that record alone
            log.exception("a record could not be taken", partition=partition.number, offset=source.message.offset)
            self._spawn(self._settler.dead_letter(source, partition, Undecodable("internal", type(error).__name__)))

    def _take(self, source: Any, partition: Partition) -> None:
        message = source.message
        arrived = message.time_in if message.time_in is not None else self._clock.monotonic()
        wall_ms = self._clock.wall_ms() - round((self._clock.monotonic() - arrived) * 1000)
        if message.value is None:
            self._take_tombstone(source, partition, arrived)
            return
        headers = tuple(message.headers or ())
        event = decode_event(message.value, message.key, headers, self._settings.limits)
        if isinstance(event, Undecodable):
            self._spawn(self._settler.dead_letter(source, partition, event))
            return
        record_ms = -1 if message.timestamp is None else round(message.timestamp * 1000)
        deadline = compute_deadline(event, record_ms=record_ms, arrived=arrived, arrived_wall_ms=wall_ms, section=self._settings.deadline)
        if deadline.skew_ms:
            self._metrics.skew.inc()
        inflight = Inflight(source, event, deadline, session=(event.tenant, event.session_id), partition=partition)
        self._board.note_session(inflight.session, partition.number)
        inflight.encoding = encoding_of(message.value, headers)
        inflight.headers = headers_of(message)
        locale = event.locale or self._settings.session.locale
        inflight.default_text = text_for_locale(self._settings.ladder.default_text, locale)
        inflight.disclosure = text_for_locale(self._settings.policy.disclosure, locale)
        inflight.decoded_at = self._clock.monotonic()
        self._crowding.note(inflight.decoded_at - arrived)
        self._look_at_time(inflight, inflight.decoded_at)
        if event.kind == "cancel" and event.ref is not None:
            self._withdraw(inflight, event.ref)
        self._inflight.add(inflight)
        self.lines.join(inflight)
        self._arm_for_all()

    def _arm_for_all(self) -> None:
        """Timers that were set for fewer end earlier now; each event is looked at a few times a burst."""
        count = len(self._inflight)
        if count < self._armed_for // 4:
            self._armed_for = max(REARM_FROM, self._armed_for // 2)
        if count < self._armed_for:
            return
        self._armed_for = 2 * count
        lead = self.lead()
        for other in self._inflight:
            if not other.is_past and not other.staged and other.interaction is not None:
                other.arm(lead)

    def _withdraw(self, inflight: Inflight, ref: str) -> None:
        """A cancel acts when it arrives, not when its turn comes."""
        meant = self.lines.find(inflight.session, ref)
        if meant is not None and not meant.staged:
            meant.interrupt("cancelled")

    def _take_tombstone(self, source: Any, partition: Partition, arrived: float) -> None:
        session = decode_tombstone(source.message.key, tuple(source.message.headers or ()))
        if isinstance(session, Undecodable):
            self._spawn(self._settler.dead_letter(source, partition, session))
            return
        deadline = Deadline(budget_ms=0.0, arrived=arrived, due=arrived, due_at_ms=0, expired=True)
        inflight = Inflight(source, None, deadline, session=session, partition=partition)
        inflight.headers = headers_of(source.message)
        self._inflight.add(inflight)
        self.lines.join(inflight)

    def _begin(self, inflight: Inflight) -> None:
        """The event is at the head of its line."""
        event = inflight.interaction
        self._look_at_time(inflight, self._clock.monotonic())
        if inflight.abandoned:
            self._own(inflight, _leave_to_next_owner())
        elif event is None:
            self._own(inflight, self._settler.end_session(inflight))
        elif inflight.is_past and event.kind in ("message", "decision"):
            self._inflight.discard(inflight)
            self._settler.queue_expired(inflight)
        else:
            self._own(inflight, self._answer(inflight, event))

    def _look_at_time(self, inflight: Inflight, now: float) -> None:
        """Whether anything but the default can still be in time; who was withdrawn is told that and not the time."""
        inflight.is_past = inflight.is_past or (not inflight.cancelled and now >= inflight.due - self._reserve.seconds())

    async def _answer(self, inflight: Inflight, event: InteractionEvent) -> None:
        """Decide, then settle; an abandoned event leaves no trace."""
        decision = await self._decider.decide(inflight, event)
        if not inflight.abandoned:
            await self._settler.settle(inflight, event, decision)

    def _own(self, inflight: Inflight, work: Any) -> None:
        self._spawn(self._guarded(inflight, work))

    async def _guarded(self, inflight: Inflight, work: Any) -> None:
        """However the work ends, the session's next event has its turn."""
        try:
            async with self._settler.guarding(inflight):
                await work
        finally:
            inflight.disarm()
            self._inflight.discard(inflight)
            inflight.hand_on()
            self.lines.leave(inflight)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(error)

    def _make_room(self) -> None:
        if not self._room.is_set() and self.in_flight < self._settings.limits.in_flight:
            self._room.set()


async def _leave_to_next_owner() -> None:
    """As a task of its own: a long line of abandoned events would otherwise recurse as deep as it is long."""
