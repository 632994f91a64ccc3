"""The embedded broker's files: what `jars.lock` lists, fetched from Maven Central or a mirror and kept; running them is `streams.broker.process`."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import SetupError
from streams.home import Progress, answerby_home, fetch_file, is_kept

KAFKA_VERSION = "4.1.0"

LOCK_FILE = Path(__file__).with_name("jars.lock")

MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"

_AT_ONCE = 6
"""Downloads at a time: one after the other waits on round trips, and many more are refused by public mirrors."""

_LINE = re.compile(r"^(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+) (?P<size>[1-9]\d*) (?P<sha256>[0-9a-f]{64})$")

_HEAD = "# Written by `python -m streams.broker.lock`: group:artifact:version, size in bytes, SHA-256. Users fetch exactly these.\n"


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of the broker: its Maven coordinate, its size in bytes and its SHA-256 in hex."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def coordinate(self) -> str:
        """`group:artifact:version`."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name on disk, the same as in a Maven repository."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Below a Maven repository's root."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def format_lock(jars: list[Jar]) -> str:
    """The text of a lock file; `parse_lock` reads it back."""
    return _HEAD + "".join(f"{jar.coordinate} {jar.size} {jar.sha256}\n" for jar in jars)


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars of a lock file's text.

    Raises:
        SetupError: a line does not parse or the file is empty, so the installation is damaged.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            msg = f"{LOCK_FILE.name}, line {number} is damaged: install answerby again"
            raise SetupError(msg)
        jars.append(Jar(match["group"], match["artifact"], match["version"], int(match["size"]), match["sha256"]))
    if not jars:
        msg = f"{LOCK_FILE.name} lists nothing: install answerby again"
        raise SetupError(msg)
    return tuple(jars)


def kafka_home() -> Path:
    """Where the broker's files are kept."""
    return answerby_home() / f"kafka-{KAFKA_VERSION}"


def fetch_jars(progress: Progress | None = None) -> tuple[Path, ...]:
    """Every jar of the lock, verified on disk; nothing is asked of the network when all are there. Progress is over all of them together.

    Raises:
        SetupError: a file cannot be fetched, is not the one of the lock, or finds no space.
    """
    jars = parse_lock(LOCK_FILE.read_text(encoding="ascii"))
    home = kafka_home()
    missing = [jar for jar in jars if not is_kept(home / jar.file_name, jar.sha256, jar.size)]
    if missing:
        _fetch_missing(missing, home, _Total(missing, progress))
    return tuple(home / jar.file_name for jar in jars)


def _fetch_missing(missing: list[Jar], home: Path, total: _Total) -> None:
    mirror = os.environ.get("ANSWERBY_MAVEN_MIRROR", "").rstrip("/") or MAVEN_CENTRAL
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="fetch") as pool:
        fetches = [pool.submit(fetch_file, f"{mirror}/{jar.path}", home / jar.file_name, jar.sha256, jar.size, total.of(jar)) for jar in missing]
        try:
            for fetch in fetches:
                fetch.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # the first failure is the answer: do not fetch the rest before saying so
            raise


class _Total:
    """Adds the progress of files that are fetched at the same time into one."""

    def __init__(self, jars: list[Jar], progress: Progress | None) -> None:
        self._size = sum(jar.size for jar in jars)
        self._done: dict[str, int] = {}
        self._progress = progress
        self._lock = threading.Lock()

    def of(self, jar: Jar) -> Progress:
        """The callback for one file."""

        def advance(done: int, total: int) -> None:
            with self._lock:
                self._done[jar.file_name] = done
                if self._progress is not None:
                    self._progress(sum(self._done.values()), self._size)

        return advance
