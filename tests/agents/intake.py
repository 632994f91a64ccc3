"""The worker's intake without Kafka: the real parts from bytes to decision, over tables and a publisher that stay in memory and can be held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from agents.crowding import Crowding
from agents.deadlines import FixedReserve
from agents.decide import Decider
from agents.feedback import Evictor, FeedbackDesk
from agents.ladder import Budget, Declined, Given, Question, RungProtocol
from agents.respond import Responder
from agents.scenarios import RungsOf, plan_scenarios
from agents.settle import Settler
from agents.store import SessionStore
from schemas.audit import AuditRecord
from schemas.dead_letters import Undecodable
from schemas.deadline import SystemClock
from schemas.reviews import Review
from schemas.session import TableName
from schemas.settings import Settings
from streams.metrics import Metrics
from streams.partitions import Partition, PartitionBoard
from streams.publish import KeptRecord
from streams.tables import ChangelogRecord

RESERVE_MS = 20.0


class HeldTables:
    """Tables as `streams.tables` has them, in a plain dict."""

    def __init__(self) -> None:
        self.values: dict[tuple[TableName, bytes], bytes] = {}

    def get(self, table: TableName, key: bytes, _event: Any) -> bytes | None:
        """As the real one."""
        return self.values.get((table, key))

    def stage(self, table: TableName, key: bytes, value: bytes | None, event: Any) -> ChangelogRecord:
        """As the real one."""
        if value is None:
            self.values.pop((table, key), None)
        else:
            self.values[table, key] = value
        return ChangelogRecord(table, f"{table}-changelog", event.message.partition, key, value)


class HeldPublisher:
    """Takes what is written at once, and acknowledges changelog records while `open` is set."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.said: list[dict[str, Any]] = []
        """Responses, in the order in which the producer was given them."""
        self.dead: list[tuple[int, Undecodable]] = []
        self.audits: list[AuditRecord] = []

    async def may_publish(self, partition: Partition) -> bool:
        """As the real one with a fresh heartbeat."""
        return partition.owned

    async def write_ahead(self, _records: Sequence[ChangelogRecord], _tables: Any, _partition: Partition) -> Awaitable[None]:
        """Acknowledged when `open` is set."""

        async def acknowledged() -> None:
            await self.open.wait()

        return acknowledged()

    async def respond(self, record: KeptRecord, partition: Partition) -> Awaitable[None] | None:
        """Acknowledged at the next turn of the loop."""
        if not partition.owned:
            return None
        self.said.append((msgspec.json if record.value[:1] == b"{" else msgspec.msgpack).decode(record.value))
        return asyncio.sleep(0)

    async def dead_letter(self, message: Any, verdict: Undecodable) -> None:
        """Kept with its offset."""
        self.dead.append((message.offset, verdict))

    async def audit(self, record: AuditRecord, _carried: Any = ()) -> Awaitable[None]:
        """Acknowledged at the next turn of the loop."""
        self.audits.append(record)
        return asyncio.sleep(0)


class Says:
    """A rung that answers each message once `open` is set, or is interrupted."""

    name = "main"
    label = "main"
    floor_s = 0.0

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing to let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.asked: list[Question] = []

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """The text of the question."""
        self.asked.append(question)
        waiting = asyncio.ensure_future(self.open.wait())
        await asyncio.wait((waiting, budget.stop), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if budget.stop.done():
            return Declined("cut", "interrupted", "deadline")
        return Given("model", question.messages[-1].text, finish_reason="stop")


class Intake:
    """One partition, held; `feed` is what Faust's agent would be given."""

    def __init__(
        self, settings: Settings | None = None, rung: RungProtocol | None = None, *, rungs_of: RungsOf | None = None, caches: tuple[Evictor, ...] = ()
    ) -> None:
        self.settings = settings or Settings()
        self.tables, self.publisher, self.metrics = HeldTables(), HeldPublisher(), Metrics()
        self.rung = Says()
        self.board = PartitionBoard(session_timeout_s=6.0)
        self.partition = self.board.begin(0, 0)
        self.crashes: list[BaseException] = []
        tables: Any = self.tables
        publisher: Any = self.publisher
        self.clock, self.reserve = SystemClock(), FixedReserve(RESERVE_MS)
        clock = self.clock
        store = SessionStore(tables, self.settings.session, self.settings.limits)
        main = rung or self.rung
        self.reviews: list[Review] = []
        scenarios = plan_scenarios(self.settings, rungs_of or (lambda names: {"main": main} if "main" in names else {}))
        self.crowding = Crowding(self.settings.limits.behind_ms / 1000)
        self.decider = Decider(self.settings, store, scenarios, FeedbackDesk(caches, self._review), clock, self.crowding)
        self.settler = Settler(
            publisher=publisher,
            tables=tables,
            store=store,
            decider=self.decider,
            metrics=self.metrics,
            reserve=self.reserve,
            crowding=self.crowding,
            clock=clock,
            limits=self.settings.limits,
        )
        self.responder = Responder(
            self.settings,
            board=self.board,
            metrics=self.metrics,
            reserve=self.reserve,
            decider=self.decider,
            settler=self.settler,
            crowding=self.crowding,
            seek=self._seek,
            on_crash=self.crashes.append,
            clock=clock,
        )
        self._offset = 0
        self._lane: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Intake:
        self._lane = asyncio.create_task(self._run_lane())
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.responder.stop()
        if self._lane is not None:
            self._lane.cancel()
            await asyncio.wait([self._lane])

    def source(self, key: bytes | None = None, value: bytes | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> Any:
        """The next record of the partition."""
        message = SimpleNamespace(
            topic="interactions", partition=0, offset=self._offset, key=key, value=value, headers=headers, timestamp=time.time(), time_in=time.monotonic()
        )
        self._offset += 1
        return SimpleNamespace(message=message)

    def feed(self, event_id: str, *, session: str = "s", late: bool = False, **fields: Any) -> int:
        """One event, taken; its offset. `late` ones had expired before they arrived."""
        event = {"event_id": event_id, "session_id": session, "text": event_id, "deadline_ms": -1.0 if late else 30_000.0, **fields}
        source = self.source(value=msgspec.msgpack.encode(event))
        self.responder.accept(source)
        return int(source.message.offset)

    async def until_released(self) -> None:
        """Every record that was taken has its end."""
        async with asyncio.timeout(20):
            while self.partition.tracker.running and not self.crashes:  # noqa: ASYNC110 -- a tracker is bookkeeping and sets no event
                await asyncio.sleep(0.001)

    @property
    def said(self) -> list[str]:
        """Event ids, in the order in which their responses left."""
        return [response["event_id"] for response in self.publisher.said]

    async def _run_lane(self) -> None:
        try:
            await self.settler.run_lane()
        except Exception as error:  # as the worker: a lane that ends ends everything
            self.crashes.append(error)

    def _review(self, review: Review) -> bool:
        self.reviews.append(review)
        return True

    async def _seek(self, _partition: int, _offset: int) -> None:
        """Nothing is read again here."""


async def turns(count: int = 20) -> None:
    """Let the loop run what is ready."""
    for _ in range(count):
        await asyncio.sleep(0)
