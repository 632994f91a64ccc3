"""The shared store: the fake in memory and a real Valkey server keep the same promises; what only a server can do to us is tried on the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import pytest

from agents.cache.shared import KEY_PREFIX, MAX_VALUE_BYTES, RedisStore, SharedStore, SharedStoreError, open_shared_store
from agents.cache.testing import MemoryStore
from schemas.deadline import SystemClock
from schemas.errors import ConfigError
from schemas.settings_ladder import Cache
from tests.agents.cache.conftest import OpenStore, Server
from tests.support import run

KEY, OTHER = b"k" * 32, b"o" * 32


def test_what_is_put_is_found_by_all(open_store: OpenStore) -> None:
    """Each key has its own value, whatever bytes it is, and one that was never put has none."""

    async def going() -> None:
        writer, reader = open_store(), open_store()
        await writer.put(KEY, b"\x00yes\xff", 60, replace=False)
        assert await reader.get_many([OTHER, KEY]) == [None, b"\x00yes\xff"]
        await reader.close()
        await writer.close()

    run(going())


def test_only_who_replaces_changes_a_value(open_store: OpenStore) -> None:
    """An answer never takes the place of the mark that it is wrong; the mark takes an answer's."""

    async def going() -> None:
        store = open_store()
        await store.put(KEY, b"answer", 60, replace=False)
        await store.put(KEY, b"wrong", 60, replace=True)
        await store.put(KEY, b"answer", 60, replace=False)
        assert await store.get_many([KEY]) == [b"wrong"]
        await store.close()

    run(going())


def test_values_end_with_their_time(open_store: OpenStore) -> None:
    """Without anybody taking them away."""

    async def going() -> None:
        store = open_store()
        await store.put(KEY, b"yes", 0.05, replace=False)
        await store.put(OTHER, b"still", 60, replace=False)
        async with asyncio.timeout(10):
            while await store.get_many([KEY]) != [None]:  # noqa: ASYNC110  # a server tells nobody of an end
                await asyncio.sleep(0.01)
        assert await store.get_many([KEY, OTHER]) == [None, b"still"]
        await store.close()

    run(going())


def test_no_more_than_a_bound_is_read_of_a_large_value(open_store: OpenStore) -> None:
    """One byte above the largest of ours says that it is none."""

    async def going() -> None:
        store = open_store()
        await store.put(KEY, b"x" * (MAX_VALUE_BYTES + 1000), 60, replace=False)
        (found,) = await store.get_many([KEY])
        assert found is not None
        assert len(found) == MAX_VALUE_BYTES + 1
        await store.close()

    run(going())


async def refuses(call: Awaitable[object], within_s: float = 10.0) -> str:
    """It raises what the caller expects, in bounded time; what it says."""
    began = time.monotonic()
    with pytest.raises(SharedStoreError, match=r"cache\.shared") as refused:
        await call
    assert time.monotonic() - began < within_s
    return str(refused.value)


def test_clearing_takes_ours_alone(valkey: Server) -> None:
    """Every kept answer goes, thousands of them too, and what other programs keep there stays."""

    async def going() -> None:
        store = RedisStore(valkey.url)
        assert await store.clear() == 0
        for number in range(2500):
            await store.put(number.to_bytes(32, "big"), b"yes", 60, replace=False)
        assert await store.clear() == 2500
        assert await store.get_many([bytes(32)]) == [None]
        await store.close()

    with valkey.client() as client:
        client.set("theirs", "1")
        run(going())
        assert client.get("theirs") == b"1"


def test_values_of_another_type_are_none(valkey: Server) -> None:
    """A list under our key hides its neighbours from nobody."""
    with valkey.client() as client:
        client.rpush((KEY_PREFIX + KEY.hex().encode()).decode(), "a")

    async def going() -> None:
        store = RedisStore(valkey.url)
        await store.put(OTHER, b"yes", 60, replace=False)
        assert await store.get_many([KEY, OTHER]) == [None, b"yes"]
        await store.close()

    run(going())


