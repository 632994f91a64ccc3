"""The engine process: takes its socket and spec, loads the model, says Ready and serves; the worker starts it through `process`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import msgspec

from agents.runtime.backend import Backend, Loaded
from agents.runtime.calibration import calibrate
from agents.runtime.cost_model import CostModel
from agents.runtime.frames import decode_body, encode_frame
from agents.runtime.loop import StepLoop, WorkerGone
from agents.runtime.memory import process_figures
from agents.runtime.spec import EngineSpec, profile_of
from schemas.errors import AnswerbyError
from schemas.inference import Ready, StartFailed

SPEC_S = 10.0
"""How long the worker may take to send the spec: it does so at once, so a worker that does not is gone."""

LOADING_NICE = 10
"""Above the worker's, of the thread that loads beside others' work: a ninth of a core that they need all of, so that the load ends within start_ms
in the worst case; a wake-up of theirs comes first at once. A niceness cannot be taken back without privilege, so it is never the serving thread's."""

_PR_SET_PDEATHSIG = 1


class Replacement(EngineSpec, frozen=True):
    """The spec of a process that comes for another one while others serve.

    Fields:
        loads_on: cores to load on, at low priority, before it goes to its own; None loads on its own like the first process.
    """

    loads_on: tuple[int, ...] | None = None


def replacement(spec: EngineSpec, loads_on: tuple[int, ...] | None) -> Replacement:
    """`spec` for a process that comes for another one."""
    return Replacement(**msgspec.structs.asdict(spec), loads_on=loads_on)


def main(arguments: list[str]) -> int:
    """Serve the worker at the other end of descriptor `arguments[0]`, whose process id is `arguments[1]`; 0 after Shutdown, else 1."""
    die_with_parent(int(arguments[1]))
    ignore_terminal_signals()
    sock = take_socket(int(arguments[0]))
    spec = receive_spec(sock)
    take_place(spec)
    try:
        backend, loaded = load(spec)
        measured = calibrate(backend, spec, cpu=spec.cpu_name, rounds=spec.calibrate_rounds) if spec.calibrate else None
        cost = CostModel(measured or profile_of(spec))
        loop = StepLoop(sock, backend, cost, chunk=spec.model.prefill_chunk)
        threads, cpus = spec.threads, tuple(sorted(os.sched_getaffinity(0)))
        figures = process_figures()
        loop.send(
            Ready(
                spec.files.name,
                spec.files.version,
                os.getpid(),
                loaded.context_tokens,
                threads,
                cpus,
                loaded.load_ms,
                loaded.warmup_ms,
                figures.rss_bytes,
                measured,
            )
        )
    except Exception as error:  # whatever stops a load must reach the operator as one line
        report_failed_start(sock, error)
        return 1
    try:
        loop.serve()
    except WorkerGone as gone:
        print(f"engine stops: {gone}", file=sys.stderr)  # noqa: T201 -- the worker logs this process's standard error
        return 1
    return 0


def die_with_parent(parent: int) -> None:
    """Be killed when the worker dies: a stopped process would never see the pipe's end. The signal fires at the end of the thread that spawned us."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the worker died before its engine had started")


def ignore_terminal_signals() -> None:
    """Ctrl-C and a service manager's stop go to the whole group; the worker decides what becomes of its engines."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def take_socket(descriptor: int) -> socket.socket:
    """The worker's socket under the lowest free number, since `select` cannot watch one above 1023."""
    low = os.dup(descriptor)
    os.close(descriptor)
    return socket.socket(fileno=low)


def receive_spec(sock: socket.socket) -> Replacement:
    """The first frame; what follows it is the step loop's."""
    until = time.monotonic() + SPEC_S
    size = int.from_bytes(_read_exactly(sock, 4, until), "big")
    spec: Replacement = decode_body(msgspec.msgpack.Decoder(Replacement), _read_exactly(sock, size, until))
    return spec


def _read_exactly(sock: socket.socket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        sock.settimeout(max(0.001, until - time.monotonic()))
        more = sock.recv(size - len(data))
        if not more:
            sys.exit("the worker closed the pipe before it sent the engine's spec")
        data += more
    return data


def take_place(spec: EngineSpec) -> None:
    """Affinity and thread counts, before a native library reads them and keeps them for good."""
    if spec.cpus is not None:
        os.sched_setaffinity(0, spec.cpus)
    for name in ("OMP_NUM_THREADS", "TBB_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(spec.threads)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load(spec: Replacement) -> tuple[Backend, Loaded]:
    """The model, warm. What loads it beside others' work is a thread of its own with less right to the cores; the one that calls this is as it was.

    Raises:
        SetupError: the model cannot be loaded.
    """
    if spec.loads_on is None:
        return _load(spec)
    with ThreadPoolExecutor(1) as apart:
        apart.submit(step_back, spec.loads_on).result()
        loaded = apart.submit(_load, spec).result()
    if spec.cpus is not None:
        pin_all_threads(spec.cpus)
    return loaded


def _load(spec: EngineSpec) -> tuple[Backend, Loaded]:
    backend = make_backend(spec)
    return backend, backend.load()


def step_back(cores: tuple[int, ...]) -> None:
    """The calling thread, and those that it begins from now on: less urgent, and anywhere on `cores`."""
    me = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + LOADING_NICE)  # the kernel stops at 19
    os.sched_setaffinity(me, cores)


def pin_all_threads(cores: tuple[int, ...]) -> None:
    """Those that the library began on other cores, too."""
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(task), cores)


def make_backend(spec: EngineSpec) -> Backend:
    """The model's backend; the heavy library is imported only when it is the one."""
    if spec.model.engine == "scripted":
        from agents.runtime.scripted import ScriptedBackend  # noqa: PLC0415 -- each process needs one of the two

        return ScriptedBackend(spec.model)
    from agents.runtime.openvino import OpenVinoBackend  # noqa: PLC0415 -- takes half a second and hundreds of megabytes

    return OpenVinoBackend(spec)


def report_failed_start(sock: socket.socket, error: Exception) -> None:
    """Tell the worker why, with a traceback on standard error when nobody foresaw it."""
    if not isinstance(error, AnswerbyError):
        traceback.print_exc()
    lines = str(error).strip().splitlines()
    text = str(error) if isinstance(error, AnswerbyError) else f"{type(error).__name__}: {lines[0] if lines else 'no text'}"
    sock.settimeout(SPEC_S)
    sock.sendall(encode_frame(StartFailed(text)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
