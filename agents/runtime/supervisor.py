"""The engine of one `[[models]]` entry as the worker holds it: replicas, each restarted with backoff; one process's life is `client`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from agents.runtime.ask import Ask
from agents.runtime.client import EngineClient
from agents.runtime.dispatch import Dispatch, Promise, Wanted
from agents.runtime.engine_process import replacement
from agents.runtime.scheduler import Refused
from agents.runtime.spec import EngineSpec
from schemas.cost import CostProfile
from schemas.errors import SetupError
from schemas.inference import Generate, Message, Ready, Step

State = Literal["starting", "ready", "restarting", "stopped"]

BACKOFF_FIRST_S = 0.5
"""After the first restart, which is immediate: a model that dies at every prompt must not take a core for its loading."""

BACKOFF_LONGEST_S = 10.0
"""A cause that has gone away (memory, a file put back) is found again within this and a load."""

SERVED_S = 3.0
"""So long ready and not silent, and the next death is a first one again, so that an engine which served is replaced at once. One that hangs or dies
as soon as it is asked is ready for less; in the worst case a core does nothing but load, for three seconds of service a load."""

STOP_GRACE_S = 0.5
"""For the step that runs to end and the process to leave by itself; a hung one is then killed."""

log = logging.getLogger("answerby.engine")


class EngineStatus(msgspec.Struct, frozen=True):
    """One replica, as `/readyz` and the metrics show it."""

    name: str
    replica: int
    model: str
    version: str
    pid: int | None
    state: State
    restarts: int
    rss_bytes: int
    major_faults: int
    running: int


class EngineHooks(Protocol):
    """Who wants to see what engines do; called on the worker's loop, must not block."""

    def on_step(self, status: EngineStatus, step: Step) -> None:
        """A step was reported."""

    def on_state(self, status: EngineStatus) -> None:
        """A replica changed its state."""

    def on_restart(self, status: EngineStatus, why: str) -> None:
        """A replica died or hung and is being replaced."""

    def on_promise(self, status: EngineStatus, promise: Promise) -> None:
        """An admitted request has what it needs; was it foreseen?"""

    def on_profile(self, status: EngineStatus, profile: CostProfile) -> None:
        """The engine has measured what its steps cost."""

    def on_step_error(self, status: EngineStatus, error: float) -> None:
        """How far, relatively, the last step was from what was foreseen."""


class NoHooks:
    """Nobody looks."""

    def on_step(self, status: EngineStatus, step: Step) -> None:
        """Ignore."""

    def on_state(self, status: EngineStatus) -> None:
        """Ignore."""

    def on_restart(self, status: EngineStatus, why: str) -> None:
        """Ignore."""

    def on_promise(self, status: EngineStatus, promise: Promise) -> None:
        """Ignore."""

    def on_profile(self, status: EngineStatus, profile: CostProfile) -> None:
        """Ignore."""

    def on_step_error(self, status: EngineStatus, error: float) -> None:
        """Ignore."""