def test_a_full_server_refuses_writes_and_is_still_read(valkey: Server) -> None:
    """Its refusal is an error of the write alone."""

    async def going() -> None:
        store = RedisStore(valkey.url)
        await store.put(KEY, b"yes", 60, replace=False)
        with valkey.client() as client:
            client.config_set("maxmemory", 1)
        await refuses(store.put(OTHER, b"no", 60, replace=False))
        assert await store.get_many([KEY, OTHER]) == [b"yes", None]
        await store.close()

    run(going())


def test_a_server_without_rights_for_us_is_an_error(valkey: Server) -> None:
    """A reader that may not read says so, instead of finding nothing for ever."""
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+set")

    async def going() -> None:
        store = RedisStore(valkey.url.replace("redis://", "redis://blind:pw@"))
        assert "no permissions" in await refuses(store.get_many([KEY]))
        await store.close()
        wrong = RedisStore(valkey.url.replace("redis://", "redis://blind:other@"))
        assert "AuthenticationError" in await refuses(wrong.get_many([KEY]))
        await wrong.close()

    run(going())


def test_a_user_with_two_rights_is_enough(valkey: Server) -> None:
    """What the guide tells an operator to allow is all that is used."""
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "answerby", "on", ">pw", "~answerby:cache:*", "+set", "+getrange")

    async def going() -> None:
        store = RedisStore(valkey.url.replace("redis://", "redis://answerby:pw@"))
        await store.put(KEY, b"yes", 60, replace=True)
        assert await store.get_many([KEY]) == [b"yes"]
        await store.close()

    run(going())


def test_a_server_that_is_killed_comes_back(own_valkey: Server) -> None:
    """While it is gone every call fails in bounded time, and the same client serves when it is there again."""

    async def going() -> None:
        store = RedisStore(own_valkey.url)
        await store.put(KEY, b"yes", 60, replace=False)
        own_valkey.stop()
        await refuses(store.get_many([KEY]))
        await refuses(store.put(KEY, b"yes", 60, replace=False))
        own_valkey.restart()
        assert await store.get_many([KEY]) == [None]
        await store.close()

    run(going())


@pytest.mark.parametrize("says", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"*x\r\n", b"$5\r\nab", b"+OK\r\n:1\r\n*3\r\n", b""])
def test_whatever_listens_at_the_address_is_an_error_at_worst(says: bytes) -> None:
    """A server that speaks another language, half a sentence or nothing is refused in bounded time."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(says)
        await reader.read()
        writer.close()

    async def going() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        store = RedisStore(f"redis://127.0.0.1:{port}")
        assert "\n" not in await refuses(store.get_many([KEY]))
        await store.close()
        server.close()
        await asyncio.sleep(0.05)

    run(going())


def test_the_fake_fails_to_order() -> None:
    """Gone, it refuses everything; full, it refuses writes."""

    async def going() -> None:
        store = MemoryStore(SystemClock())
        store.is_full = True
        with pytest.raises(SharedStoreError):
            await store.put(KEY, b"yes", 60, replace=False)
        assert await store.get_many([KEY]) == [None]
        store.is_gone = True
        with pytest.raises(SharedStoreError):
            await store.get_many([KEY])

    run(going())


def test_the_setting_says_whether_there_is_one() -> None:
    """No address, no store; what is no address is a wrong setting."""
    assert open_shared_store(Cache()) is None
    for address in ("localhost:6379", "redis://:secret/more@localhost"):
        with pytest.raises(ConfigError, match=r"cache\.shared") as raised:
            open_shared_store(Cache(shared=address))
        assert "secret" not in str(raised.value)

    async def going() -> SharedStore | None:
        store = open_shared_store(Cache(shared="redis://127.0.0.1:1/0"))
        assert store is not None
        await store.close()
        return store

    assert run(going()) is not None
