"""How many cores this process may use and which engine gets which; memory is `memory`."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from agents.runtime.memory import cgroup_folders
from schemas.errors import ConfigError
from schemas.settings import Model

SMALL_MACHINE = 4
"""Up to this many cores each engine gets its own: without it the model's threads take the worker's time, and answers that would have met their deadline
come late (measured: 92 % against 75 % in time at 8 events/s). Beyond, the kernel places better than a fixed map."""


@dataclass(frozen=True, slots=True)
class Cores:
    """What may be used: `ids` by affinity, `quota` in cores by cgroup (infinite without one)."""

    ids: tuple[int, ...]
    quota: float = math.inf

    @property
    def count(self) -> int:
        """Whole cores' worth of threads that can run at once; at least 1."""
        return max(1, int(min(self.quota, len(self.ids))))


@dataclass(frozen=True, slots=True)
class Place:
    """Where one engine runs; `cpus` None means unpinned.

    `loads_on`: where a process that replaces another loads, at low priority, because others work on the engine's own cores; None: where it runs.
    """

    threads: int
    cpus: tuple[int, ...] | None
    loads_on: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of every model's replicas, in the order of the settings, and the worker's cores (None: unpinned)."""

    engines: tuple[tuple[Place, ...], ...]
    worker: tuple[int, ...] | None


def available_cores(root: Path = Path("/")) -> Cores:
    """What affinity and cgroup quota (version 1 or 2, every level) leave to this process."""
    quotas = [quota for folder in cgroup_folders(root, "cpu") if (quota := _quota(folder)) is not None]
    return Cores(tuple(sorted(os.sched_getaffinity(0))), min(quotas, default=math.inf))


def place(models: Sequence[Model], cores: Cores, worker: Sequence[int] | None = None) -> Placement:
    """Give each engine its cores and the worker the rest, one at least.

    Args:
        models: the settings' entries.
        cores: what may be used.
        worker: `worker.cpus` of the settings, when set.

    Raises:
        ConfigError: a core is named that this process may not use.
    """
    _require_allowed("worker.cpus", worker, cores)
    for index, model in enumerate(models):
        _require_allowed(f"models[{index}].cpus", model.cpus, cores)
    heavy = [model for model in models if model.engine != "scripted"]  # a script needs no core, and taking one from worker and broker costs their tails
    pool = _engine_pool(heavy, cores, worker) if heavy and 1 < len(cores.ids) <= SMALL_MACHINE else None
    turn = cycle(pool) if pool else None
    engines = tuple(tuple(_place_one(model, cores, turn, len(pool or ())) for _ in range(model.processes)) for model in models)
    if worker is None:
        taken = {core for places in engines for one in places for core in one.cpus or ()}
        rest = tuple(core for core in cores.ids if core not in taken)
        for_worker = rest if taken and rest else None
    else:
        for_worker = tuple(sorted(set(worker)))
    return Placement(_with_loading(models, engines, for_worker, cores), for_worker)


def _with_loading(
    models: Sequence[Model], engines: tuple[tuple[Place, ...], ...], worker: tuple[int, ...] | None, cores: Cores
) -> tuple[tuple[Place, ...], ...]:
    """Engines that share cores with another one load their replacements on the worker's core too, which is seldom busy.

    Only with one thread: further ones of the native library are begun while it loads, and keep the priority that they were born with.
    """
    heavy = [one for model, places in zip(models, engines, strict=True) if model.engine != "scripted" for one in places]
    busy = Counter(core for one in heavy for core in one.cpus or cores.ids)

    def loading(one: Place) -> Place:
        own = one.cpus or cores.ids
        is_shared = any(busy[core] > 1 for core in own)
        if one.threads > 1 or not is_shared or len(cores.ids) > SMALL_MACHINE:
            return one
        return replace(one, loads_on=tuple(sorted({*own, *(worker or ())})))

    return tuple(tuple(loading(one) for one in places) for places in engines)


def _require_allowed(key: str, wanted: Sequence[int] | None, cores: Cores) -> None:
    if wanted is None:
        return
    if not wanted:
        raise ConfigError(key, "names no core", "leave the key out or name one of " + ", ".join(map(str, cores.ids)))
    for core in wanted:
        if core not in cores.ids:
            raise ConfigError(key, f"core {core} may not be used by this process", "choose from " + ", ".join(map(str, cores.ids)))


def _engine_pool(models: Sequence[Model], cores: Cores, worker: Sequence[int] | None) -> list[int]:
    """Cores for engines that name none: what nobody named, less one for the worker; when nothing is left they join the other engines'."""
    named = {core for model in models for core in model.cpus or ()}
    free = [core for core in cores.ids if core not in named and core not in (worker or ())]
    for_engines = free if worker is not None else free[1:]
    return for_engines or sorted(named) or list(cores.ids)


def _place_one(model: Model, cores: Cores, turn: Iterator[int] | None, pool: int) -> Place:
    threads = min(model.threads or 1, cores.count)
    if model.cpus is not None:
        own = tuple(sorted(set(model.cpus)))
        return Place(min(threads, len(own)), own)
    if turn is None or model.engine == "scripted":
        return Place(threads, None)
    threads = min(threads, pool)
    return Place(threads, tuple(sorted(islice(turn, threads))))


def _quota(folder: Path) -> float | None:
    """Cores' worth of time a cgroup grants; None without a limit."""
    unified = folder / "cpu.max"
    if unified.exists():
        quota, _, period = unified.read_text().strip().partition(" ")
        return None if quota == "max" else int(quota) / int(period or "100000")
    quota_file, period_file = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if not quota_file.exists() or not period_file.exists():
        return None
    quota_us = int(quota_file.read_text())
    return None if quota_us <= 0 else quota_us / int(period_file.read_text())
