"""Cuts the pipe's byte stream into length-prefixed frames; what the frames say is `schemas.inference`."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.errors import AnswerbyError

MAX_FRAME = 16 * 1024 * 1024
"""Keeps a corrupt length from reserving gigabytes; the longest honest frame, a prompt of limits.event_bytes, is 32 times smaller."""

_HEADER = 4

_encoder = msgspec.msgpack.Encoder()


class BrokenFrame(AnswerbyError):
    """Raised when the other end of the pipe sends what no engine or worker of this version sends; the process at fault is replaced."""


class Truncated(msgspec.Struct, frozen=True):
    """The stream ended inside a frame: what happens when a process is killed while it writes. `missing` is -1 when not even the length came."""

    received: int
    missing: int


def encode_frame(message: msgspec.Struct) -> bytes:
    """One message as bytes for the pipe.

    Raises:
        BrokenFrame: the message is larger than MAX_FRAME.
    """
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        text = f"a frame of {len(body)} bytes is above the limit of {MAX_FRAME}; shorten the prompt"
        raise BrokenFrame(text)
    return len(body).to_bytes(_HEADER, "big") + body


def decode_body(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    """One frame's body as a message of the decoder's type.

    Raises:
        BrokenFrame: the body is not such a message.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        text = f"an unreadable frame of {len(body)} bytes came over the engine's pipe ({error}); worker and engine must be of one version"
        raise BrokenFrame(text) from None


class FrameSplitter:
    """Collects bytes as they come and gives whole frame bodies; keeps a partial one for the next call."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies of the frames that `data` completes, in order.

        Raises:
            BrokenFrame: a frame announces more than MAX_FRAME bytes.
        """
        self._buffer += data
        bodies: list[bytes] = []
        start = 0
        while (size := self._announced(start)) is not None and len(self._buffer) - start - _HEADER >= size:
            bodies.append(bytes(self._buffer[start + _HEADER : start + _HEADER + size]))
            start += _HEADER + size
        del self._buffer[:start]
        return bodies

    def finish(self) -> Truncated | None:
        """What was left when the stream ended; None when it ended between two frames."""
        if not self._buffer:
            return None
        size = self._announced(0)
        return Truncated(len(self._buffer), -1 if size is None else size + _HEADER - len(self._buffer))

    def _announced(self, start: int) -> int | None:
        if len(self._buffer) - start < _HEADER:
            return None
        size = int.from_bytes(self._buffer[start : start + _HEADER], "big")
        if size > MAX_FRAME:
            text = f"a frame announces {size} bytes, above the limit of {MAX_FRAME}; the stream is corrupt"
            raise BrokenFrame(text)
        return size
