"""Asks a broker over the wire whether it can serve, and finds ports: an open port alone says nothing; what runs behind it is `streams.broker.process`."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"
"""The embedded broker has no authentication, so it listens on the loopback interface alone."""

_METADATA_V4 = 3, 4
"""Key and version of the request, the oldest that Kafka 4 still answers and the last with a fixed-width layout."""

_LARGEST_REPLY = 1 << 20
"""Something that is no broker may sit on the port and announce gigabytes."""


def broker_answers(port: int, timeout_s: float) -> bool:
    """Whether the broker on this port names itself as a live broker with a controller, so that topics can be created and records sent."""
    with suppress(OSError, struct.error, ValueError), socket.create_connection((HOST, port), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        client = b"answerby-probe"
        request = struct.pack(f">hhih{len(client)}sib", *_METADATA_V4, 1, len(client), client, 0, 0)
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _read_exactly(connection, 4))
        if not 0 < size <= _LARGEST_REPLY:
            return False
        return _is_serving(_read_exactly(connection, size))
    return False


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        block = connection.recv(size - len(data))
        if not block:
            msg = "closed early"
            raise ValueError(msg)
        data += block
    return data


def _is_serving(reply: bytes) -> bool:
    """Correlation id, throttle time, brokers (id, host, port, rack), cluster id, controller id: at least one broker, and a controller."""
    position, (correlation, _throttle, brokers) = 12, struct.unpack_from(">iii", reply)
    for _ in range(brokers):
        position = _after_string(reply, position + 4)
        position = _after_string(reply, position + 4)
    position = _after_string(reply, position)
    (controller,) = struct.unpack_from(">i", reply, position)
    return bool(correlation == 1 and brokers >= 1 and controller >= 0)


def _after_string(reply: bytes, position: int) -> int:
    (length,) = struct.unpack_from(">h", reply, position)
    return position + 2 + max(int(length), 0)


def free_port() -> int:
    """A port nobody listens on now; another process may still take it before we do, so be ready to choose again."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether the broker could listen there; a port that is only waiting out old connections counts as free, as it does for the broker."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def port_owner(port: int) -> str:
    """Who listens on a port, as "pid 12 (java)"; empty when the system does not tell, for instance about another user's process."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(str(link.readlink()) in wanted for link in (process / "fd").iterdir()):
                return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes
