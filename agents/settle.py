"""Law 6 in one place: changelog acknowledged, then the same bytes on `responses`, acknowledged, then the offset released."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import structlog

from agents.answers import Fixed, fix_response
from agents.crowding import Crowding
from agents.deadlines import Reserve, alone
from agents.decide import Decider, Decision, Repeat, Reply
from agents.store import SessionStore, kept_record
from schemas.audit import AuditAction, AuditRecord
from schemas.dead_letters import Undecodable
from schemas.deadline import Clock
from schemas.errors import StoreError
from schemas.events import InteractionEvent
from schemas.responses import STAGES
from schemas.session import KeptAnswer
from streams.codecs import FORGET_HEADER
from streams.publish import KeptRecord, WriteError

if TYPE_CHECKING:
    from agents.lines import Inflight, SessionLines
    from schemas.settings import Limits
    from streams.metrics import Metrics
    from streams.partitions import Partition
    from streams.publish import Publisher
    from streams.tables import ChangelogRecord, TableSet

log = structlog.get_logger(__name__)

LANE_CROWD = 8
"""Expired events staged, sent or counted without giving the loop back: about 4 ms."""

LANE_WAIT_S = 10.0
"""So much later an expired event is answered at most for a flood's sake: beyond it the flood is the load, and nobody is waited for."""

LANE_LOOK_S = 0.02
"""How often the lane looks whether the flood is over; nothing else wakes it, since a flood ends by records that do not come."""

_Staged: TypeAlias = "tuple[Inflight, KeptRecord, Fixed | KeptAnswer]"


