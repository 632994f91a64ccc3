"""What one engine process is told before it loads anything, sent as the pipe's first frame; requests are `schemas.inference`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.runtime.cpus import Place
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
        cache_dir: absolute, where compiled models may be kept; not used while OpenVINO cannot read them back (docs/decisions/0011).
    """

    model: Model
    files: ResolvedModel
    replica: int = 0
    threads: int = 1
    cpus: tuple[int, ...] | None = None
    cache_dir: str = ""


def engine_specs(model: Model, files: ResolvedModel, places: Sequence[Place]) -> tuple[EngineSpec, ...]:
    """One spec a replica, each at the place that `cpus.place` gave it."""
    return tuple(EngineSpec(model, files, replica, one.threads, one.cpus) for replica, one in enumerate(places))
