"""Scrapes of real worker ports, and the arithmetic on hand-made ones."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from streams.broker.probe import free_port
from streams.http import StatusServer
from streams.metrics import Metrics
from streams.scrape import Down, Key, Readiness, Scrape, Values, base_url, bucket_quantile, scrape_all
from tests.support import run

READY = {
    "ready": True,
    "engines": [{"name": "main", "replica": 0, "model": "m", "pid": 7, "state": "ready", "restarts": 0}],
    "partitions": [0, 2],
    "recovery": "done",
}


def made(url: str, values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], at: float = 0.0) -> Scrape:
    """A scrape by hand."""
    return Scrape(url, at, True, Readiness(), values)


@asynccontextmanager
async def worker(metrics: Metrics, *, ready: bool = True) -> AsyncIterator[str]:
    """A worker's real HTTP port; its address."""
    server = StatusServer("127.0.0.1", 0, metrics, health=dict, readiness=lambda: (ready, READY))
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


@asynccontextmanager
async def stranger(body: str) -> AsyncIterator[str]:
    """Some other program's HTTP port."""

    async def serve(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_get("/{any}", serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def test_a_worker_is_read_whole() -> None:
    """Figures and readiness of a real port, ready or not."""

    async def look() -> list[Scrape | Down]:
        metrics = Metrics()
        metrics.events.labels("model", "none").inc(3)
        async with worker(metrics) as one, worker(Metrics(), ready=False) as two:
            return await scrape_all([one, two])

    first, second = run(look())
    assert isinstance(first, Scrape)
    assert isinstance(second, Scrape)
    assert first.ready
    assert first.readiness.partitions == (0, 2)
    assert first.readiness.engines[0]["pid"] == 7
    assert first.values[("answerby_events_total", (("outcome", "model"), ("reason", "none")))] == 3
    assert not second.ready


@pytest.mark.parametrize("body", ["<html>hello</html>", "{}", 'python_info{version="3"} 1\n', ""])
def test_another_program_is_no_worker(body: str) -> None:
    """Something else at the address is told as that, whatever it says."""

    async def look() -> list[Scrape | Down]:
        async with stranger(body) as url:
            return await scrape_all([url])

    (found,) = run(look())
    assert isinstance(found, Down)
    assert "no answerby worker" in found.why


def test_one_that_is_down_does_not_hide_the_others() -> None:
    """A refused connection is a value, and the worker beside it is read."""

    async def look() -> list[Scrape | Down]:
        async with worker(Metrics()) as url:
            return await scrape_all([f"http://127.0.0.1:{free_port()}", url])

    first, second = run(look())
    assert isinstance(first, Down)
    assert first.why
    assert isinstance(second, Scrape)


def test_a_stopped_worker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that accepts and never answers is down after the bound."""
    monkeypatch.setattr("streams.scrape.ASK_S", 0.2)

    async def look() -> list[Scrape | Down]:
        async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            held.append(writer)

        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            return await scrape_all([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
        finally:
            for writer in held:
                writer.close()
            server.close()
            await server.wait_closed()

    (found,) = run(look())
    assert isinstance(found, Down)
    assert "no answer within" in found.why


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:9108", "http://127.0.0.1:9108"),
        ("http://host:9108/", "http://host:9108"),
        ("http://host:9108/metrics", "http://host:9108"),
        ("https://host/answerby/readyz?x=1", "https://host/answerby"),
        ("http://[::1]:9108", "http://[::1]:9108"),
    ],
)
def test_an_address_may_be_written_in_many_ways(text: str, url: str) -> None:
    """With or without scheme, slash and page."""
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["ftp://host", "http://", "http://host:port", "", "unix:///x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """A mistake in an address is told before anything is asked."""
    with pytest.raises(ValueError, match=r".+"):
        base_url(text)


class TestValues:
    """Adding up and taking differences."""

    def test_workers_are_added_up(self) -> None:
        """The same counter of two workers is one figure."""
        key = ("answerby_events_total", (("outcome", "model"), ("reason", "none")))
        total = Values.total([made("a", {key: 3.0}), made("b", {key: 4.0})])
        assert total.sum("answerby_events_total", outcome="model") == 7
        assert total.by("answerby_events_total", "outcome") == {("model",): 7}

    def test_a_difference_needs_both_looks(self) -> None:
        """A worker that has just come is no burst of events; one that went is none either."""
        key = ("n_total", ())
        grown = Values.between([made("a", {key: 3.0}), made("gone", {key: 9.0})], [made("a", {key: 5.0}), made("new", {key: 100.0})])
        assert grown.sum("n_total") == 2

    def test_a_restarted_worker_counts_from_nothing(self) -> None:
        """A counter that is lower than before was begun anew: all of it is new."""
        key = ("n_total", ())
        assert Values.between([made("a", {key: 90.0})], [made("a", {key: 4.0})]).sum("n_total") == 4

    def test_a_new_label_counts_from_nothing(self) -> None:
        """An outcome that was not there before has grown by all it has."""
        assert Values.between([made("a", {})], [made("a", {("n_total", (("x", "1"),)): 4.0})]).sum("n_total") == 4

    def test_a_quantile_is_of_all_labels_that_match(self) -> None:
        """Buckets of two outcomes are one histogram unless one is named."""
        values: dict[Key, float] = {
            ("h_bucket", (("le", bound), ("outcome", outcome))): count
            for outcome, counts in (("a", (10.0, 10.0, 10.0)), ("b", (0.0, 10.0, 10.0)))
            for bound, count in zip(("1.0", "2.0", "+Inf"), counts, strict=True)
        }
        both = Values(values)
        assert both.quantile("h", 0.5) == 1.0
        assert both.quantile("h", 1.0) == 2.0
        assert both.quantile("h", 0.5, outcome="b") == 1.5
        assert both.quantile("h", 0.5, outcome="c") is None


@pytest.mark.parametrize(
    ("cumulative", "share", "expected"),
    [
        ([], 0.5, None),
        ([(1.0, 0.0), (math.inf, 0.0)], 0.5, None),
        ([(1.0, 10.0), (math.inf, 10.0)], 0.5, 0.5),
        ([(1.0, 0.0), (3.0, 10.0), (math.inf, 10.0)], 0.5, 2.0),
        ([(1.0, 5.0), (3.0, 5.0), (4.0, 10.0), (math.inf, 10.0)], 0.75, 3.5),
        ([(1.0, 5.0), (math.inf, 10.0)], 0.99, 1.0),
        ([(-1.0, 5.0), (0.0, 5.0), (math.inf, 10.0)], 0.01, -1.0),
        ([(-1.0, 0.0), (-0.5, 10.0), (math.inf, 10.0)], 0.5, -0.75),
    ],
)
def test_quantiles_are_drawn_straight_between_bounds(cumulative: list[tuple[float, float]], share: float, expected: float | None) -> None:
    """As Prometheus does it: beyond the last finite bound nothing is known, and nothing of nothing."""
    assert bucket_quantile(cumulative, share) == pytest.approx(expected)


def test_readiness_may_say_more_than_is_known() -> None:
    """A newer worker's fields are passed over."""
    body: dict[str, Any] = {**READY, "later": {"x": 1}}

    async def look() -> list[Scrape | Down]:
        server = StatusServer("127.0.0.1", 0, Metrics(), health=dict, readiness=lambda: (True, body))
        await server.start()
        try:
            return await scrape_all([f"http://127.0.0.1:{server.port}"])
        finally:
            await server.stop()

    assert isinstance(run(look())[0], Scrape)
