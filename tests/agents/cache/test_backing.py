"""Workers that share a store: they give each other's answers, hear of wrong ones, and never wait for a store that is gone, slow, full or foreign."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from agents.cache import backing as backing_module
from agents.cache.backing import Backing
from agents.cache.envelope import Envelope, seal, unseal
from agents.cache.exact import CacheEvent, event_digest
from agents.cache.key import Identifier, Identity
from agents.cache.rung import RECHECK_S
from agents.cache.shared import RedisStore, SharedStore
from agents.cache.testing import MemoryStore
from agents.ladder import Given
from schemas.deadline import ManualClock, SystemClock
from schemas.settings import Settings
from tests.agents.cache.cache_support import MODEL, Budget, Cache, question, said, settings_with
from tests.agents.cache.conftest import OpenStore, Server
from tests.support import run

PATIENT = settings_with(cache={"ttl_s": 60, "shared": "redis://somewhere", "shared_ms": 1000})
"""For tests of what is found: a busy machine must not make the store look slow."""

HASTY = settings_with(cache={"ttl_s": 60, "shared": "redis://somewhere", "shared_ms": 5})

PAY = question("How do I pay?", settings=PATIENT)


async def becomes(what: Callable[[], bool]) -> None:
    """Wait for something that happens in the background."""
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110  # nobody tells when the background has done it
            await asyncio.sleep(0.005)


async def comes_to(cache: Cache, text: str | None) -> None:
    """Wait until a question is answered so; each asker is another one."""
    async with asyncio.timeout(20):
        number = 0
        while await cache.gives(question("How do I pay?", event=f"look {number}")) != text:
            number += 1
            await asyncio.sleep(0.005)


@asynccontextmanager
async def worker(store: SharedStore, settings: Settings = PATIENT, clock: ManualClock | None = None) -> AsyncIterator[Cache]:
    """One worker's cache over a store, running until the end of the block."""
    cache = Cache(settings, clock=clock or SystemClock(), store=store)
    await cache.rung.start()
    try:
        yield cache
    finally:
        await cache.rung.stop()


def test_one_workers_answer_serves_another(open_store: OpenStore) -> None:
    """Text and writer cross over; another tenant's question finds nothing."""

    async def going() -> None:
        async with worker(open_store()) as one, worker(open_store()) as other:
            await becomes(lambda: one.rung.shared_up and other.rung.shared_up)
            await one.teach(PAY, "By card.")
            await comes_to(other, "By card.")
            assert other.counts["shared_hit"] == 1
            assert await other.gives(question("How do I pay?", tenant="acme")) is None
            found = await other.walk(PAY, None)
            assert isinstance(found, Given)
            assert (found.outcome, found.model) == ("cache", MODEL)

    run(going())


def test_a_wrong_answer_is_gone_at_every_worker(open_store: OpenStore) -> None:
    """Feedback at one of them reaches the store, those that have a copy ask again in a moment, and nobody brings it back."""

    async def going() -> None:
        clock = ManualClock()
        async with worker(open_store(), clock=clock) as one, worker(open_store(), clock=clock) as other, worker(open_store(), clock=clock) as third:
            await becomes(lambda: one.rung.shared_up and other.rung.shared_up and third.rung.shared_up)
            await one.teach(PAY, "With shells.")
            await comes_to(other, "With shells.")
            assert one.rung.evict("default", "s", "e")
            assert await one.gives(PAY) is None
            clock.advance(RECHECK_S)
            async with asyncio.timeout(20):
                while await other.gives(PAY) is not None:
                    clock.advance(RECHECK_S / 100)
            await third.walk(PAY, None)
            await third.walk(PAY, said("With shells."))
            assert await third.gives(PAY) is None

    run(going())


def test_feedback_finds_what_another_worker_gave(open_store: OpenStore) -> None:
    """The event was answered before its partition moved here: the note that went with the answer leads to it."""

    async def going() -> None:
        async with worker(open_store()) as one, worker(open_store()) as other:
            await becomes(lambda: one.rung.shared_up and other.rung.shared_up)
            await one.teach(PAY, "With shells.")
            await comes_to(other, "With shells.")
            assert not other.rung.evict("default", "s", "e")
            await comes_to(other, None)
            assert other.counts["withdrawn"] == 1

    run(going())


