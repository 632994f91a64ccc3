"""The embedded broker's data directory: claimed by one broker at a time, formatted once, removed when ephemeral; the JVM on it is `process`."""

from __future__ import annotations

import base64
import errno
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from schemas.errors import SetupError
from streams.broker.config import NODE_ID
from streams.broker.jars import KAFKA_VERSION
from streams.home import answerby_home, file_lock, try_lock

LOGS = "logs"
"""Kafka's own directory, below ours; the broker runs inside ours and so needs no absolute path, whatever letters that has."""

_MARKER = "answerby-broker.json"
_LOCK = ".lock"
_CHECKPOINT = "bootstrap.checkpoint"
_SWEEP_WAIT_S = 10.0
"""Making or sweeping directories takes milliseconds; longer means a disk that hangs."""

_DYING_S = 3.0
"""A killed broker's last threads hold the claim for a moment; a supervisor that restarts at once should not fail for it."""


class _Marker(msgspec.Struct, frozen=True):
    """Says which Kafka wrote a data directory: an older one cannot be trusted to read what a newer one wrote."""

    kafka: str


@dataclass(frozen=True, slots=True)
class DataDir:
    """A claimed directory; `lock` is the descriptor that holds the claim, also to be inherited by the broker."""

    path: Path
    lock: int
    ephemeral: bool

    def release(self) -> None:
        """Give the claim up, and the directory too when it is ephemeral; the broker must be gone."""
        if self.ephemeral:
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def claim_data_dir(path: Path | None) -> DataDir:
    """Claim a directory for one broker, `None` for a new one that goes with it.

    Raises:
        SetupError: another broker uses it, another version wrote it, something else lives there, or it cannot be written.
    """
    try:
        return _claim_ephemeral() if path is None else _claim_persistent(path.expanduser().absolute())
    except OSError as error:
        raise storage_error(error, path or answerby_home()) from error


def format_storage(directory: Path, make_checkpoint: Callable[[Path], None]) -> None:
    """Make the directory a broker's, unless it is one already: an identity of its own, and the features that Kafka's tool turns on.

    What the tool writes apart from the identity is the same every time, so `make_checkpoint(target)` runs it once per installation.
    """
    logs = directory / LOGS
    if (logs / "meta.properties").is_file():
        return
    logs.mkdir(exist_ok=True)
    template = answerby_home() / f"kafka-{KAFKA_VERSION}" / _CHECKPOINT
    if not template.is_file():
        make_checkpoint(template)
    shutil.copyfile(template, logs / _CHECKPOINT)
    identity = {"version": 1, "cluster.id": _new_id(), "node.id": NODE_ID, "directory.id": _new_id()}
    _write_whole(logs / "meta.properties", "".join(f"{key}={value}\n" for key, value in identity.items()))


def storage_error(error: OSError, path: Path) -> SetupError:
    """What the operator can do about a failed file operation."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(path)
    return SetupError(f"{path} cannot be used for the broker's data ({error.strerror or error}): mend it, or name another with --data-dir")


def no_space(path: Path) -> SetupError:
    """The line for a full disk, met by us or by Kafka."""
    return SetupError(f"no space left for the broker's data in {path}: free some, or use --data-dir on a larger disk")


def _claim_persistent(path: Path) -> DataDir:
    path.mkdir(parents=True, exist_ok=True)
    strangers = sorted(entry.name for entry in path.iterdir() if entry.name != _LOCK)
    marker = path / _MARKER
    if strangers and not marker.is_file():
        msg = f"{path} holds other things ({strangers[0]}): name an empty or new directory with --data-dir"
        raise SetupError(msg)
    lock = _lock_directory(path, _DYING_S)
    if lock is None:
        msg = f"another broker is running on {path}: stop it, or name another directory with --data-dir"
        raise SetupError(msg)
    try:
        _check_version(path, marker)
    except BaseException:
        os.close(lock)
        raise
    return DataDir(path, lock, ephemeral=False)


def _check_version(path: Path, marker: Path) -> None:
    if not marker.is_file():
        _write_whole(marker, msgspec.json.encode(_Marker(KAFKA_VERSION)).decode())
        return
    try:
        written_by = msgspec.json.decode(marker.read_bytes(), type=_Marker).kafka
    except msgspec.DecodeError:
        written_by = "an unknown version"
    if written_by != KAFKA_VERSION:
        msg = f"{path} was written by Kafka {written_by} and this broker is {KAFKA_VERSION}: name another directory with --data-dir, or remove it"
        raise SetupError(msg)


def _claim_ephemeral() -> DataDir:
    """Below our home rather than /tmp, so that what killed brokers left is found and removed by the next one."""
    root = answerby_home() / "ephemeral"
    root.mkdir(parents=True, exist_ok=True)
    with file_lock(root / _LOCK, _SWEEP_WAIT_S, "another broker is making its directory"):
        for left in root.glob("broker-*"):
            lock = _lock_directory(left)
            if lock is not None:
                DataDir(left, lock, ephemeral=True).release()
        path = Path(tempfile.mkdtemp(prefix="broker-", dir=root))
        lock = _lock_directory(path)
        assert lock is not None, "nobody else can know a directory that was just made"
        return DataDir(path, lock, ephemeral=True)


def _lock_directory(path: Path, wait_s: float = 0.0) -> int | None:
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    give_up = time.monotonic() + wait_s
    while not try_lock(descriptor):
        if time.monotonic() >= give_up:
            os.close(descriptor)
            return None
        time.sleep(0.05)
    return descriptor


def _new_id() -> str:
    """A UUID as Kafka writes it; never with a leading dash, which its tools would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def _write_whole(target: Path, text: str) -> None:
    partial = target.with_name(f"{target.name}.new")
    partial.write_text(text, encoding="ascii")
    partial.replace(target)
