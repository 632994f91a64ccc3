"""Frames survive being cut anywhere, and what is no frame is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.frames import MAX_FRAME, BrokenFrame, FrameSplitter, Truncated, decode_body, encode_frame
from schemas.inference import Beat, Cancel, Delta, FromEngine, Step, ToEngine

_from_engine = msgspec.msgpack.Decoder(FromEngine)
_to_engine = msgspec.msgpack.Decoder(ToEngine)


@given(st.lists(st.integers(0, 2**40), max_size=20), st.lists(st.integers(1, 30), max_size=50))
def test_frames_cut_anywhere_come_out_whole_and_in_order(numbers: list[int], cuts: list[int]) -> None:
    """However the stream is cut, the same messages come out."""
    stream = b"".join(encode_frame(Cancel(number)) for number in numbers)
    splitter = FrameSplitter()
    seen: list[int] = []
    at = 0
    for size in [*cuts, len(stream)]:
        seen += [decode_body(_to_engine, body).id for body in splitter.feed(stream[at : at + size])]
        at += size
    assert seen == numbers
    assert splitter.finish() is None


def test_end_inside_a_frame_is_a_value() -> None:
    """A stream that ends early says how much was there and how much was not."""
    frame = encode_frame(Beat(1, 2, 3))
    splitter = FrameSplitter()
    assert splitter.feed(frame[:-2]) == []
    assert splitter.finish() == Truncated(len(frame) - 2, 2)
    short = FrameSplitter()
    short.feed(frame[:3])
    assert short.finish() == Truncated(3, -1)


def test_absurd_length_is_refused_before_it_is_reserved() -> None:
    """A length above the limit ends the stream at once."""
    with pytest.raises(BrokenFrame, match="corrupt"):
        FrameSplitter().feed((MAX_FRAME + 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\xff" * 20, msgspec.msgpack.encode({"type": "nobody"}), msgspec.msgpack.encode({"type": "beat", "running": "x"})]
)
def test_unreadable_body_is_refused(body: bytes) -> None:
    """Bytes that are no message of ours are refused, whatever is wrong with them."""
    with pytest.raises(BrokenFrame):
        decode_body(_from_engine, body)


def test_message_above_the_limit_is_not_sent() -> None:
    """The sender finds out, not the receiver."""
    with pytest.raises(BrokenFrame, match="shorten"):
        encode_frame(Step(0.0, 1, 0, (Delta(1, "x" * MAX_FRAME, 1),)))