def test_a_store_that_was_never_there_costs_nothing() -> None:
    """The address refuses: answers are kept and given in memory, no event waits, and stopping takes no time to speak of."""

    async def going() -> None:
        async with worker(RedisStore("redis://127.0.0.1:1/0"), HASTY) as cache:
            await asyncio.sleep(0.05)
            assert not cache.rung.shared_up
            await cache.teach(PAY, "By card.")
            assert await cache.gives(PAY) == "By card."
            assert cache.rung.evict("default", "s", "e")
            assert await cache.gives(PAY) is None
            assert cache.counts["shared_late"] == 0

    run(going())


def test_a_store_that_hangs_is_left_alone_after_one_wait(own_valkey: Server) -> None:
    """A stopped server answers nothing: each of the first events waits `shared_ms` at most, the rest not at all, and it is asked again when it goes on."""

    async def going() -> None:
        async with worker(RedisStore(own_valkey.url), HASTY) as cache:
            await becomes(lambda: cache.rung.shared_up)
            os.kill(own_valkey.process.pid, signal.SIGSTOP)
            try:
                for number in range(100):
                    assert await cache.gives(question(f"question {number}?", settings=HASTY)) is None
                assert not cache.rung.shared_up
                assert 1 <= cache.counts["shared_late"] <= backing_module.LATE_IN_A_ROW
            finally:
                os.kill(own_valkey.process.pid, signal.SIGCONT)
            await becomes(lambda: cache.rung.shared_up)

    run(going())


def test_a_store_that_is_always_too_slow_is_left_alone() -> None:
    """Its answers come, each before the next event asks, but later than events wait: after a few waits nobody asks it any more, until it is quicker."""
    settings = settings_with(cache={"ttl_s": 60, "shared_ms": 100})

    async def going() -> None:
        store = MemoryStore(SystemClock())
        async with worker(store, settings) as cache:
            await becomes(lambda: cache.rung.shared_up)
            await cache.gives(question("In time?"))
            store.delay_s = 0.15
            for number in range(20):
                before = cache.counts["shared_late"]
                assert await cache.gives(question(f"question {number}?")) is None
                if cache.counts["shared_late"] > before:
                    await asyncio.sleep(2 * store.delay_s)  # its answer comes, to nobody
            assert not cache.rung.shared_up
            assert 1 <= cache.counts["shared_late"] <= backing_module.LATE_IN_A_ROW
            store.delay_s = 0.0
            await becomes(lambda: cache.rung.shared_up)

    run(going())


def test_a_store_that_comes_back_is_used_again(own_valkey: Server) -> None:
    """Killed and started anew it is found by the background, without any event asking; wrong answers of the meantime are told to it."""

    async def going() -> None:
        async with worker(RedisStore(own_valkey.url)) as one:
            await becomes(lambda: one.rung.shared_up)
            await one.teach(PAY, "With shells.")
            own_valkey.stop()
            await one.gives(question("Anything?"))
            await becomes(lambda: not one.rung.shared_up)
            assert one.rung.evict("default", "s", "e")
            own_valkey.restart()
            await becomes(lambda: one.rung.shared_up)
            async with worker(RedisStore(own_valkey.url)) as other:
                await becomes(lambda: other.rung.shared_up)
                async with asyncio.timeout(20):
                    while other.counts["skipped"] == 0:
                        await other.gives(PAY)

    run(going())


def test_a_store_that_is_full_breaks_nothing() -> None:
    """Writes are lost and counted, what is in memory is given as ever."""

    async def going() -> None:
        store = MemoryStore(SystemClock())
        store.is_full = True
        async with worker(store) as cache:
            await becomes(lambda: cache.rung.shared_up)
            await cache.teach(PAY, "By card.")
            await becomes(lambda: cache.counts["shared_error"] >= 1)
            assert cache.rung.shared_up
            assert await cache.gives(PAY) == "By card."

    run(going())


