"""Spawns one engine process and owns its descriptors: socket, log pipe, exit; what is said over the socket is `client`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

JOIN_S = 5.0
"""How long a killed process may take to vanish; one in an uninterruptible disk wait can take longer and is then left to the kernel, with a log line."""

LINE_BYTES = 2048
"""Of one log line of a child; longer ones are cut, so that binary rubbish cannot fill the log."""

LINES_A_SECOND = 50
"""A child that prints in a loop is read on, so that it does not block, but what is above this is dropped and counted."""

_READ_BYTES = 1 << 16

log = logging.getLogger("answerby.engine")


class EngineProcess:
    """A spawned child with a socketpair to it. `fork` is never used alone: a child of a process with native threads may deadlock."""

    def __init__(self, label: str) -> None:
        """Start the process; must be called on the main thread of the loop, since the child dies with the thread that spawned it."""
        self._loop = asyncio.get_running_loop()
        self._label = label
        ours, theirs = socket.socketpair()
        log_read, log_write = os.pipe()
        with theirs:
            try:
                self._popen = subprocess.Popen(
                    [sys.executable, "-P", "-m", "agents.runtime.engine_process", str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=log_write,
                    stderr=log_write,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(),
                )
            except BaseException:
                ours.close()
                os.close(log_read)
                raise
            finally:
                os.close(log_write)
        ours.setblocking(False)
        os.set_blocking(log_read, False)
        self.socket = ours
        self.pid = self._popen.pid
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        self._log_fd = log_read
        self._lines = _LineCutter(label)
        self._loop.add_reader(self._pidfd, self._on_exit)
        self._loop.add_reader(self._log_fd, self._on_log)

    def kill(self) -> None:
        """SIGKILL, which also ends a stopped process; harmless when it is gone."""
        if not self._exited.done():
            self._popen.send_signal(signal.SIGKILL)

    def busy(self) -> bool:
        """Whether the kernel has it running, runnable or waiting for a disk, rather than asleep or stopped."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[:1] in ([b"R"], [b"D"])

    async def join(self, timeout_s: float) -> int | None:
        """Wait for the exit; its code (negative: the signal), or None when it still runs after `timeout_s`."""
        done, _ = await asyncio.wait([self._exited], timeout=timeout_s)
        return self._exited.result() if done else None

    def close(self) -> None:
        """Let go of every descriptor; call it after `join`. May be called again."""
        self.socket.close()
        for descriptor in (self._pidfd, self._log_fd):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
        self._on_log()
        for descriptor in (self._pidfd, self._log_fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._pidfd = self._log_fd = -1

    def _on_exit(self) -> None:
        code = self._popen.poll()
        if code is None:
            return
        self._loop.remove_reader(self._pidfd)
        if not self._exited.done():
            self._exited.set_result(code)

    def _on_log(self) -> None:
        if self._log_fd < 0:
            return
        try:
            data = os.read(self._log_fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._log_fd)
        self._lines.feed(data, self._loop.time())


class _LineCutter:
    """Turns a child's output into log lines, bounded in length and rate."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._rest = b""
        self._second = 0
        self._said = 0
        self._dropped = 0

    def feed(self, data: bytes, now: float) -> None:
        """Log the whole lines in `data`; with no data, what is left."""
        *lines, rest = (self._rest + data).split(b"\n")
        if not data or len(rest) > LINE_BYTES:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            if line.strip():
                self._log(line[:LINE_BYTES], int(now))

    def _log(self, line: bytes, second: int) -> None:
        if second != self._second:
            if self._dropped:
                log.warning("%s: %d lines dropped", self._label, self._dropped)
            self._second, self._said, self._dropped = second, 0, 0
        if self._said >= LINES_A_SECOND:
            self._dropped += 1
            return
        self._said += 1
        log.info("%s: %s", self._label, line.decode(errors="replace").rstrip())


def _environment() -> dict[str, str]:
    """Ours, with the folder our packages were imported from: the child must run the same code wherever the worker was started."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{inherited}" if inherited else root, "PYTHONUNBUFFERED": "1"}
