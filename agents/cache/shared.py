"""The store that workers may share, and the one file that talks to Redis or Valkey; when it is asked, and what it may cost, is `agents.cache.backing`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

import structlog

from schemas.errors import AnswerbyError, ConfigError
from schemas.settings_ladder import Cache

log = structlog.get_logger(__name__)

KEY_PREFIX = b"answerby:cache:1:"
"""Other programs may use the same store; the number counts with the form of what stands there."""

MAX_VALUE_BYTES = 64 * 1024
"""Of one kept answer in the store. Of what others put under our keys no more than this is ever read."""

ROUND_S = 0.5
"""The longest round trip, and the longest connecting: nobody waits for it (see `cache.shared_ms`), after it the store counts as gone."""


class SharedStoreError(AnswerbyError):
    """Raised when the shared store cannot be reached or refuses; answers come from elsewhere meanwhile. Check the address in cache.shared and its log."""


class SharedStore(Protocol):
    """Bytes by key, with an end; every call returns or raises within about `ROUND_S`."""

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """What stands under each key, cut to `MAX_VALUE_BYTES` and one more; None where nothing does.

        Raises:
            SharedStoreError: it did not answer.
        """

    async def put(self, key: bytes, value: bytes, ttl_s: float, *, replace: bool) -> None:
        """Keep `value` for `ttl_s` seconds; without `replace` what stands there already stays.

        Raises:
            SharedStoreError: it did not answer, or has no room.
        """

    async def close(self) -> None:
        """Let go of the connections; never raises."""


class RedisStore:
    """Redis or Valkey, over at most two connections: one for reads, one for writes."""

    def __init__(self, url: str) -> None:
        """Make the client; the first call connects.

        Raises:
            ConfigError: the address is none.
        """
        import redis.asyncio as redis  # noqa: PLC0415  # a worker without a shared store does not wait for it: a quarter of a second of its start
        from redis.asyncio.retry import Retry  # noqa: PLC0415  # as above
        from redis.backoff import NoBackoff  # noqa: PLC0415  # as above

        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=ROUND_S,
                socket_connect_timeout=ROUND_S,
                retry=Retry(NoBackoff(), 0),
                max_connections=2,
                protocol=2,
            )
        except ValueError:  # its text may quote a piece of a password that was not escaped
            raise ConfigError("cache.shared", "is no address", "write redis://HOST:PORT/0, or rediss://… for TLS; signs like / in a password as %2F") from None

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """All in one round trip. GETRANGE, not GET: what a stranger put there may be of any size; of another type it counts as nothing."""
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.getrange(_name(key), 0, MAX_VALUE_BYTES)
        found = await self._ask(pipe.execute(raise_on_error=False))
        for value in found:
            if isinstance(value, Exception) and not str(value).startswith("WRONGTYPE"):
                raise SharedStoreError(f"cache.shared refuses to be read: {value}")
        return [value if isinstance(value, bytes) and value else None for value in found]

    async def put(self, key: bytes, value: bytes, ttl_s: float, *, replace: bool) -> None:
        """SET with PX, and NX unless it replaces."""
        await self._ask(self._client.set(_name(key), value, px=max(1, round(ttl_s * 1000)), nx=not replace))

    async def clear(self) -> int:
        """Delete every answer, of all workers, a thousand keys at a time; how many there were.

        Raises:
            SharedStoreError: it did not answer; some may be left.
        """
        count, place = 0, 0
        while True:
            place, names = await self._ask(self._client.scan(place, match=KEY_PREFIX + b"*", count=1000))
            if names:
                count += int(await self._ask(self._client.delete(*names)))
            if place == 0:
                return count

    async def close(self) -> None:
        """Close the connections; one that is broken is let go of."""
        try:
            await self._client.aclose()
        except Exception as error:  # the library's trouble on the way out must not keep the worker from stopping
            log.debug("the shared cache's connections did not close cleanly", error=repr(error))

    async def _ask(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except Exception as error:  # the edge of the library: whatever listens at the address may send bytes that its parser stumbles over
            await self._client.connection_pool.disconnect(inuse_connections=False)
            raise SharedStoreError(f"cache.shared does not answer: {error!r}") from error


def open_shared_store(settings: Cache) -> SharedStore | None:
    """The store that the settings name, if any.

    Raises:
        ConfigError: the address is none.
    """
    return RedisStore(settings.shared) if settings.shared else None


def _name(key: bytes) -> bytes:
    return KEY_PREFIX + key.hex().encode()
