"""Runs as a script between us and the JVM: ties the new process's life to its parent's, then becomes the JVM; `process` starts it.

It is its own tiny program because what it sets must be set after the fork, where a process with threads cannot safely run Python code.
Arguments: the parent's pid, the niceness to add, the cores to run on ("0,1" or "-" for all), then the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the death signal, niceness and cores, then exec the command; never returns."""
    parent, nice, cpus, *command = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != int(parent):  # it died before the signal was set, so none will come
        sys.exit("the parent is gone")
    if int(nice):
        os.nice(int(nice))
    if cpus != "-":
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
