"""What is read from a worker's log after a kill; kills themselves run in `live`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from bench.survival import read_starts


def line(at: float, event: str, **more: Any) -> str:
    """As a worker logs it."""
    return json.dumps({"event": event, "timestamp": datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z"), **more})


def test_each_start_is_told_by_its_first_marks() -> None:
    """Seconds since the kill, of the start that followed it: later rebalances, earlier starts and lines that are no JSON do not count."""
    text = "\n".join(
        (
            line(99.0, "status port"),
            "Traceback of something",
            line(102.5, "status port"),
            line(103.0, "engine", state="starting"),
            line(104.0, "engine", state="ready"),
            line(106.5, "[^--BatchRecovery]: Highwater for active changelog partitions"),
            line(107.0, "partition begins", partition=0),
            line(107.5, "[^--BatchRecovery]: Highwater for active changelog partitions"),
            line(203.0, "status port"),
        )
    )
    assert read_starts(text, [100.0, 200.0]) == {
        100.0: {"imported": 2.5, "engines": 4.0, "joined": 6.5, "placed": 7.0},
        200.0: {"imported": 3.0},
    }
