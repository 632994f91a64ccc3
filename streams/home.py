"""Where downloads live on this machine and how one file gets there verified; which files the broker needs is `streams.broker.jars`."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from schemas.errors import SetupError

_ATTEMPTS = 3
"""A dropped connection should not end a set-up; at worst a dead mirror costs three connect time-outs."""

_CONNECT_S, _READ_S = 10.0, 30.0
"""A mirror that goes silent must not hang the set-up: no byte for 30 s counts as dropped."""

_LOCK_WAIT_S = 900.0
"""Another process may be fetching the same file; a large model on a slow line takes minutes, and a stuck one must not hold us for ever."""

_BLOCK = 1 << 18

_STATE = ".fetch"
"""Beside the files, for locks, marks of what was verified and unfinished downloads: the same disk, so that a rename is atomic."""


class Progress(Protocol):
    """Told how far a download is; called from the thread that downloads."""

    def __call__(self, done: int, total: int) -> None:
        """`done` and `total` in bytes; `total` is what the lock file says."""


class _NotWhatWasAskedFor(Exception):
    """A downloaded file has another size or digest than it should; the text says both."""


def answerby_home() -> Path:
    """The directory that keeps downloads and data: `$ANSWERBY_HOME`, or `~/.cache/answerby`."""
    configured = os.environ.get("ANSWERBY_HOME")
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "answerby"


def fetch_file(url: str, target: Path, sha256: str, size: int, progress: Progress | None = None) -> Path:
    """Make `target` the file of that digest and size (bytes), downloading it unless it is there; safe with several processes at once.

    A kept file is trusted while its size and time stamp are those seen when it was last hashed; otherwise it is hashed again, and fetched again when
    it differs. A download goes to a temporary file and is renamed when verified, so a killed one leaves nothing that could be taken for the file.

    Raises:
        SetupError: no network, an HTTP error, a wrong digest, or no space left.
    """
    report = progress or _say_nothing
    try:
        if not is_kept(target, sha256, size):
            state = target.parent / _STATE
            state.mkdir(parents=True, exist_ok=True)
            with file_lock(state / f"{target.name}.lock", _LOCK_WAIT_S, f"{target.name} is being fetched by another process"):
                _remove_leftovers(state, target.name)
                if not is_kept(target, sha256, size) and not _is_intact(target, sha256, size):
                    _download(url, target, state, sha256, size, report)
                    _mark_verified(target, sha256)
        report(size, size)
    except OSError as error:
        raise _as_setup_error(error, target) from error
    return target


def is_kept(target: Path, sha256: str, size: int) -> bool:
    """Whether the file is there and unchanged since it was verified; reads no more than its size and time stamp."""
    try:
        return target.stat().st_size == size and _mark_of(target).read_text(encoding="ascii") == _stamp(target, sha256)
    except FileNotFoundError:
        return False


@contextmanager
def file_lock(path: Path, wait_s: float, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path` across processes; it goes with the process that holds it, however that ends.

    Raises:
        SetupError: still held by another after `wait_s` seconds; the text starts with `busy`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        give_up = time.monotonic() + wait_s
        while not try_lock(descriptor):
            if time.monotonic() >= give_up:
                msg = f"{busy} ({path} has been locked for {wait_s:.0f} s): wait for it, or end it and try again"
                raise SetupError(msg)
            time.sleep(0.1)  # flock has no time-out of its own, and a blocking call could not be bounded
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take an exclusive lock on an open file unless another has it; it is given up when the last copy of the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _mark_of(target: Path) -> Path:
    return target.parent / _STATE / f"{target.name}.ok"


def _stamp(target: Path, sha256: str) -> str:
    status = target.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns}\n"


def _is_intact(target: Path, sha256: str, size: int) -> bool:
    """Hash a kept file that carries no valid mark: copied here by hand, or changed since."""
    if not target.is_file() or target.stat().st_size != size:
        return False
    with target.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
            return False
    _mark_verified(target, sha256)
    return True


def _mark_verified(target: Path, sha256: str) -> None:
    verified = _mark_of(target)
    partial = verified.with_suffix(".ok.new")
    partial.write_text(_stamp(target, sha256), encoding="ascii")
    partial.replace(verified)


def _remove_leftovers(state: Path, name: str) -> None:
    """Drop what killed downloads of this file left; the caller holds its lock, so none is running."""
    for path in state.glob(f"{name}.*.part"):
        path.unlink(missing_ok=True)


def _download(url: str, target: Path, state: Path, sha256: str, size: int, report: Progress) -> None:
    import httpx  # noqa: PLC0415  # a worker that has its files does not wait for it: a fifth of a second of its start

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _download_once(url, target, state, sha256, size, report)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            if status < HTTPStatus.INTERNAL_SERVER_ERROR or attempt == _ATTEMPTS:
                msg = f"{url}: the server answered HTTP {status}; check the mirror's address and that it carries this file"
                raise SetupError(msg) from error
        except (httpx.TransportError, httpx.TooManyRedirects) as error:
            if attempt == _ATTEMPTS:
                msg = f"{url}: cannot be fetched ({_one_line(error) or type(error).__name__}); check network, proxy and certificates, or name a mirror"
                raise SetupError(msg) from error
        except httpx.InvalidURL as error:
            msg = f"{url}: not a usable address ({_one_line(error)}); check the mirror's setting"
            raise SetupError(msg) from error
        except _NotWhatWasAskedFor as error:
            msg = f"{url}: {error}; remove {target} if it is there and try again, or check the mirror"
            raise SetupError(msg) from error
        else:
            return
        time.sleep(0.3 * attempt)


def _download_once(url: str, target: Path, state: Path, sha256: str, size: int, report: Progress) -> None:
    import httpx  # noqa: PLC0415  # as above

    descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".part", dir=state)
    try:
        with os.fdopen(descriptor, "wb") as out:
            digest, done = hashlib.sha256(), 0
            timeout = httpx.Timeout(_READ_S, connect=_CONNECT_S)
            with httpx.stream("GET", url, follow_redirects=True, timeout=timeout, verify=_trusted_authorities()) as response:
                response.raise_for_status()
                for block in response.iter_bytes(_BLOCK):
                    done += len(block)
                    if done > size:
                        msg = f"expected {size} bytes, got more"
                        raise _NotWhatWasAskedFor(msg)
                    digest.update(block)
                    out.write(block)
                    report(done, size)
            if digest.hexdigest() != sha256:
                msg = f"expected sha256 {sha256}, got {digest.hexdigest()} ({done} of {size} bytes)"
                raise _NotWhatWasAskedFor(msg)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(target)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _trusted_authorities() -> ssl.SSLContext | bool:
    """Of the names that pip, requests and curl know, httpx reads the first alone."""
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        bundle = os.environ.get(variable)
        if bundle and Path(bundle).is_file():
            return ssl.create_default_context(cafile=bundle)
    return True


def _as_setup_error(error: OSError, target: Path) -> SetupError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SetupError(f"no space left for {target}: free some, or set ANSWERBY_HOME to a larger disk")
    return SetupError(f"{target} cannot be written ({error.strerror or error}): mend the directory, or set ANSWERBY_HOME to another")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _say_nothing(done: int, total: int) -> None:
    """Stand in for a progress bar that nobody wants."""
