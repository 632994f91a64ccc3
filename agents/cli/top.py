"""`answerby top`: what the workers are doing, live; single answers as they come are `watch`."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from agents.cli.config import load_settings
from schemas.errors import ConfigError, SetupError, UsageError
from schemas.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.cli.top_figures import Figures
    from streams.scrape import Down, Scrape

SHORTEST_S, LONGEST_S = 0.1, 3600.0
"""Rendering its metrics costs a worker milliseconds: oftener than ten times a second it would be felt."""

PLAIN_WIDTH = 140
"""Columns where there is no terminal."""


def top(
    *,
    url: Annotated[tuple[str, ...], Parameter(help="a worker's HTTP port, may be given several times [default: worker.metrics_host and _port]")] = (),
    interval: Annotated[float, Parameter(help="seconds between two looks, which rates are taken over")] = 1.0,
    once: Annotated[bool, Parameter(negative="", help="look twice, print once, exit 1 when no worker answers")] = False,
    json: Annotated[bool, Parameter(negative="", help="print one line of JSON for each look")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Show what the workers are doing, until Ctrl-C: events by outcome, time in each stage, slack to the deadline, engines, tokens, broken promises.

    Several workers are added up, except for their engines. A worker that does not answer is shown as down.

    Example: answerby top --url http://127.0.0.1:9108
    """
    if not SHORTEST_S <= interval <= LONGEST_S or math.isnan(interval):
        msg = f"--interval {interval:g} is out of range: use {SHORTEST_S:g} to {LONGEST_S:g} seconds"
        raise UsageError(msg)
    urls = _addresses(url) if url else [_own_address(load_settings(config))]
    try:
        asyncio.run(_once(urls, interval, json=json) if once else _live(urls, interval, json=json))
    except KeyboardInterrupt:  # how it is meant to end
        return 0
    return 0


def _addresses(texts: Sequence[str]) -> list[str]:
    from streams.scrape import base_url

    try:
        return list(dict.fromkeys(base_url(text) for text in texts))
    except ValueError as error:
        msg = f"--url {' '.join(texts)} is wrong ({error}): write for instance --url http://127.0.0.1:9108"
        raise UsageError(msg) from None


def _own_address(settings: Settings) -> str:
    host, port = settings.worker.metrics_host, settings.worker.metrics_port
    if port == 0:
        raise ConfigError("worker.metrics_port", "0 takes a free port, which the worker logs", "name it by --url")
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # what it listens on is not always where it can be reached
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


async def _once(urls: list[str], interval: float, *, json: bool) -> None:
    from streams.scrape import Down, scrape_all

    before = await scrape_all(urls)
    if not all(isinstance(one, Down) for one in before):
        await asyncio.sleep(interval)
    after = await scrape_all(urls)
    down = [one for one in after if isinstance(one, Down)]
    if len(down) == len(after):
        msg = f"no worker answers at {', '.join(one.url for one in down)} ({down[0].why}): start one with `answerby worker`, or name its port by --url"
        raise SetupError(msg)
    _print(before, after, json=json)


async def _live(urls: list[str], interval: float, *, json: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    from agents.cli.top_view import top_view
    from streams.scrape import scrape_all

    before = await scrape_all(urls)
    console = Console(highlight=False)
    if json or not console.is_terminal:
        while True:
            await asyncio.sleep(interval)
            after = await scrape_all(urls)
            _print(before, after, json=json)
            before = after
    with Live(top_view(_figures(before, before)), console=console, screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(interval)
            after = await scrape_all(urls)
            live.update(top_view(_figures(before, after)), refresh=True)
            before = after


def _print(before: Sequence[Scrape | Down], after: Sequence[Scrape | Down], *, json: bool) -> None:
    figures = _figures(before, after)
    if json:
        sys.stdout.write(f"{msgspec.json.encode(figures).decode()}\n")
        sys.stdout.flush()
        return
    from rich.console import Console

    from agents.cli.top_view import top_view

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PLAIN_WIDTH)
    console.print(top_view(figures))


def _figures(before: Sequence[Scrape | Down], after: Sequence[Scrape | Down]) -> Figures:
    from agents.cli.top_figures import figures_of

    return figures_of(before, after)
