"""The worker's HTTP port: /metrics, /healthz and /readyz; the public HTTP edge is the gateway's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from schemas.errors import SetupError
from streams.metrics import CONTENT_TYPE, Metrics

STOP_S = 1.0
"""A scraper that holds its connection must not hold the worker's stop."""


class StatusServer:
    """Serves what the worker says of itself; a slow scraper costs the loop nothing, rendering is done in a thread."""

    def __init__(
        self, host: str, port: int, metrics: Metrics, *, health: Callable[[], dict[str, Any]], readiness: Callable[[], tuple[bool, dict[str, Any]]]
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._health = health
        self._readiness = readiness
        self._runner: web.AppRunner | None = None
        self.port = port

    async def start(self) -> None:
        """Listen. Raises SetupError when the port is taken or the address is not ours."""
        app = web.Application()
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/healthz", self._serve_health)
        app.router.add_get("/readyz", self._serve_readiness)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=STOP_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            self._runner = None
            why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            text = f"{self._host}:{self._port} {why}: set worker.metrics_port (0 takes a free one) or worker.metrics_host"
            raise SetupError(text) from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        body = await asyncio.to_thread(self._metrics.render)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _serve_health(self, _: web.Request) -> web.Response:
        return _json(200, self._health())

    async def _serve_readiness(self, _: web.Request) -> web.Response:
        ready, body = self._readiness()
        return _json(200 if ready else 503, body)


def _json(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
