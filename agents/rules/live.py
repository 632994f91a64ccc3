"""Rules that follow their files while the worker runs: looked at off the loop, checked, swapped whole; reading them once is `files`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from agents.rules.apart import run_apart, start_apart
from agents.rules.courteous import courtesy, let_go
from agents.rules.files import ReadingStopped, load_rules, read_rules
from agents.rules.index import RuleSet
from agents.toml_files import MAX_FILE_BYTES, open_regular
from schemas.settings_ladder import Rules

log = structlog.get_logger(__name__)

OnReload: TypeAlias = Callable[[bool, int, str | None], None]
"""Told on the event loop of every change that was looked at: whether it is in force, how many rules are, and what is wrong with it."""

YOUNG_S = 2.0
"""A file changed more recently is read again even when its time and size are as before: two changes may fall into one tick of its clock."""

STOP_S = 5.0
"""For the look that is under way when the worker stops: it ends between two rules, but not while a file is parsed, or a disk does not answer. What takes
longer is left behind, changes nothing any more, and does not keep the process."""


class _Seen(msgspec.Struct, frozen=True):
    """How the files looked: their times and sizes, their contents, and when that was."""

    marks: tuple[tuple[int, int, int] | None, ...]
    digest: bytes
    at_s: float


class LiveRules:
    """The rules in force. `current` never waits, and changes between two events only."""

    def __init__(self, settings: Rules, *, on_reload: OnReload | None = None) -> None:
        """Read everything at once.

        Raises:
            ConfigError: a file or a rule is wrong: a start with wrong rules is no start.
        """
        self._settings = settings
        self._on_reload = on_reload or (lambda _ok, _rules, _problem: None)
        self._files = tuple(Path(name) for name in settings.files)
        self._seen = _look(self._files)
        self._current = load_rules(settings)
        self._task: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._look: concurrent.futures.Future[tuple[_Seen, RuleSet | str | None]] | None = None

    @property
    def current(self) -> RuleSet:
        """The set in force; keep it for one match only."""
        return self._current

    async def start(self) -> None:
        """Follow the files from now on."""
        if self._files and self._task is None:
            self._stop = threading.Event()
            self._task = asyncio.create_task(self._follow(), name="rules-follow")

    async def stop(self) -> None:
        """Follow them no more; the rules stay in force."""
        task, self._task = self._task, None
        if task is not None:
            self._stop.set()
            task.cancel()
            looks = () if self._look is None else (asyncio.wrap_future(self._look),)
            await asyncio.wait((task, *looks), timeout=STOP_S)
            for look in looks:
                look.cancel() or look.exception()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reload_s)
            try:
                await self.look()
            except Exception:
                log.exception("a look at the rules failed, those in force stay", rules=self._current.count)

    async def look(self) -> bool:
        """Look at the files once, and take what has changed; whether anything had."""
        settings, files, before, stop = self._settings, self._files, self._seen, self._stop
        self._look = start_apart("rules-look", lambda: _courteously_reread(settings, files, before, stop))
        seen, found = await asyncio.wrap_future(self._look)
        self._seen = seen
        if found is None:
            return False
        problem = found if isinstance(found, str) else None
        if isinstance(found, RuleSet):
            old = [self._current]
            self._current = found
            log.info("rules read again", rules=found.count)
            await run_apart("rules-let-go", lambda: _let_go(old))
        else:
            log.warning("changed rules are wrong, the old ones stay in force", problem=problem, rules=self._current.count)
        self._on_reload(problem is None, self._current.count, problem)
        return True


def _let_go(last: list[RuleSet]) -> None:
    """In a thread; who still matches with the set keeps what it needs."""
    with courtesy():
        let_go(last.pop().pieces())


def _courteously_reread(settings: Rules, files: tuple[Path, ...], before: _Seen, stop: threading.Event) -> tuple[_Seen, RuleSet | str | None]:
    """What it holds besides the new set is let go before the courtesy ends."""
    with courtesy():
        return _reread(settings, files, before, stop)


def _reread(settings: Rules, files: tuple[Path, ...], before: _Seen, stop: threading.Event) -> tuple[_Seen, RuleSet | str | None]:
    """In a thread: how the files look now, with the new rules or what is wrong with them; None when there is nothing new, or not yet."""
    young = any(mark is not None and before.at_s - mark[0] / 1e9 < YOUNG_S for mark in before.marks)
    if not young and _marks(files) == before.marks:
        return before, None
    seen = _look(files)
    if seen.digest == before.digest:
        return seen, None
    try:
        read = read_rules(settings, in_pieces=True, stop=stop)
    except ReadingStopped:
        return before, None
    if _look(files).digest != seen.digest:
        return before, None  # somebody is writing: the next look will find it whole
    if read.problems:
        return seen, str(read.problems[0].as_error(len(read.problems) - 1))
    return seen, read.ruleset


def _look(files: tuple[Path, ...]) -> _Seen:
    now = time.time()
    marks = _marks(files)
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(_digest(file))
    return _Seen(marks, digest.digest(), now)


def _marks(files: tuple[Path, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    """Time of change in nanoseconds, size and inode of each file; None for one that is not there."""
    marks: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
            marks.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            marks.append(None)
    return tuple(marks)


def _digest(file: Path) -> bytes:
    """Of the content; of the reason when it cannot be read."""
    try:
        with open_regular(file) as stream:
            return hashlib.blake2b(stream.read(MAX_FILE_BYTES + 1), digest_size=16).digest()
    except OSError as error:
        return type(error).__name__.encode()