class Backoff:
    """How long to wait before the next restart; pure, moments in monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0

    def next_delay(self, ready_s: float, silent_s: float = 0.0) -> float:
        """Seconds to wait, after a generation that was ready for `ready_s` (0 when it never was), of which it was silent for the last `silent_s`."""
        if ready_s - silent_s >= SERVED_S:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return float(min(BACKOFF_LONGEST_S, BACKOFF_FIRST_S * 2 ** min(self._failures - 2, 10)))


class Engine:
    """Every replica of one model. `start`, `ask`, `status`, `stop`; the worker never waits for an engine elsewhere."""

    def __init__(self, specs: Sequence[EngineSpec], hooks: EngineHooks | None = None, loads_on: Sequence[tuple[int, ...] | None] = ()) -> None:
        """`loads_on`: for each replica, as `cpus.Place` has it; all None when left out."""
        self._ids = itertools.count(1)
        self._replicas = [_Replica(spec, hooks or NoHooks(), cores) for spec, cores in zip(specs, loads_on or [None] * len(specs), strict=True)]
        self.model = specs[0].model
        self.cpus = frozenset(core for spec in specs for core in spec.cpus or ())
        """Cores that some replica is pinned to."""

    @property
    def state(self) -> State:
        """`ready` when any replica is."""
        states = [replica.state for replica in self._replicas]
        return "ready" if "ready" in states else states[0]

    @property
    def ready(self) -> bool:
        """Whether a request would reach a warm engine now."""
        return self.state == "ready"

    @property
    def silent(self) -> bool:
        """Whether every ready replica has given no sign of life for longer than a healthy one ever does; false without a ready one."""
        ready = [replica for replica in self._replicas if replica.state == "ready"]
        return bool(ready) and all(replica.dispatch.silent() for replica in ready)

    @property
    def restarts(self) -> int:
        """Processes replaced so far, of all replicas."""
        return sum(replica.restarts for replica in self._replicas)

    def forecast_s(self, messages: Sequence[Message], need: int) -> float:
        """Seconds within which some replica would likely have `need` tokens for a prompt; infinite when none could. No promise."""
        return min((replica.dispatch.forecast_s(messages, need) for replica in self._replicas if replica.state == "ready"), default=float("inf"))

    @property
    def open_requests(self) -> int:
        """Sent to an engine of any replica and not ended."""
        return sum(replica.open_requests for replica in self._replicas)

    @property
    def running_requests(self) -> int:
        """Offered requests that have a place in a batch."""
        return sum(replica.dispatch.scheduler.running for replica in self._replicas)

    @property
    def waiting_requests(self) -> int:
        """Offered requests that were admitted and wait for a place."""
        return sum(replica.dispatch.scheduler.waiting for replica in self._replicas)

    @property
    def price(self) -> float:
        """How many priorities' work is refused, in parts of one, on the replica that is pressed most: 0 is none, 9 all but the highest."""
        return max(replica.dispatch.scheduler.shares.price for replica in self._replicas)

    @property
    def priced_out(self) -> int:
        """Requests refused since the start because higher priorities needed the room; an offer to several replicas counts at each."""
        return sum(replica.dispatch.scheduler.shares.priced_out for replica in self._replicas)

    def status(self) -> tuple[EngineStatus, ...]:
        """Each replica, in order."""
        return tuple(replica.status() for replica in self._replicas)

    async def start(self) -> None:
        """Start every replica and wait until all are warm; bounded by start_ms.

        Raises:
            SetupError: one cannot serve; the text says why. All are stopped then. A later death is a restart instead.
        """
        refusals = [refusal for refusal in await asyncio.gather(*(replica.start() for replica in self._replicas)) if refusal]
        if refusals:
            await self.stop()
            text = f"model {self.model.name!r} cannot start: {refusals[0]}"
            raise SetupError(text)

    def ask(self, request: Generate) -> Ask:
        """Send `request` to the ready replica with the fewest open; its id is replaced by a new one. Without a ready one the ask has failed already."""
        request = msgspec.structs.replace(request, id=next(self._ids))
        ready = [replica for replica in self._replicas if replica.state == "ready"]
        return min(ready or self._replicas, key=lambda replica: replica.open_requests).ask(request)

    def offer(self, request: Generate, wanted: Wanted, *, affinity: int = 0) -> Ask | Refused:
        """Let the scheduler of a ready replica decide: first the one that `affinity` names, whose cache may know the session, then the others.

        Standby replicas come last in the list: they serve while one before them does not. One that gives no sign of life is asked after the others.
        """
        request = msgspec.structs.replace(request, id=next(self._ids))
        ready = [replica for replica in self._replicas if replica.state == "ready"][: self.model.replicas]
        refused: list[Refused] = []
        start = affinity % len(ready) if ready else 0
        for replica in sorted((*ready[start:], *ready[:start]), key=lambda replica: replica.dispatch.silent()):
            decision = replica.dispatch.offer(request, wanted)
            if not isinstance(decision, Refused):
                return decision
            refused.append(decision)
        return next((item for item in refused if item.reason == "overload"), refused[0]) if refused else Refused("overload", "no engine is ready")

    async def stop(self) -> None:
        """End every request, process and task of this engine; bounded, may be called again and before `start`."""
        await asyncio.gather(*(replica.stop() for replica in self._replicas))


