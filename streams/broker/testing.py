"""A running broker for tests, yours as well as ours, in one line; the process itself is `streams.broker.process`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streams.broker.process import BrokerOptions, EmbeddedBroker


@contextmanager
def running_broker(options: BrokerOptions | None = None) -> Iterator[str]:
    """Run an embedded broker, by default an ephemeral one on a free port, and give its `host:port`; it is stopped at the end.

    Raises:
        SetupError: the broker cannot be started; the text says what to do.
    """
    broker = EmbeddedBroker(options)
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()
