"""Faust's recovery of tables, with changelog records applied a fetch at a time; the watch over a recovery that stands still is `agents.recovery`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import structlog
from aiokafka.errors import KafkaError
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.types import TP
from mode import Service

from schemas.errors import SetupError
from streams.transport import find_next

if TYPE_CHECKING:
    from streams.app import WorkerApp

log = structlog.get_logger(__name__)

AT_ONCE = 200
"""Records applied in one piece: 1 to 2 ms of the loop, which answers `/readyz` and heartbeats meanwhile (law 4 allows 5)."""

LOOK_S = 0.25
"""How often a recovery is asked whether it is done, when no record says so: at worst it ends so much later."""

QUIET_S = 1.5
"""Without a record for so long, a changelog's end is looked at: its last offsets may hold none (a transaction's mark, a deletion that was compacted
away), and Faust would wait for them for ever. Shorter would ask a slow broker too often; longer, and `agents.recovery` begins it all again first."""


class Recovered:
    """One record of a changelog, in the shape in which Faust's stores and tables take events."""

    __slots__ = ("key", "offset", "partition", "timestamp", "tp", "value")

    def __init__(self, tp: TP, record: Any) -> None:
        self.tp = tp
        self.partition: int = record.partition
        self.offset: int = record.offset
        self.key: bytes = record.key
        self.value: bytes | None = record.value
        self.timestamp: float | None = None if record.timestamp is None else record.timestamp / 1000
        """Unix seconds; None when the record has none."""

    @property
    def message(self) -> Recovered:
        """Faust's events carry their record; this one is it."""
        return self


class BatchRecovery(Recovery):
    """Faust hands each changelog record through three queues and four tasks, 1,400 records a second; here a fetch goes into the store as a whole.

    What is asked of the broker, sought, paused and resumed, and in which order, is Faust's.
    """

    app: WorkerApp

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._moved = asyncio.Event()
        self._moved_at = monotonic()

    async def take(self, tp: TP, records: Sequence[Any], is_current: Callable[[], bool]) -> None:
        """Put what was fetched of one changelog partition into its table; stops when the partitions move meanwhile.

        Raises:
            SetupError: the store took no more.
        """
        for first in range(0, len(records), AT_ONCE):
            if not is_current():
                return
            offsets = self._offsets_of(tp)
            if offsets is None:
                return
            await self._apply(tp, records[first : first + AT_ONCE], offsets)
            await asyncio.sleep(0)
        self._moved.set()

    def _offsets_of(self, tp: TP) -> dict[TP, int | None] | None:
        if tp in self.active_tps:
            return cast("dict[TP, int | None]", self.active_offsets)
        return cast("dict[TP, int | None]", self.standby_offsets) if tp in self.standby_tps else None

    async def _apply(self, tp: TP, records: Sequence[Any], offsets: dict[TP, int | None]) -> None:
        seen = offsets.get(tp)
        fresh = [record for record in records if seen is None or record.offset > seen]
        if not fresh:
            return
        table = self.tp_to_table[tp]
        batch = [Recovered(tp, record) for record in fresh if record.key is not None]
        try:
            table.apply_changelog_batch(cast("Any", batch))
        except Exception as error:  # rocksdict raises bare exceptions for everything
            msg = f"{tp.topic} could not be put into its table ({error}): see that the disk of worker.data_dir has room, then start the worker again"
            raise SetupError(" ".join(msg.split())) from error
        for event in batch:
            await table.on_changelog_event(cast("Any", event))
        offsets[tp] = fresh[-1].offset
        self._moved_at = self._active_events_received_at[tp] = monotonic()

    def _set_recovery_started(self) -> None:
        super()._set_recovery_started()
        self.signal_recovery_end.clear()
        self._moved_at = monotonic()
        self._moved.set()

    @Service.task
    async def _slurp_changelogs(self) -> None:
        """In Faust's place: says when a recovery is done, whoever read the last record."""
        while not self.should_stop:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), LOOK_S)
            self._moved.clear()
            if self.in_recovery and self.need_recovery() and monotonic() - self._moved_at > QUIET_S:
                await self._pass_empty_ends()
            if self.in_recovery and not self.need_recovery():
                self._set_recovery_ended()
                self.signal_recovery_end.set()
            if not self.tables.standbys_ready and self._copies_are_complete():
                self.tables.on_standbys_ready()

    def _copies_are_complete(self) -> bool:
        return bool(self.standby_highwaters) and all((self.standby_offsets.get(tp) or 0) >= end for tp, end in self.standby_highwaters.items())

    async def _pass_empty_ends(self) -> None:
        """A changelog whose last offsets hold no record is complete without them; a fresh look tells that from records that were not delivered."""
        self._moved_at = monotonic()
        generation = self._generation_id
        for tp, left in self.active_remaining().items():
            read, end = self.active_offsets[tp], self.active_highwaters[tp]
            if left <= 0 or read is None:
                continue
            try:
                _, is_record = await find_next(self.app.client, tp, read + 1)
            except (KafkaError, TimeoutError) as error:
                log.warning("the end of a changelog could not be looked at, will try again", topic=tp.topic, error=type(error).__name__)
                return
            if generation != self._generation_id or self.active_offsets.get(tp) != read:
                return
            if not is_record:
                log.info("a changelog ends without records", topic=tp.topic, partition=tp.partition, offsets=left)
                self.active_offsets[tp] = end


class AnswerTables(TableManager):
    """Faust's tables with our recovery, ready at once."""

    @property
    def recovery(self) -> BatchRecovery:
        """The one of this application."""
        if self._recovery is None:
            self._recovery = BatchRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return cast("BatchRecovery", self._recovery)

    async def on_start(self) -> None:
        """Faust waits a second here for tables that are made late; ours are made before anything starts."""
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()