class _Replica:
    """Keeps one engine process alive."""

    def __init__(self, spec: EngineSpec, hooks: EngineHooks, loads_on: tuple[int, ...] | None) -> None:
        self._spec = spec
        self._loads_on = loads_on
        self._hooks = hooks
        self._client: EngineClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._backoff = Backoff()
        self._restarts = 0
        self._state: State = "starting"
        self.dispatch = Dispatch(spec, self._ready_client, lambda promise: hooks.on_promise(self.status(), promise))

    @property
    def state(self) -> State:
        """A process that has just died is not ready, even before the task that replaces it has run."""
        dead = self._state == "ready" and (self._client is None or self._client.ready is None)
        return "restarting" if dead else self._state

    @property
    def restarts(self) -> int:
        return self._restarts

    @property
    def open_requests(self) -> int:
        return self._client.open_requests if self._client else 0

    def status(self) -> EngineStatus:
        client, files = self._client, self._spec.files
        alive = client is not None and client.pid is not None
        return EngineStatus(
            self._spec.model.name,
            self._spec.replica,
            files.name,
            files.version,
            client.pid if client else None,
            self.state,
            self._restarts,
            client.beat.rss_bytes if client and alive else 0,
            client.beat.major_faults if client and alive else 0,
            self.open_requests,
        )

    async def start(self) -> str | None:
        """The first generation; None when it is warm, else why it is not."""
        self._enter("starting")
        client = self._client = EngineClient(self._spec, self._on_step, self.dispatch.worst_step_s)
        said = await client.start()
        if isinstance(said, str):
            await client.stop(0)
            return said
        self._take_profile(said)
        self._enter("ready")
        self._task = asyncio.create_task(self._keep(client), name=f"engine-{self._spec.model.name}-{self._spec.replica}")
        return None

    def ask(self, request: Generate) -> Ask:
        if self._client is None:
            ask = Ask(request.id, lambda _: None)
            ask.fail("engine_unavailable", "the engine is not started")
            return ask
        return self._client.ask(request)

    async def stop(self) -> None:
        self._stopping.set()
        if self._client is not None:
            await self._client.stop(STOP_GRACE_S)
        self.dispatch.gone()
        if self._task is not None:
            await self._task
            self._task = None
        self._enter("stopped")

    async def _keep(self, client: EngineClient) -> None:
        """Replace each generation that ends, until `stop`."""
        loop = asyncio.get_running_loop()
        while True:
            since = loop.time()
            why = await client.over()
            ready_s, silent_s = loop.time() - since if self._state == "ready" else 0.0, client.silent_s()
            if self._stopping.is_set():
                return
            self._restarts += 1
            self._enter("restarting")
            log.warning("%s/%d: %s; a new process is started", self._spec.model.name, self._spec.replica, why)
            self._hooks.on_restart(self.status(), why)
            self.dispatch.gone()
            await client.stop(0)
            if await self._stops_within(self._backoff.next_delay(ready_s, silent_s)):
                return
            # One that did not get ready beside others' work within start_ms never would: the next one takes its full share.
            loads_on = self._loads_on if ready_s > 0 else None
            client = self._client = EngineClient(replacement(self._spec, loads_on), self._on_step, self.dispatch.worst_step_s)
            said = await client.start()
            if not isinstance(said, str):
                self._take_profile(said)
                self._enter("ready")

    async def _stops_within(self, delay_s: float) -> bool:
        if delay_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
        # Asked afresh: a stop that comes in the same turn of the loop as the time-out must not be followed by a new process.
        return self._stopping.is_set()

    def _enter(self, state: State) -> None:
        self._state = state
        self._hooks.on_state(self.status())

    def _take_profile(self, said: Ready) -> None:
        """What was measured holds for all later processes of this replica: they start without measuring again."""
        if said.profile is None:
            return
        self._spec = msgspec.structs.replace(self._spec, profile=said.profile, calibrate=False)
        self.dispatch.scheduler.cost.adopt(said.profile)
        self._hooks.on_profile(self.status(), said.profile)

    def _ready_client(self) -> EngineClient | None:
        return self._client if self.state == "ready" else None

    def _on_step(self, step: Step) -> None:
        error = self.dispatch.stepped(step)
        status = self.status()
        if error is not None:
            self._hooks.on_step_error(status, error)
        self._hooks.on_step(status, step)
