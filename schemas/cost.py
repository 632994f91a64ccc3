"""What a model's steps cost on one machine: measured by an engine, kept in a file, read by the scheduler; how it predicts is `agents.runtime.cost_model`."""

from __future__ import annotations

import msgspec

PROFILE_VERSION = 2


class StepCost(msgspec.Struct, frozen=True, array_like=True):
    """Seconds of a decoding step at one batch size; `median` is of its calmer half."""

    batch: int
    median: float
    p99: float


class CostProfile(msgspec.Struct, frozen=True):
    """What calibration found for one model on one machine.

    Fields:
        model, version, threads, cpu, prefill_chunk: what it holds for; another machine's or model's is refused.
        steps: decoding steps by batch size, rising.
        prefill_token_s: seconds that each prompt token adds to a step.
        prefill_spread: p99 over median of steps that read prompts.
        chars_per_token: of ordinary English text.
        chunk_s: seconds of a step that reads a whole chunk; 0 for an engine whose reading simply adds to its speaking.
        measured_at: ISO 8601, UTC; empty for a guess.
    """

    model: str
    version: str
    threads: int
    cpu: str
    prefill_chunk: int
    steps: tuple[StepCost, ...]
    prefill_token_s: float
    prefill_spread: float
    chars_per_token: float
    chunk_s: float = 0.0
    measured_at: str = ""
    v: int = PROFILE_VERSION
