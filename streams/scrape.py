"""What one worker's HTTP port says at one moment, and what changed between two; serving it is `http`, showing it is the command `top`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from streams.metrics import Sample, parse_exposition

ASK_S = 2.0
"""A worker whose loop is stopped must not hold up the view of the others; one that is alive renders in milliseconds."""

LONGEST_BODY = 16 * 1024 * 1024
"""A worker's own exposition is some 100 KB; what else may listen at the address must not fill our memory."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class Readiness(msgspec.Struct, frozen=True):
    """The parts of `/readyz` that are shown; what else it says is passed over."""

    engines: tuple[dict[str, Any], ...] = ()
    partitions: tuple[int, ...] = ()
    recovery: str = ""


@dataclass(frozen=True, slots=True)
class Scrape:
    """One answer of one worker; `at` is monotonic seconds."""

    url: str
    at: float
    ready: bool
    readiness: Readiness
    values: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Down:
    """The worker did not answer, and why, in a few words."""

    url: str
    why: str


def base_url(text: str) -> str:
    """`127.0.0.1:9108`, with or without `http://`, a slash or `/metrics` behind it, as the address that the paths are put behind.

    Raises:
        ValueError: it is no HTTP address.
    """
    full = text.strip() if "://" in text else f"http://{text.strip()}"
    try:
        url = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None
    if url.scheme not in ("http", "https") or not url.host:
        msg = "not an address such as http://127.0.0.1:9108"
        raise ValueError(msg)
    return full.split("?")[0].split("#")[0].rstrip("/").removesuffix("/metrics").removesuffix("/readyz").rstrip("/")


async def scrape_all(urls: Sequence[str]) -> list[Scrape | Down]:
    """Ask all workers at once; takes at most ASK_S for each request."""
    async with httpx.AsyncClient(trust_env=False, timeout=ASK_S, verify=any(url.startswith("https") for url in urls)) as client:
        return list(await asyncio.gather(*(_scrape(client, url) for url in urls)))


async def _scrape(client: httpx.AsyncClient, url: str) -> Scrape | Down:
    try:
        async with asyncio.timeout(2 * ASK_S):
            metrics, ready = await asyncio.gather(_fetch(client, f"{url}/metrics"), _fetch(client, f"{url}/readyz"))
        if metrics[0] != httpx.codes.OK:
            return Down(url, f"/metrics says {metrics[0]}")
        samples = parse_exposition(metrics[1].decode())
        readiness = msgspec.json.decode(ready[1], type=Readiness)
    except TimeoutError:
        return Down(url, f"no answer within {2 * ASK_S:g} s")
    except httpx.TimeoutException:
        return Down(url, f"no answer within {ASK_S:g} s")
    except httpx.HTTPError as error:
        return Down(url, str(error) or type(error).__name__)
    except (ValueError, msgspec.DecodeError):
        return Down(url, "what answers there is no answerby worker")
    if not any(sample.name.startswith("answerby_") for sample in samples):
        return Down(url, "what answers there is no answerby worker")
    return Scrape(url, time.monotonic(), ready[0] == httpx.codes.OK, readiness, _by_key(samples))


async def _fetch(client: httpx.AsyncClient, url: str) -> tuple[int, bytes]:
    body = bytearray()
    async with client.stream("GET", url) as answer:
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > LONGEST_BODY:
                msg = "the answer is too long"
                raise ValueError(msg)
    return answer.status_code, bytes(body)


def _by_key(samples: Sequence[Sample]) -> dict[Key, float]:
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


class Values:
    """Samples of one or more workers added up, with the questions that a view asks of them."""

    def __init__(self, values: Mapping[Key, float]) -> None:
        self._values = values

    @classmethod
    def total(cls, scrapes: Sequence[Scrape]) -> Values:
        """Everything that these workers have counted since they started."""
        return cls(_added([scrape.values for scrape in scrapes]))

    @classmethod
    def between(cls, before: Sequence[Scrape], after: Sequence[Scrape]) -> Values:
        """What was counted from the one to the other; only workers in both. A counter that went down was started anew and counts from nothing."""
        known = {scrape.url: scrape.values for scrape in before}
        return cls(_added([_grown(known[scrape.url], scrape.values) for scrape in after if scrape.url in known]))

    def sum(self, name: str, **labels: str) -> float:
        """All samples of this name with these labels, added."""
        return math.fsum(value for (found, pairs), value in self._values.items() if found == name and labels.items() <= dict(pairs).items())

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """The sum for each combination of these labels' values."""
        sums: dict[tuple[str, ...], float] = {}
        for (found, pairs), value in self._values.items():
            if found == name:
                at = dict(pairs)
                key = tuple(at.get(label, "") for label in labels)
                sums[key] = sums.get(key, 0.0) + value
        return sums

    def quantile(self, name: str, share: float, **labels: str) -> float | None:
        """Where in a histogram `share` of the observations lie at or below, drawn straight between its bounds; None without any."""
        counts: dict[float, float] = {}
        for (found, pairs), value in self._values.items():
            at = dict(pairs)
            if found == f"{name}_bucket" and labels.items() <= at.items():
                bound = float(at["le"])
                counts[bound] = counts.get(bound, 0.0) + value
        return bucket_quantile(sorted(counts.items()), share)


def bucket_quantile(cumulative: Sequence[tuple[float, float]], share: float) -> float | None:
    """The same for bare (upper bound, cumulative count) pairs, rising; the last finite bound for what lies above all of them."""
    total = cumulative[-1][1] if cumulative else 0.0
    if total <= 0:
        return None
    rank, lower, below = share * total, None, 0.0
    for bound, count in cumulative:
        if count >= rank and count > below:
            if math.isinf(bound):
                return lower
            start = lower if lower is not None else min(0.0, bound)
            return start + (bound - start) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower


def _added(all_values: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    sums: dict[Key, float] = {}
    for values in all_values:
        for key, value in values.items():
            sums[key] = sums.get(key, 0.0) + value
    return sums


def _grown(before: Mapping[Key, float], after: Mapping[Key, float]) -> dict[Key, float]:
    return {key: value - (old if (old := before.get(key, 0.0)) <= value else 0.0) for key, value in after.items()}
