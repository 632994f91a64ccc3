"""Where cost profiles are kept, and for which machine they hold; measuring is `agents.runtime.calibration`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from schemas.cost import PROFILE_VERSION, CostProfile
from schemas.errors import SetupError
from streams.home import answerby_home


def this_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name and how many cores the machine has: what a profile must have in common with it."""
    name = "unknown processor"
    if cpuinfo.exists():
        lines = cpuinfo.read_text(errors="replace").splitlines()
        fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        name = " ".join(part for part in (fields.get("model name", name), fields.get("cpu family", ""), fields.get("model", "")) if part)
    return f"{name} x{os.cpu_count()}"


def profile_path(model: str, version: str, *, threads: int, prefill_chunk: int, cpu: str) -> Path:
    """One file for each model, version, thread count, chunk and processor."""
    key = hashlib.sha256(f"{model}/{version}/{threads}/{prefill_chunk}/{cpu}".encode()).hexdigest()[:12]
    return answerby_home() / "profiles" / f"{model}-{version}-t{threads}-c{prefill_chunk}-{key}.json"


def load_profile(model: str, version: str, *, threads: int, prefill_chunk: int, cpu: str) -> CostProfile | None:
    """The kept profile; None when there is none, it cannot be read, or it was measured for something else."""
    path = profile_path(model, version, threads=threads, prefill_chunk=prefill_chunk, cpu=cpu)
    try:
        profile = msgspec.json.decode(path.read_bytes(), type=CostProfile)
    except (OSError, msgspec.DecodeError):
        return None
    same = (profile.model, profile.version, profile.threads, profile.cpu, profile.prefill_chunk, profile.v)
    if same != (model, version, threads, cpu, prefill_chunk, PROFILE_VERSION) or not profile.steps:
        return None
    return profile


def save_profile(profile: CostProfile) -> Path:
    """Keep a profile for the next start; a half-written file never has the final name.

    Raises:
        SetupError: the folder cannot be written.
    """
    path = profile_path(profile.model, profile.version, threads=profile.threads, prefill_chunk=profile.prefill_chunk, cpu=profile.cpu)
    partial = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=1))
        partial.replace(path)
    except OSError as error:
        text = f"{path.parent} cannot be written ({error.strerror}): set ANSWERBY_HOME to a folder of yours"
        raise SetupError(text) from None
    return path
