"""One worker process: everything wired together, started in order, watched, and stopped in reverse."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Awaitable
from typing import Any

import structlog

from agents.crowding import Cores, Crowding
from agents.deadlines import reserve_for
from agents.decide import Decider
from agents.engines import build_engines, start_engines
from agents.feedback import FeedbackDesk
from agents.memory.keeper import Keeper
from agents.recovery import RecoveryWatch
from agents.respond import Responder
from agents.rungs import Rungs
from agents.runtime.memory import process_figures
from agents.scenarios import plan_scenarios
from agents.settle import Settler
from agents.store import SessionStore
from schemas.deadline import SystemClock
from schemas.errors import AnswerbyError, SetupError
from schemas.session import TableName
from schemas.settings import Settings
from streams.app import WorkerApp, build_app, install, make_data_dir
from streams.data_dir import DataDir, check_data_dir
from streams.http import StatusServer
from streams.metrics import Metrics
from streams.partitions import PartitionBoard
from streams.publish import Publisher
from streams.reviews import ReviewWriter
from streams.security import client_options
from streams.tables import TableSet
from streams.topic_admin import ensure_topics
from streams.topics import Topics

log = structlog.get_logger(__name__)

TICK_S = 0.25
"""How often gauges are set, loop lag is measured and stalled partitions are looked for."""

STALL_S = 2.0
"""A partition with records to read and none taken for so long is read again from where it stands: delivery has lost its tail."""

SPLIT_LOG_S = 60.0
"""Sessions on two partitions come in numbers, from one wrong producer: one line a minute names one of them, the metric counts all."""

APP_STOP_S = 10.0
"""Faust's own stop: leaving the group and closing tables. Longer, and the process leaves without it."""

PARTS_STOP_S = 10.0
"""A producer whose broker is away waits for it for ever; what it still holds was not committed. Engines are killed sooner than this."""


