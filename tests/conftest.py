"""Fixtures for every folder, and the checks that no test leaves a process, a thread or a task behind; helpers to import are in `tests.support`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from schemas.settings import App, Kafka, Settings
from streams.broker.testing import running_broker
from tests.support import abandoned_tasks, child_processes, foreground_threads, leftovers

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _own_environment() -> Iterator[None]:
    """The developer's own answerby settings are not the suite's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ANSWERBY__")]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose child processes, foreground threads or tasks outlive it; what wider fixtures started is theirs."""
    children, threads = child_processes(), foreground_threads()
    with abandoned_tasks() as abandoned:
        yield
    left = leftovers(children, threads) + abandoned
    if left:
        pytest.fail(f"{request.node.name} left behind: {'; '.join(left)}", pytrace=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `$ANSWERBY_HOME` of the test's own."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("ANSWERBY_HOME", str(path))
    return path


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """`host:port` of the one real broker that the whole run shares; tests keep apart by topic prefix and application id (`kafka_settings`)."""
    with running_broker() as bootstrap:
        yield bootstrap


@pytest.fixture
def kafka_settings(broker: str) -> Settings:
    """Settings for the shared broker, with topics and a consumer group that no other test uses."""
    number = next(_numbers)
    return Settings(app=App(id=f"test-{number}"), kafka=Kafka(bootstrap=broker, topic_prefix=f"t{number}-"))
