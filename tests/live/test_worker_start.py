"""Live tests of a worker that cannot start: one line that says what to do, the right exit code, no traceback, nothing left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.live_support import fresh, worker_toml
from tests.support import run

pytestmark = pytest.mark.live

START_S = 60.0
"""Generous: says only that a start that cannot work does not hang."""


def start(folder: Path, config: str, **environment: str) -> tuple[int, str]:
    """Run `answerby worker` to its end; returns its exit code and the last line of standard error."""
    path = folder / "answerby.toml"
    path.write_text(config)
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", "worker", "-c", str(path)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    last = done.stderr.splitlines()[-1]
    assert errors == [last], done.stderr
    return done.returncode, last


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"worker": {"metrik_port": 1}}, "worker.metrik_port"),
    "a value out of its range": ({"kafka": {"partitions": 0}}, "kafka.partitions"),
    "a bootstrap address that is none": ({"kafka": {"bootstrap": "nonsense"}}, "kafka.bootstrap"),
}
"""One of each place where settings are judged; every other rule is tested beside `agents.cli.config`."""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_one_line_and_exit_2(tmp_path: Path, name: str) -> None:
    """The line names the key."""
    sections, key = WRONG[name]
    code, line = start(tmp_path, worker_toml("127.0.0.1:1", "wrong", **sections))
    assert code == 2, line
    assert line.startswith(f"error: {key}"), line


def test_a_data_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A path below a file is nobody's folder, whoever runs the worker."""
    (tmp_path / "file").write_text("")
    code, line = start(tmp_path, worker_toml("127.0.0.1:1", "wrong", worker={"store": "rocksdb", "data_dir": str(tmp_path / "file" / "data")}))
    assert code == 2
    assert line.startswith("error: worker.data_dir")


def test_a_missing_model_is_said_with_the_command_that_brings_it(tmp_path: Path, broker: str) -> None:
    """Exit 1: something outside is not ready."""
    home = tmp_path / "home"
    home.mkdir()
    code, line = start(tmp_path, worker_toml(broker, fresh("model"), models=[{"engine": "openvino", "path": "smollm2-135m"}]), ANSWERBY_HOME=str(home))
    assert code == 1, line
    assert "smollm2-135m" in line
    assert "answerby models pull" in line


def test_a_taken_port_is_said_with_the_key_that_moves_it(tmp_path: Path, broker: str) -> None:
    """Exit 1, at once."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, line = start(tmp_path, worker_toml(broker, fresh("port"), worker={"metrics_port": port}))
    assert code == 1
    assert f"127.0.0.1:{port} is taken" in line
    assert "worker.metrics_port" in line


def test_topics_that_do_not_fit_are_refused_with_the_way_out(tmp_path: Path, broker: str) -> None:
    """A topic with another partition count than the tables' is refused before anything is read."""
    name = fresh("mismatch")

    async def make() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(f"{name}-interactions", 3, 1)])
        finally:
            await admin.close()

    run(make())
    code, line = start(tmp_path, worker_toml(broker, name))
    assert code == 1
    assert f"{name}-interactions" in line
    assert "3" in line


def test_a_worker_that_waits_for_its_broker_leaves_when_it_is_told_to(tmp_path: Path) -> None:
    """SIGTERM during the wait ends it at once, with exit 0."""
    path = tmp_path / "answerby.toml"
    path.write_text(worker_toml("127.0.0.1:1", "waiting"))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "agents.cli", "worker", "-c", str(path)], stderr=log)
        try:
            until = time.monotonic() + START_S
            while b"status port" not in (tmp_path / "log").read_bytes():
                assert time.monotonic() < until
                time.sleep(0.05)
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()
    assert b"Traceback" not in (tmp_path / "log").read_bytes()
