"""Records one start of the broker, so that later ones load its classes from one file: about 3 s become 1.3 s; `streams.broker.process` uses it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from streams.broker.jars import kafka_home
from streams.broker.process import BrokerOptions, EmbeddedBroker
from streams.broker.recording import NAME, QUIET, recording_path
from streams.home import file_lock

_RECORDING_S = 120.0
"""Writing the file takes 8 s after a start of 5; a machine too busy for this goes without it, which costs time and nothing else."""


def record_start() -> bool:
    """Run a broker once and keep the recording; whether there is one now. Does nothing when there is one already.

    Raises:
        SetupError: the broker itself cannot be started.
    """
    target = recording_path()
    if target.is_file():
        return True
    home = kafka_home()
    home.mkdir(parents=True, exist_ok=True)
    with file_lock(home / ".recording.lock", 2 * _RECORDING_S, "another process is recording the broker's start"):
        if not target.is_file():
            with tempfile.TemporaryDirectory(prefix="recording-", dir=home) as scratch:
                broker = EmbeddedBroker(BrokerOptions(data_dir=Path(scratch), jvm_flags=(f"-XX:AOTCacheOutput={NAME}", *QUIET)))
                broker.start()
                broker.stop(_RECORDING_S)
                recorded = Path(scratch) / NAME
                if recorded.is_file():
                    recorded.replace(target)
    return target.is_file()