def test_writes_beyond_the_queue_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store slower than the answers loses some, counted; memory stays flat, nobody waits, and what was queued arrives."""
    monkeypatch.setattr(backing_module, "MAX_WRITES", 3)

    async def going() -> None:
        store, counts = MemoryStore(SystemClock()), Counter[CacheEvent]()
        backing = Backing(store, wait_s=1.0, clock=SystemClock(), count=lambda event: counts.update([event]), on_noted=lambda _key, _ttl_s: None)
        await backing.start()
        await becomes(lambda: backing.is_up)
        store.answering.clear()
        for number in range(10):
            backing.put("answer", bytes([number]), b"yes", 60)
        assert counts["shared_dropped"] == 7
        store.answering.set()
        await backing.stop()
        assert [value is not None for value in await store.get_many([bytes([number]) for number in range(5)])] == [True, True, True, False, False]

    run(going())


async def key_of(asked_settings: Settings = PATIENT) -> bytes:
    """The key of `PAY`."""
    identity = Identifier(asked_settings, lambda _: MODEL).identify(PAY)
    assert isinstance(identity, Identity)
    return identity.key


FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "noise": lambda _: b"\xc1\x00noise",
    "another key's": lambda _: seal("answer", b"x" * 32, b"", 9_000_000_000_000),
    "no answer inside": lambda key: seal("answer", key, b"noise", 9_000_000_000_000),
    "over": lambda key: seal("closed", key, b"", 1),
    "a note where an answer should be": lambda key: seal("note", key, b"x" * 32, 9_000_000_000_000),
    "far too large": lambda _: b"x" * 300_000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_bytes_are_a_miss(name: str, open_store: OpenStore) -> None:
    """What others put under our keys is given to nobody, and counted."""

    async def going() -> None:
        store = open_store()
        key = await key_of()
        await store.put(key, FOREIGN[name](key), 60, replace=True)
        async with worker(store) as cache:
            await becomes(lambda: cache.rung.shared_up)
            assert await cache.gives(PAY) is None
            assert cache.counts["shared_error"] == 1

    run(going())


def test_a_note_without_an_end_holds_nothing_up(valkey: Server) -> None:
    """A complaint about an answer whose note claims to live for ever reaches the store, and what is written after it does too."""

    async def going() -> None:
        stranger = RedisStore(valkey.url)
        event, key = event_digest("default", "s", "e"), await key_of()
        await stranger.put(event, seal("note", event, key, 2**64 - 1), 60, replace=True)
        async with worker(RedisStore(valkey.url)) as one, worker(RedisStore(valkey.url)) as other:
            await becomes(lambda: one.rung.shared_up and other.rung.shared_up)
            assert not one.rung.evict("default", "s", "e")
            async with asyncio.timeout(20):
                while other.counts["skipped"] == 0:
                    await other.gives(PAY)
            later = question("And by phone?", event="later", settings=PATIENT)
            await one.teach(later, "Call us.")
            async with asyncio.timeout(20):
                while await other.gives(later) != "Call us.":  # noqa: ASYNC110  # nobody tells when the background has written it
                    await asyncio.sleep(0.01)
        await stranger.close()

    run(going())


def test_waiting_for_the_store_ends_with_the_budget() -> None:
    """An event with less time than `shared_ms` waits no longer than that, and is counted as a miss."""

    async def going() -> float:
        store = MemoryStore(SystemClock())
        async with worker(store) as cache:
            await becomes(lambda: cache.rung.shared_up)
            store.answering.clear()
            began = time.monotonic()
            assert not isinstance(await cache.walk(PAY, None, Budget(0.05)), Given)
            waited = time.monotonic() - began
            store.answering.set()
        return waited

    assert run(going()) < 0.9  # shared_ms is 1000


def test_many_events_make_one_round_trip() -> None:
    """A hundred different questions at once are one call to the store."""

    async def going() -> None:
        store = MemoryStore(SystemClock())
        async with worker(store) as cache:
            await becomes(lambda: cache.rung.shared_up)
            before = store.calls
            await asyncio.gather(*(cache.gives(question(f"question {number}?")) for number in range(100)))
            assert store.calls - before == 1

    run(going())


def test_an_envelope_opens_for_its_own_key_alone() -> None:
    """Version, key and end are part of it."""
    sealed = seal("answer", b"k", b"yes", 1000)
    assert unseal(sealed, b"k", 999) == Envelope(1, b"k", "answer", 1000, b"yes")
    assert unseal(sealed, b"k", 1000) is None
    assert unseal(sealed, b"other", 0) is None
    assert unseal(sealed[:-1], b"k", 0) is None
    assert unseal(sealed.replace(b"\x01", b"\x02", 1), b"k", 0) is None