class Worker:
    """Owns every part of a worker; `run` returns when it was stopped, and raises when it could not go on."""

    def __init__(self, settings: Settings, *, rebuild_state: bool = False) -> None:
        self._settings = settings
        self._rebuild_state = rebuild_state
        self._data = DataDir(make_data_dir(settings)) if settings.worker.store == "rocksdb" else None
        self._metrics = metrics = Metrics()
        clock = SystemClock()
        topics = Topics.of(settings)
        self._board = board = PartitionBoard(session_timeout_s=settings.worker.session_timeout_ms / 1000)
        self._engines, placement = build_engines(settings, metrics)
        self._cpus = placement.worker
        self._cores: Cores | None = None
        self._app: WorkerApp = build_app(settings, topics, board)
        self._changelogs: dict[TableName, str] = {"sessions": topics.sessions_changelog, "answers": topics.answers_changelog}
        stall_s = settings.worker.store_stall_ms / 1000
        tables = TableSet(self._app, self._changelogs, partitions=settings.kafka.partitions, on_stall=self._on_stall, stall_s=stall_s)
        self._rungs = Rungs(settings, self._engines, metrics.ladder, clock)
        self._keeper = keeper = Keeper(settings, topics, settings.facts, metrics=metrics, on_forget=self._rungs.forget)
        store = SessionStore(tables, settings.session, settings.limits, keeper.persons, on_trim=metrics.trimmed.inc)
        reserve = reserve_for(settings.deadline)
        self._publisher = Publisher(settings, topics, board)
        keeper.watch(tables=tables, store=store, publisher=self._publisher, board=board, clock=clock, recovered=lambda: self._app.recovered)
        self._reviews = ReviewWriter(settings, metrics.ladder.observe_review)
        scenarios = plan_scenarios(settings, self._rungs.of, insurance=self._rungs.insurance, on_rung=metrics.ladder.observe_rung)
        self._crowding = Crowding(settings.limits.behind_ms / 1000)
        decider = Decider(settings, store, scenarios, FeedbackDesk(self._rungs.evictors, self._reviews.offer), clock, self._crowding)
        self._settler = Settler(
            publisher=self._publisher,
            tables=tables,
            store=store,
            decider=decider,
            metrics=metrics,
            reserve=reserve,
            crowding=self._crowding,
            clock=clock,
            limits=settings.limits,
        )
        self._responder = Responder(
            settings,
            board=board,
            metrics=metrics,
            reserve=reserve,
            decider=decider,
            settler=self._settler,
            crowding=self._crowding,
            seek=self._app.seek_back,
            on_crash=self._crash,
            clock=clock,
        )
        self._app.ownership = _Handover(self._responder, settings.worker.handover_ms / 1000)
        install(self._app, self._responder.run, partitions=settings.kafka.partitions)
        worker = settings.worker
        self._server = StatusServer(worker.metrics_host, worker.metrics_port, metrics, health=self._health, readiness=self._readiness)
        self._crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._priced_out: dict[str, int] = {}
        self._began = time.monotonic()
        self._recovery = RecoveryWatch(self._app, metrics, give_up_s=worker.recovery_stall_ms / 1000, on_crash=self._crash)
        self._split_told = -SPLIT_LOG_S
        board.on_split = self._on_split

    async def run(self) -> None:
        """Start, serve until SIGTERM or SIGINT, stop within the grace.

        Raises:
            AnswerbyError: something outside is not ready, or Kafka was lost; the text says what to do.
        """
        self._take_signals()
        background: list[asyncio.Task[None]] = []
        try:
            await self._start(background)
            await self._serve()
        finally:
            await self._stop(background)

    async def _start(self, background: list[asyncio.Task[None]]) -> None:
        if self._cpus is not None:
            self._cores = Cores(self._cpus)
        await self._server.start()
        log.info("status port", host=self._settings.worker.metrics_host, port=self._server.port)
        await self._unless_stopped(self._require_topics())
        if self._data is not None:
            await self._unless_stopped(self._require_own_tables(self._data))
        if self._stopping.is_set():
            return
        await self._rungs.start()
        await self._unless_stopped(self._load_and_connect())
        if self._stopping.is_set():
            return
        background.append(asyncio.create_task(self._watched(self._keeper.run()), name="erase"))
        background.append(asyncio.create_task(self._watched(self._settler.run_lane()), name="expired-lane"))
        background.append(asyncio.create_task(self._watched(self._tick()), name="tick"))
        background.append(asyncio.create_task(self._watched(self._run_app()), name="faust"))
        gc.collect()
        gc.freeze()
        log.info("worker started", port=self._server.port, pid=os.getpid(), cpus=self._cpus)

    async def _load_and_connect(self) -> None:
        """What takes no partitions yet waits for the broker while the engines load."""
        connecting = asyncio.ensure_future(self._connect())
        try:
            await start_engines(self._engines)
            await connecting
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    async def _connect(self) -> None:
        await asyncio.gather(self._publisher.start(), self._reviews.start())
        await self._keeper.start()

    async def _require_topics(self) -> None:
        report = await ensure_topics(
            self._settings, waiting=lambda seconds, bootstrap: log.info("no broker answers yet", bootstrap=bootstrap, seconds=round(seconds))
        )
        for warning in report.warnings:
            log.warning("topic", problem=warning)
        if not report.is_fit:
            raise SetupError(report.problem)

    async def _require_own_tables(self, data: DataDir) -> None:
        """Before Faust opens them: a store that is not ours would be answered from."""
        data.claim()
        if self._rebuild_state:
            await asyncio.to_thread(data.clear)
        await check_data_dir(
            data, client_options(self._settings.kafka), self._changelogs, app=self._settings.app.id, topic_prefix=self._settings.kafka.topic_prefix
        )

    async def _serve(self) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((stopping, self._crashed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self._crashed.done() and not self._stopping.is_set():
            raise _as_error(self._crashed.result())

    async def _stop(self, background: list[asyncio.Task[None]]) -> None:
        """In reverse, each bounded: events first, then Kafka, then engines."""
        self._stopping.set()
        if background and not self._crashed.done():
            await self._responder.drain(self._settings.worker.stop_ms / 1000)
        if background:
            await self._stop_app()
        await self._responder.stop()
        for task in background:
            task.cancel()
        if background:
            await asyncio.wait(background, timeout=1.0)
        parts = asyncio.gather(
            *(engine.stop() for engine in self._engines), self._reviews.stop(), self._keeper.stop(), self._publisher.stop(), return_exceptions=True
        )
        try:
            await asyncio.wait_for(parts, PARTS_STOP_S)
        except TimeoutError:
            log.warning("the broker took not all in time; what was not committed is answered by the next owner")
        await self._rungs.stop()
        await self._server.stop()
        if self._data is not None:
            self._data.release()
        log.info("worker stopped")

    async def _run_app(self) -> None:
        await self._app.start()
        await self._app.wait_until_stopped()
        if not self._stopping.is_set():
            self._crash(self._app.why_stopped)

    async def _stop_app(self) -> None:
        try:
            await asyncio.wait_for(self._app.stop(), APP_STOP_S)
        except TimeoutError:
            log.warning("Kafka's group was not left in time; its partitions move after the session time-out")
        except Exception as error:  # the process ends anyway: a library's trouble on the way out must not keep the rest from stopping
            log.warning("Faust did not stop cleanly", error=repr(error))

    async def _unless_stopped(self, work: Awaitable[Any]) -> None:
        """Wait for a part of the start, or for a signal that makes it pointless."""
        doing = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                await doing
        finally:
            stopping.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait((doing,), timeout=1.0)
            if doing.done() and not doing.cancelled():
                doing.exception()  # seen, or asyncio complains of it at exit

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._crash(error)

    async def _tick(self) -> None:
        metrics = self._metrics
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            metrics.loop_lag.observe(max(0.0, time.monotonic() - due))
            self._rungs.tick()
            if self._cores is not None and self._settings.worker.cpus is None:
                self._cores.follow(crowded=self._crowding.behind_s > 0)
            metrics.in_flight.set(self._responder.in_flight)
            metrics.running.set(sum(engine.running_requests for engine in self._engines))
            metrics.waiting.set(sum(engine.waiting_requests for engine in self._engines))
            self._export_prices()
            self._keeper.tick()
            metrics.resident.set(process_figures().rss_bytes)
            await self._reread_stalled()
            self._recovery.tick()

    async def _reread_stalled(self) -> None:
        """A partition that has more and gives nothing is looked into, unless it is we who do not take."""
        if self._responder.full or not self._app.recovered:
            return
        now = time.monotonic()
        for partition in tuple(self._board):
            behind = self._app.unread(partition.number, partition.tracker.expected)
            if behind <= 0 or now - partition.last_progress < STALL_S:
                continue
            partition.last_progress = now
            if await self._app.mend(partition):
                self._metrics.seeks.inc()
                log.warning("records were not delivered, reading again", partition=partition.number, offset=partition.tracker.expected, behind=behind)

    def _export_prices(self) -> None:
        for engine in self._engines:
            name = engine.model.name
            self._metrics.price.labels(name).set(engine.price)
            self._metrics.priced_out.labels(name).inc(engine.priced_out - self._priced_out.get(name, 0))
            self._priced_out[name] = engine.priced_out

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)

    def _on_stall(self, seconds: float) -> None:
        self._metrics.store_stalls.inc()
        log.warning("a table access was slow", ms=round(seconds * 1000, 1))

    def _on_split(self, session: tuple[str, str], before: int, now: int) -> None:
        self._metrics.split_sessions.inc()
        if time.monotonic() - self._split_told >= SPLIT_LOG_S:
            self._split_told = time.monotonic()
            tenant, session_id = session
            log.warning(
                "a session came on another partition: producers disagree on how to partition", tenant=tenant, session=session_id, before=before, now=now
            )

    def _crash(self, error: BaseException) -> None:
        if not self._crashed.done():
            self._crashed.set_result(error)

    def _health(self) -> dict[str, Any]:
        return {"status": "ok", "pid": os.getpid(), "uptime_s": round(time.monotonic() - self._began, 1)}

    def _readiness(self) -> tuple[bool, dict[str, Any]]:
        partitions = self._board.numbers()
        recovered = self._app.recovered and bool(partitions)
        warm = any(engine.ready for engine in self._engines) or not self._engines
        ready = recovered and warm and not self._stopping.is_set()
        engines = [
            {
                "name": status.name,
                "replica": status.replica,
                "model": status.model,
                "version": status.version,
                "pid": status.pid,
                "state": status.state,
                "restarts": status.restarts,
            }
            for engine in self._engines
            for status in engine.status()
        ]
        recovery = {"recovery": "done" if recovered else "running", **{f"recovery_{name}": value for name, value in self._recovery.status().items()}}
        body = {"ready": ready, "engines": engines, "partitions": list(partitions), **recovery}
        return ready, body


class _Handover:
    """What the intake does when partitions come and go."""

    def __init__(self, responder: Responder, seconds: float) -> None:
        self._responder = responder
        self._seconds = seconds

    async def give_up(self, partitions: frozenset[int]) -> None:
        """Finish what can be finished before the partitions go."""
        if partitions:
            await self._responder.drain(self._seconds)

    def take_over(self, partitions: frozenset[int]) -> None:
        """Take records again."""
        self._responder.resume()


def _as_error(error: BaseException) -> AnswerbyError:
    if isinstance(error, AnswerbyError):
        return error
    log.error("the worker cannot go on", error=repr(error), exc_info=error)
    what = f"{type(error).__name__}: {str(error)[:200]}"
    return SetupError(f"the worker cannot go on ({what}): see the log above, then start it again; what it had not committed is answered then")