class Settler:
    """Writes decisions out, one event at a time or, for expired ones, in batches."""

    lines: SessionLines

    def __init__(  # noqa: PLR0913  # wired in one place, and it needs them all
        self,
        *,
        publisher: Publisher,
        tables: TableSet,
        store: SessionStore,
        decider: Decider,
        metrics: Metrics,
        reserve: Reserve,
        crowding: Crowding,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._publisher = publisher
        self._tables = tables
        self._store = store
        self._decider = decider
        self._metrics = metrics
        self._stages = {stage: metrics.stage.labels(stage) for stage in (*STAGES, "publish")}
        self._outcomes: dict[tuple[str, str | None], tuple[Any, Any]] = {}
        """Counter and histogram by outcome and reason, both of closed sets."""
        self._reserve = reserve
        self._crowding = crowding
        self._clock = clock
        self._limits = limits
        self._expired: asyncio.Queue[Inflight] = asyncio.Queue()
        self._in_lane = 0
        self._hurried = False
        """Somebody waits for the lane to be empty."""
        self._publishing = 0
        """Replies with fixed bytes that are not acknowledged yet, those in the lane left out."""
        self._lane_idle = asyncio.Event()
        self._lane_idle.set()

    @property
    def waiting(self) -> int:
        """Expired events that are not released yet."""
        return self._in_lane

    async def settle(self, inflight: Inflight, event: InteractionEvent, decision: Decision) -> None:
        """See one decision through to its released offset."""
        match decision:
            case Undecodable():
                self.lines.leave(inflight)
                await self.dead_letter(inflight.source, inflight.partition, decision)
            case Repeat():
                self.lines.leave(inflight)
                await self._send(inflight, kept_record(event, decision.answer), decision.answer)
            case Reply():
                await self._settle_reply(inflight, event, decision)
            case _:
                assert_never(decision)

    async def end_session(self, inflight: Inflight) -> None:
        """A tombstone: counted and audited, nothing is said."""
        if not await self._publisher.may_publish(inflight.partition):
            return
        forgets = any(name == FORGET_HEADER for name, _ in inflight.source.message.headers or ())
        staged = self._store.stage_forget(inflight) if forgets else self._store.stage_end(inflight)
        ahead = await self._publisher.write_ahead(staged, self._tables, inflight.partition)
        inflight.staged = True
        self.lines.leave(inflight)
        audited = await self._audit(inflight, None, "session_ended", "forgotten" if forgets else "tombstone")
        await asyncio.gather(ahead, audited)
        self._metrics.events.labels("ack", "tombstone").inc()
        inflight.partition.release(inflight.offset)

    async def dead_letter(self, source: Any, partition: Partition, verdict: Undecodable) -> None:
        """Put the record aside as it came, then release its offset."""
        if not await self._publisher.may_publish(partition):
            return
        await self._publisher.dead_letter(source.message, verdict)
        self._metrics.dead_letters.labels(verdict.reason).inc()
        log.warning("dead letter", reason=verdict.reason, partition=partition.number, offset=source.message.offset)
        partition.release(source.message.offset)

    def guarding(self, inflight: Inflight) -> _Guard:
        """A bug of ours that meets this event costs it alone, and nothing once its response has left; only what Kafka or a disk refuses ends the worker."""
        return _Guard(self, inflight)

    async def give_up_on(self, inflight: Inflight, error: Exception) -> None:
        """What is left to do for an event that met a bug."""
        log.error("an event could not be answered", partition=inflight.partition.number, offset=inflight.offset, exc_info=error)
        if inflight.answered:
            inflight.partition.release(inflight.offset)
        else:
            await self.dead_letter(inflight.source, inflight.partition, Undecodable("internal", type(error).__name__))
        inflight.hand_on()

    def queue_expired(self, inflight: Inflight) -> None:
        """Put an event that expired before it arrived into the short lane; its offset is released from there."""
        self._in_lane += 1
        self._lane_idle.clear()
        self._expired.put_nowait(inflight)

    async def run_lane(self) -> None:
        """Answer expired events in batches, so that a backlog after an outage does not make fresh events late."""
        while True:
            first = await self._expired.get()
            await self._let_fresh_first(first)
            await self._settle_batch(first)

    async def flush(self, seconds: float) -> None:
        """Wait until the lane is empty, at most `seconds`."""
        self._hurried = True
        try:
            await asyncio.wait_for(self._lane_idle.wait(), seconds)
        except TimeoutError:
            log.warning("expired events are left for the next owner", events=self._in_lane)
        finally:
            self._hurried = False

    async def _let_fresh_first(self, oldest: Inflight) -> None:
        """Late is late: in a flood each expired event would make another one late. Those of its session wait behind it, and so others have room."""
        until = oldest.decoded_at + LANE_WAIT_S
        most = self._limits.in_flight // 2
        while self._crowding.lasts and not self._hurried and self._in_lane < most and time.monotonic() < until:  # noqa: ASYNC110  # see LANE_LOOK_S
            await asyncio.sleep(LANE_LOOK_S)

    async def _settle_reply(self, inflight: Inflight, event: InteractionEvent, reply: Reply) -> None:
        if not await self._publisher.may_publish(inflight.partition):
            return
        fixed, records = self._fix(inflight, event, reply)
        for model, tokens in reply.wasted:
            self._metrics.tokens.labels(model, "wasted").inc(tokens)
        inflight.beside = self._publishing
        self._publishing += 1
        try:
            ahead = await self._publisher.write_ahead(records, self._tables, inflight.partition)
            self.lines.leave(inflight)
            await ahead
            audited = None if reply.audit is None else await self._audit(inflight, event, reply.audit, reply.audit_reason or reply.given.reason)
            await self._send(inflight, fixed.record, fixed, audited)
        finally:
            self._publishing -= 1

    def _fix(self, inflight: Inflight, event: InteractionEvent, reply: Reply) -> tuple[Fixed, list[ChangelogRecord]]:
        """Fix the bytes and stage what they change: from here on the event has this answer and no other."""
        fixed = fix_response(inflight, event, reply.given, reply.rungs, reply.stamps, clock=self._clock, reserve_s=self._reserve.seconds(), limits=self._limits)
        records = self._store.stage(inflight, event, reply.state, fixed)
        inflight.staged = True
        inflight.disarm()
        return fixed, records

    async def _send(self, inflight: Inflight, record: KeptRecord, answered: Fixed | KeptAnswer, audited: Awaitable[None] | None = None) -> None:
        sent = await self._hand_over(inflight, record)
        if sent is not None:
            await self._finish(inflight, sent, answered, audited)

    async def _hand_over(self, inflight: Inflight, record: KeptRecord) -> Awaitable[None] | None:
        """Responses of one session go to the producer in offset order."""
        if inflight.before is not None:
            await inflight.before
        sent = await self._publisher.respond(record, inflight.partition)
        inflight.hand_on()
        return sent

    async def _finish(self, inflight: Inflight, sent: Awaitable[None], answered: Fixed | KeptAnswer, audited: Awaitable[None] | None = None) -> None:
        await sent
        inflight.answered = True
        match answered:
            case Fixed():
                self._record(inflight, answered)
            case KeptAnswer():
                self._metrics.redelivered.inc()
                self._count(answered.outcome, answered.reason)
            case _:
                assert_never(answered)
        if audited is not None:
            await audited
        inflight.partition.release(inflight.offset)

    async def _settle_batch(self, first: Inflight) -> None:
        """Stage many expired events, then wait once for all changelog writes and once for all responses."""
        batch: list[_Staged] = []
        ahead: list[Awaitable[None]] = []
        current: Inflight | None = first
        handled = 0
        while current is not None:
            handled += 1
            async with self.guarding(current):
                staged = await self._stage_expired(current, batch)
                if staged:
                    ahead.append(await self._publisher.write_ahead(staged, self._tables, current.partition))
            self.lines.leave(current)
            await _yield_each(LANE_CROWD, handled)
            full = handled >= self._limits.expired_batch or self._expired.empty()
            current = None if full else self._expired.get_nowait()
        await asyncio.gather(*ahead)
        await self._send_batch(batch)
        self._in_lane -= handled
        if self._in_lane == 0:
            self._lane_idle.set()

    async def _stage_expired(self, inflight: Inflight, batch: list[_Staged]) -> list[ChangelogRecord]:
        event = inflight.interaction
        if event is None or inflight.abandoned or not await self._publisher.may_publish(inflight.partition):
            inflight.hand_on()
            return []
        decision = self._decider.expired(inflight, event)
        match decision:
            case Undecodable():
                await self.dead_letter(inflight.source, inflight.partition, decision)
                inflight.hand_on()
                return []
            case Repeat():
                batch.append((inflight, kept_record(event, decision.answer), decision.answer))
                return []
            case Reply():
                fixed, records = self._fix(inflight, event, decision)
                batch.append((inflight, fixed.record, fixed))
                return records
            case _:
                assert_never(decision)

    async def _send_batch(self, batch: list[_Staged]) -> None:
        sent: list[tuple[Inflight, Fixed | KeptAnswer, Awaitable[None]]] = []
        for number, (inflight, record, answered) in enumerate(batch, 1):
            async with self.guarding(inflight):
                ending = await self._hand_over(inflight, record)
                if ending is not None:
                    sent.append((inflight, answered, ending))
            await _yield_each(LANE_CROWD, number)
        for number, (inflight, answered, ending) in enumerate(sent, 1):
            async with self.guarding(inflight):
                await self._finish(inflight, ending, answered)
            await _yield_each(LANE_CROWD, number)

    async def _audit(self, inflight: Inflight, event: InteractionEvent | None, action: AuditAction, reason: str | None) -> Awaitable[None]:
        tenant, session_id = inflight.session
        record = AuditRecord(
            at_ms=self._clock.wall_ms(),
            tenant=tenant,
            session_id=session_id,
            action=action,
            event_id=None if event is None else event.event_id,
            reason=reason,
            ref=None if event is None else event.ref,
        )
        return await self._publisher.audit(record, inflight.headers)

    def _count(self, outcome: str, reason: str | None) -> None:
        child = self._outcomes.get((outcome, reason))
        if child is None:  # looked up once: prometheus_client takes longer to find a child than to count with it
            child = self._outcomes[outcome, reason] = self._metrics.events.labels(outcome, reason or "none"), self._metrics.response.labels(outcome)
        child[0].inc()

    def _record(self, inflight: Inflight, fixed: Fixed) -> None:
        """The figures of one answered event; `publish` and the slack use the real acknowledgement."""
        metrics, response = self._metrics, fixed.response
        now = time.monotonic()
        publish = now - fixed.at
        if not inflight.is_past and not self._crowding.lags:  # a batch, or a burst, waits for all its writes: that says nothing about one publish
            self._reserve.note(alone(publish, max(inflight.beside, self._publishing - 1)))
        metrics.reserve.set(self._reserve.seconds())
        self._count(response.outcome, response.reason)
        for stage, seconds in fixed.stages.items():
            self._stages[stage].observe(seconds)
        self._stages["publish"].observe(publish)
        self._outcomes[response.outcome, response.reason][1].observe(response.latency_ms.total / 1000)
        slack = inflight.due - now
        metrics.slack.observe(slack)
        if slack < 0:
            metrics.missed.inc()
        if response.model is not None:
            usage, name = response.usage, response.model.name
            metrics.tokens.labels(name, "prompt").inc(max(0, usage.prompt_tokens - usage.cached_tokens))
            metrics.tokens.labels(name, "cached").inc(usage.cached_tokens)
            metrics.tokens.labels(name, "completion").inc(usage.completion_tokens)


class _Guard:
    """The edge of one event, as `async with`; a class, because the generator that would be shorter costs each event four times as much."""

    __slots__ = ("_inflight", "_settler")

    def __init__(self, settler: Settler, inflight: Inflight) -> None:
        self._settler = settler
        self._inflight = inflight

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, WriteError | StoreError):
            return False
        await self._settler.give_up_on(self._inflight, error)
        return True


async def _yield_each(crowd: int, number: int) -> None:
    """Give the loop back after every `crowd` items."""
    if number % crowd == 0:
        await asyncio.sleep(0)
