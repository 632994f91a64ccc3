"""The one owner of a worker's memory beyond its conversations: persons' facts, their topic, and what erases; each part is a module beside this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from agents.memory.expiry import Expiry
from agents.memory.persons import Persons
from schemas.settings_facts import Facts as FactsSettings
from streams.global_table import GlobalTable
from streams.ledger import TABLES

if TYPE_CHECKING:
    from agents.store import SessionStore
    from schemas.deadline import Clock
    from schemas.settings import Settings
    from streams.metrics import Metrics
    from streams.partitions import PartitionBoard
    from streams.publish import Publisher
    from streams.tables import TableSet
    from streams.topics import Topics


class Keeper:
    """Started after the publisher, stopped before it; `run` beside the rest."""

    def __init__(self, settings: Settings, topics: Topics, facts: FactsSettings, *, metrics: Metrics, on_forget: Callable[[], None]) -> None:
        """`on_forget` is told when a person is forgotten anywhere, and empties this worker's caches."""
        self._settings = settings
        self._metrics = metrics
        self._on_forget = on_forget
        self.persons = Persons(topics.persons, settings.memory, facts, self._forget)
        self._table = GlobalTable(settings, topics.persons, self.persons.take)
        self._expiry: Expiry | None = None
        self._tables: TableSet | None = None
        self._board: PartitionBoard | None = None

    def watch(self, *, tables: TableSet, store: SessionStore, publisher: Publisher, board: PartitionBoard, clock: Clock, recovered: Callable[[], bool]) -> None:
        """What there is to erase."""
        self._tables, self._board = tables, board
        self._expiry = Expiry(
            tables=tables,
            store=store,
            persons=self.persons,
            publisher=publisher,
            board=board,
            settings=self._settings.memory,
            clock=clock,
            recovered=recovered,
            on_erase=lambda why: self._metrics.erased.labels(why).inc(),
        )

    async def start(self) -> None:
        """Read what is known of persons, for at most `memory.load_s`. Raises KafkaError."""
        await self._table.start(self._settings.memory.load_s)

    async def run(self) -> None:
        """Erase until cancelled."""
        if self._expiry is not None:
            await self._expiry.run()

    async def stop(self) -> None:
        """Disconnect; at most about two seconds."""
        await self._table.stop()

    def tick(self) -> None:
        """Set the gauges."""
        if self._tables is None or self._board is None:
            return
        ledger, numbers, metrics = self._tables.ledger, self._board.numbers(), self._metrics
        for table in TABLES:
            metrics.table_entries.labels(table).set(ledger.entries(table, numbers))
            metrics.table_bytes.labels(table).set(ledger.size(table, numbers))
        metrics.table_entries.labels("persons").set(len(self.persons))
        metrics.table_bytes.labels("persons").set(self.persons.bytes)
        metrics.sessions.set(ledger.sessions(numbers))

    def _forget(self) -> None:
        """A person was forgotten anywhere, and their sessions' deletions are in the changelogs by now."""
        if not self._table.loaded:
            return  # of before our start: the caches are empty, and the files were cleaned by whoever had them
        self._on_forget()
        if self._expiry is not None:
            self._expiry.scrub()
