"""Run the conversion of a GGUF file as a child process, bounded in time; what the child does is `agents.models.convert`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Timer

from schemas.errors import SetupError

_CONVERT_S = 1800.0
"""135M take 15 s here; billions on a slow disk take minutes; a child that hangs must not hold the lock for ever."""

_MARK = "answerby: "


def convert_gguf(source: Path, target: Path, probe: tuple[str, str], say: Callable[[str], None]) -> str:
    """Fill the empty folder `target` from the GGUF `source` (whose own folder is written to as well); returns the converting library's version.

    Raises:
        SetupError: the child failed, hung, or the converted model answers otherwise than its source.
    """
    command = [sys.executable, "-m", "agents.models.convert", str(source), str(target), str(os.getpid()), *probe]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=_environment()
    )
    watchdog = Timer(_CONVERT_S, process.kill)
    watchdog.start()
    lines: list[str] = []
    try:
        with process:
            for line in process.stdout or ():
                if line.startswith(_MARK):
                    say(line.removeprefix(_MARK).strip())
                lines = [*lines[-20:], line.strip()]
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
    if process.returncode != 0:
        raise SetupError(_explain(process.returncode, lines))
    result = target / "conversion.json"
    made_with = str(json.loads(result.read_text(encoding="utf-8"))["made_with"])
    result.unlink()
    return made_with


def _environment() -> dict[str, str]:
    """The child finds this package wherever its parent did, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def _explain(returncode: int, lines: list[str]) -> str:
    refused = next((line.removeprefix(f"{_MARK}refused: ") for line in lines if line.startswith(f"{_MARK}refused: ")), None)
    if refused is not None:
        return f"the converted model answers otherwise than its source and was not kept ({refused}): try again, or use the GGUF file by its path"
    if returncode < 0:
        return f"the conversion was ended by signal {-returncode}: it needs about 600 MB of memory; free some and try again"
    return f"the conversion failed ({next((line for line in reversed(lines) if line), 'it said nothing')}): try again, or use the GGUF file by its path"
