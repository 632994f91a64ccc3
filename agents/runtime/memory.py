"""What memory this machine or container gives, whether the models fit into it, and what a process takes; cores are `cpus`."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import SetupError

SPARE = 0.2
"""Of the limit, left free: activations, compiled graphs and the page cache come on top of what can be counted, and an out-of-memory kill takes everything."""

WORKER_BYTES = 400 * 1024 * 1024
"""The worker's own process under load with full session tables; measured about half of it."""

ENGINE_BYTES = 250 * 1024 * 1024
"""Of an engine process beside weights and KV cache: interpreter, OpenVINO's libraries, tokenizer."""

UNLIMITED = 1 << 60
"""cgroup v1 says "no limit" as a huge number that differs by kernel; no machine has this much."""

_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Need:
    """Memory of one engine process, in bytes; `key` is the settings entry it comes from, such as `models[0]`."""

    key: str
    weights: int
    kv_cache: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What a process takes now: resident bytes, and page faults that went to disk since it began."""

    rss_bytes: int
    major_faults: int


def process_figures() -> Figures:
    """This process's own figures."""
    resident = int(Path("/proc/self/statm").read_bytes().split()[1])
    return Figures(resident * os.sysconf("SC_PAGE_SIZE"), resource.getrusage(resource.RUSAGE_SELF).ru_majflt)


def weight_bytes(path: str) -> int:
    """Bytes that the model at `path` puts into memory: its .bin or .gguf files; 0 for an empty path (scripted)."""
    if not path:
        return 0
    place = Path(path)
    if place.is_dir():
        return sum(file.stat().st_size for file in place.glob("*.bin"))
    return place.stat().st_size if place.exists() else 0


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes this process may use: the smallest of the machine's memory and every cgroup limit above it, version 1 or 2."""
    return min([_machine_bytes(root), *_cgroup_limits(root)])


def require_memory(needs: Iterable[Need], limit: int, worker: int = WORKER_BYTES) -> None:
    """Let a start go on only when worker and engines fit into `limit` with SPARE left.

    Raises:
        SetupError: they do not; the text says which number to change.
    """
    listed = list(needs)
    total = worker + sum(need.weights + need.kv_cache + ENGINE_BYTES for need in listed)
    usable = int(limit * (1 - SPARE))
    if total <= usable:
        return
    largest = max(listed, key=lambda need: need.kv_cache, default=None)
    without = total - (largest.kv_cache if largest else 0)
    if largest and without < usable:
        advice = f"set {largest.key}.kv_cache_mb to {(usable - without) // _MB} or less"
    else:
        advice = f"raise the limit to {-(-int(total / (1 - SPARE)) // _MB)} MB or run fewer models or replicas"
    text = f"worker and models need {total // _MB} MB, but only {usable // _MB} MB of {limit // _MB} MB may be used (20 % is kept spare); {advice}"
    raise SetupError(text)


def _machine_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return UNLIMITED


def _cgroup_limits(root: Path) -> list[int]:
    files = [file for folder in cgroup_folders(root, "memory") for file in (folder / "memory.max", folder / "memory.limit_in_bytes") if file.exists()]
    texts = [file.read_text().strip() for file in files]
    return [int(text) for text in texts if text.isdigit() and int(text) < UNLIMITED]


def cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Folders whose limits bind this process for `controller`, from its own cgroup up to the mount, for version 1 and 2.

    In a container the cgroup's own path is often not mounted: then the mount's top folder is the container's.
    """
    folders: list[Path] = []
    text = (root / "proc/self/cgroup").read_text() if (root / "proc/self/cgroup").exists() else ""
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            top = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        inner = top / path.lstrip("/")
        while inner != top and top in inner.parents:
            folders.append(inner)
            inner = inner.parent
        folders.append(top)
    return folders
