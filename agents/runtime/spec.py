"""What one engine process is told before it loads anything, sent as the pipe's first frame; requests are `schemas.inference`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agents.runtime.cost_model import guessed_profile
from agents.runtime.cpus import Place
from schemas.cost import CostProfile, StepCost
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
        profile: what its steps cost on this machine; None before it was measured.
        calibrate: measure that after warm-up, before serving.
        calibrate_rounds: how often each batch size is measured then; 2 delay a start by a few seconds and give medians, tails need more.
        cpu_name: the machine that the measurement is for.
        prefixes: system texts that prompts will begin with, read before the engine serves.
    """

    model: Model
    files: ResolvedModel
    replica: int = 0
    threads: int = 1
    cpus: tuple[int, ...] | None = None
    profile: CostProfile | None = None
    calibrate: bool = False
    calibrate_rounds: int = 2
    cpu_name: str = ""
    prefixes: tuple[str, ...] = ()


def engine_specs(model: Model, files: ResolvedModel, places: Sequence[Place]) -> tuple[EngineSpec, ...]:
    """One spec a replica, each at the place that `cpus.place` gave it."""
    return tuple(EngineSpec(model, files, replica, one.threads, one.cpus) for replica, one in enumerate(places))


def profile_of(spec: EngineSpec) -> CostProfile:
    """What the spec's profile says; a scripted engine's is known, an unmeasured model's is guessed and corrected while serving."""
    if spec.profile is not None:
        return spec.profile
    model = spec.model
    guess = guessed_profile(spec.files.name, spec.files.version, threads=spec.threads, cpu="", prefill_chunk=model.prefill_chunk)
    if model.engine != "scripted":
        return guess
    token_s = max(model.token_ms / 1000, INSTANT_S)
    return msgspec.structs.replace(guess, steps=(StepCost(1, token_s, token_s),), prefill_token_s=model.prefill_ms_per_token / 1000, prefill_spread=1.0)


INSTANT_S = 0.0002
"""A scripted step without `token_ms`: the pipe's own time, so that predictions stay above zero."""
