"""What one engine process is told before it loads anything, sent as the pipe's first frame; requests are `schemas.inference`."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec

from schemas.settings import Model


class ResolvedModel(msgspec.Struct, frozen=True):
    """Which files a `[[models]]` entry means; found by `agents.models`, never by the engine.

    Fields:
        name: what responses and metrics call the model.
        path: absolute, a folder with OpenVINO IR or a .gguf file; empty for `scripted`.
        version: changes when the files do.
    """

    name: str
    path: str
    version: str


class EngineSpec(msgspec.Struct, frozen=True):
    """One replica: the settings of its model, its files, and the place it got on this machine.

    Fields:
        model: the `[[models]]` entry.
        files: which files it means.
        replica: from 0.
        threads: of inference.
        cpus: cores to pin to; None leaves the process unpinned.
        cache_dir: absolute, where compiled models are kept; empty keeps none.
    """

    model: Model
    files: ResolvedModel
    replica: int = 0
    threads: int = 1
    cpus: tuple[int, ...] | None = None
    cache_dir: str = ""


def compiled_dir(home: Path, files: ResolvedModel, threads: int) -> str:
    """Where the compiled form of `files` is kept: a folder of its own for each version, so that no two models can share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{files.name}-{files.version}").strip(".-")[:100]
    digest = hashlib.sha256(f"{files.path}\0{files.version}".encode()).hexdigest()[:12]
    return str(home / "compiled" / f"{safe or 'model'}-{digest}-{threads}t")
