"""Child processes of `up` and `demo`: our own commands, each with one owner, tied to our life; the broker's process is `streams.broker.process`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from schemas.errors import SetupError
from streams.broker import child as lifeline

_KILL_S = 5.0
"""After SIGKILL only a disk that hangs keeps a process."""

_ASK_S, _POLL_S = 2.0, 0.1
"""A worker that is loading a model answers late, but it answers; and nobody sees a tenth of a second."""

_LAST_LINES = 12
_LAST_BYTES = 8192
"""Of a child's log, shown when it failed: enough for its error and what led there."""


class Child:
    """One of our commands as a child process: start, wait, stop, kill, each bounded; it is killed by the kernel should we die first."""

    def __init__(self, arguments: tuple[str, ...], log: Path, environ: Mapping[str, str]) -> None:
        self._arguments, self._log, self._environ = arguments, log, dict(environ)
        self._process: asyncio.subprocess.Process | None = None
        self._log_from = 0

    @property
    def name(self) -> str:
        """The command's name."""
        return self._arguments[0]

    @property
    def pid(self) -> int | None:
        """Its process id; None before the start."""
        return self._process.pid if self._process is not None else None

    @property
    def returncode(self) -> int | None:
        """None while it runs or has not been started; negative for a signal."""
        return self._process.returncode if self._process is not None else None

    async def start(self) -> Self:
        """Spawn it, its output into the log. To be called from the main thread: the kernel ties it to the thread that forks.

        Raises:
            SetupError: it could not be spawned.
        """
        # -P keeps a folder called "agents" where the user happens to be from being taken for ours.
        command = (sys.executable, "-P", "-m", "agents.cli", *self._arguments)
        try:
            with self._log.open("ab") as out:
                self._log_from = out.tell()
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(lifeline.__file__), str(os.getpid()), "0", "-"),
                    *command,
                    env=self._environ,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # the terminal's Ctrl-C is for us; we then stop in order
                )
        except OSError as error:
            msg = f"`answerby {self.name}` could not be started ({error}): free some memory or disk and try again"
            raise SetupError(msg) from error
        return self

    async def wait(self) -> int:
        """Wait until it has ended; its exit code."""
        return await self._process.wait() if self._process is not None else 0

    async def stop(self, grace_s: float) -> None:
        """Ask it to stop and kill it when it has not after `grace_s` seconds. Safe to call twice."""
        if not await self._end(signal.SIGTERM, grace_s) and not await self._end(signal.SIGKILL, _KILL_S):
            msg = f"`answerby {self.name}` (pid {self.pid}) cannot be killed: its disk hangs, see `dmesg`"
            raise SetupError(msg)

    def bound_log(self, max_bytes: int) -> None:
        """Empty its log when it is longer, after a copy beside it (`.1`); it goes on writing at the start, since it appends.

        Raises:
            SetupError: the disk takes no copy.
        """
        try:
            if self._log.stat().st_size <= max_bytes:
                return
            shutil.copyfile(self._log, self._log.with_name(f"{self._log.name}.1"))
            os.truncate(self._log, 0)
        except OSError as error:
            msg = f"{self._log} cannot be kept small ({error}): free some disk, or move ANSWERBY_HOME"
            raise SetupError(msg) from error
        self._log_from = 0

    def last_words(self) -> str:
        """The last lines of its log since its start, for the operator; empty when it said nothing."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(max(self._log_from, self._log.stat().st_size - _LAST_BYTES))
                text = stream.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-_LAST_LINES:])

    def failure(self) -> SetupError:
        """What to raise when it ended by itself: its own error line when it left one, else how it ended."""
        said = [line.removeprefix("error: ") for line in self.last_words().splitlines() if line.startswith("error: ")]
        if said:
            return SetupError(f"the {self.name} ended: {said[-1]}")
        code = self.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return SetupError(
            f"the {self.name} ended by itself ({how}): its last lines are above" if self.last_words() else f"the {self.name} ended by itself ({how})"
        )

    async def _end(self, number: signal.Signals, within_s: float) -> bool:
        if self._process is None or self._process.returncode is not None:
            return True
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, SIGTERM ends the work as Ctrl-C does: clean-up runs, then KeyboardInterrupt is raised; also where a shell started us with Ctrl-C ignored."""

    def as_interrupt(_number: int, _frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler), signal.SIGTERM: signal.signal(signal.SIGTERM, as_interrupt)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def await_ready(child: Child, url: str, tell: Callable[[str], None], within_s: float) -> dict[str, Any]:
    """Wait until the worker behind `url` says that it is ready; `tell` hears what it is waiting for, once a change. Returns what it said.

    Raises:
        SetupError: it ended, or was not ready within `within_s` seconds.
    """
    give_up, told = time.monotonic() + within_s, ""
    while True:
        if child.returncode is not None:
            raise child.failure()
        said = await fetch_readiness(url)
        if said is not None and said["ready"]:
            return said
        waiting_for = _describe_start(said or {})
        if waiting_for != told:
            told = waiting_for
            tell(waiting_for)
        if time.monotonic() >= give_up:
            msg = f"the {child.name} was not ready within {within_s:.0f} s (last: {told}): the machine is overloaded, or see its log"
            raise SetupError(msg)
        await asyncio.sleep(_POLL_S)


async def fetch_readiness(url: str) -> dict[str, Any] | None:
    """What a worker's /readyz says, with `ready` for its status code; None when it does not answer."""
    import httpx

    try:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=_ASK_S) as client:  # plain HTTP: no certificates to load
            answer = await client.get(f"{url}/readyz")
            return {**answer.json(), "ready": answer.status_code == httpx.codes.OK}
    except (httpx.HTTPError, ValueError):
        return None


def _describe_start(said: Mapping[str, Any]) -> str:
    if not said:
        return "starting"
    cold = [engine["model"] for engine in said.get("engines", ()) if engine.get("state") != "ready"]
    return f"loading and warming up {cold[0]}" if cold else "taking its partitions"
