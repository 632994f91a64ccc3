"""Live test of a disk that takes no more: no event is to blame for it, so none may pay."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.live_support import WAIT_S, Wire, fresh, running_worker, worker_toml

MOST_BYTES = 65_536
"""Of any one file the worker writes from then on: below a store's log, above its own log of a start."""


def test_a_full_disk_ends_the_worker_and_costs_no_event(broker: str, tmp_path: Path) -> None:
    """A table that cannot be written is one line and exit 1; no event becomes a dead letter or is left hanging, and all are answered when there is room."""
    name = fresh("disk")
    config = worker_toml(broker, name, worker={"store": "rocksdb", "data_dir": str(tmp_path / "data")})
    with running_worker(tmp_path, config) as worker, Wire(broker, name) as wire:
        wire.ask({"event_id": "before", "session_id": "s", "text": "hi"})
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        asked = [f"e{number}" for number in range(100)]
        for number, event_id in enumerate(asked):
            wire.send({"event_id": event_id, "session_id": f"s{number % 8}", "text": "x" * 5000})
        assert worker.await_end(WAIT_S) == 1
        last = worker.log_text().splitlines()[-1]
        assert last.startswith("error: a table in worker.data_dir failed (IO error: "), last
        worker.start(arguments=["--rebuild-state"])
        wire.await_that(lambda: all(event_id in wire.answers for event_id in asked), "every event's answer")
        wire.await_no_lag()
        assert not wire.dead
        assert all(len({seen.value for seen in wire.answers[event_id]}) == 1 for event_id in asked)
