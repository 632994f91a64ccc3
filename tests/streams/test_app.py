"""The Faust app's own parts that need no broker; the rest runs in `live`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokafka.errors import IllegalStateError

from streams.app import WorkerApp
from tests.support import run


def test_a_partition_that_has_just_gone_is_not_read_again() -> None:
    """A rebalance between the sight of a hole and the seek is no reason to end the worker."""
    tried: list[tuple[str, int, int]] = []

    async def seek(place: Any, offset: int) -> None:
        tried.append((place.topic, place.partition, offset))
        raise IllegalStateError

    app: Any = SimpleNamespace(consumer=SimpleNamespace(seek=seek), source_topic="interactions")
    run(WorkerApp.seek_back(app, 0, 5))
    assert tried == [("interactions", 0, 5)]
