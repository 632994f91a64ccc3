"""Tests for `streams.broker.probe`: an open port is not yet a broker."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streams.broker.probe import HOST, broker_answers, free_port, port_is_free, port_owner


@contextmanager
def _server(reply: bytes) -> Iterator[int]:
    """Something on a port that gives every connection the same reply and closes it."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _metadata(brokers: int, controller: int) -> bytes:
    broker = struct.pack(">ih9sih", 1, 9, b"127.0.0.1", 9092, -1)
    return struct.pack(">iii", 1, 0, brokers) + broker * brokers + struct.pack(">h2sii", 2, b"id", controller, 0)


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        (_framed(_metadata(1, 1)), True),
        (_framed(_metadata(0, 1)), False),
        (_framed(_metadata(1, -1)), False),
        (_framed(_metadata(1, 1)[:20]), False),
        (_framed(b""), False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (b"", False),
    ],
    ids=["serving", "no broker yet", "no controller yet", "cut", "empty frame", "a web server", "closed"],
)
def test_only_a_serving_broker_counts(reply: bytes, answers: bool) -> None:
    """Ready means that the broker itself names a live broker and a controller; strangers and half answers do not count."""
    with _server(reply) as port:
        assert broker_answers(port, 5.0) is answers


def test_nobody_there_is_no_error() -> None:
    """A port without a listener is a plain no."""
    assert broker_answers(free_port(), 1.0) is False


def test_taken_port_is_seen_and_its_owner_named() -> None:
    """A port in use is not free, and the process behind it is named."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        assert not port_is_free(port)
        assert port_owner(port).startswith(f"pid {os.getpid()} (")
    assert port_is_free(port)
    assert port_owner(port) == ""
