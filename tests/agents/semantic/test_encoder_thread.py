"""The thread beside the loop: bounded, survives what an encoder does, and ends when told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from agents.semantic import encoder_thread
from agents.semantic.encoder import Encoder, Vectors
from agents.semantic.encoder_thread import EncoderThread
from agents.semantic.ngrams import NgramEncoder
from schemas.errors import SetupError
from tests.support import run

ASKED_AT_START = 2
"""The warm-up."""


class Gated(NgramEncoder):
    """An encoder that waits to be let through, and fails on `bad`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.seen: list[str] = []
        self.asked = 0

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Once the gate is open."""
        self.asked += 1
        if not self.gate.wait(30):
            msg = "nobody opened the gate"
            raise AssertionError(msg)
        self.seen += texts
        if "bad" in texts:
            msg = "bad text"
            raise ValueError(msg)
        return super().encode(texts)


def test_what_is_encoded_comes_back() -> None:
    """Vector and signature of the text, with the time it took."""

    async def going() -> None:
        thread = EncoderThread(NgramEncoder)
        await thread.start()
        try:
            job = thread.encode("转账100元")
            assert job is not None
            encoded = await job
            assert encoded.signature.numbers == ("100",)
            assert encoded.vector.tolist() == NgramEncoder().encode(["转账100元"])[0].tolist()
            assert encoded.seconds > 0
        finally:
            await thread.stop()

    run(going())


def test_more_than_may_wait_is_refused_at_once() -> None:
    """A stuck encoder fills its queue and no more; what was taken back frees its place."""

    async def going() -> None:
        encoder = Gated()
        thread = EncoderThread(lambda: encoder, waiting=3)
        await thread.start()
        encoder.gate.clear()
        jobs = [thread.encode(f"text {number}") for number in range(3)]
        assert thread.encode("one more") is None
        taken = [job for job in jobs if job is not None]
        assert len(taken) == 3
        taken[2].cancel()
        encoder.gate.set()
        await taken[0]
        await taken[1]
        job = thread.encode("last")
        assert job is not None
        await job
        assert "text 2" not in encoder.seen
        await thread.stop()

    run(going())


def test_a_text_that_cannot_be_encoded_costs_itself_alone() -> None:
    """The thread outlives what the encoder raises."""

    async def going() -> None:
        thread = EncoderThread(Gated)
        await thread.start()
        bad, good = thread.encode("bad"), thread.encode("good")
        assert bad is not None
        assert good is not None
        with pytest.raises(ValueError, match="bad text"):
            await bad
        await good
        await thread.stop()
        assert thread.encode("late") is None

    run(going())


def _unknown() -> Encoder:
    msg = "encoder 'x' is not here: run something"
    raise SetupError(msg)


def _broken() -> Encoder:
    msg = "disk on fire"
    raise RuntimeError(msg)


@pytest.mark.parametrize(("opens", "said"), [(_unknown, "is not here"), (_broken, "cannot be loaded .disk on fire.")])
def test_an_encoder_that_cannot_be_opened_is_told(opens: Callable[[], Encoder], said: str) -> None:
    """In one line, whatever went wrong; stopping afterwards is safe."""

    async def going() -> None:
        thread = EncoderThread(opens)
        with pytest.raises(SetupError, match=said):
            await thread.start()
        assert thread.encode("x") is None
        await thread.stop()

    run(going())


def test_a_start_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that never comes does not hang the worker."""
    monkeypatch.setattr(encoder_thread, "START_S", 0.05)
    monkeypatch.setattr(encoder_thread, "STOP_S", 0.05)
    gate = threading.Event()

    def waits() -> Encoder:
        gate.wait(30)
        return NgramEncoder()

    async def going() -> None:
        thread = EncoderThread(waits)
        with pytest.raises(SetupError, match="was not loaded after"):
            await thread.start()
        await thread.stop()
        gate.set()

    run(going())


def test_stopping_lets_go_of_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the encoder hangs: the stop is bounded, and what still waits is cancelled."""
    monkeypatch.setattr(encoder_thread, "STOP_S", 0.05)

    async def going() -> None:
        encoder = Gated()
        thread = EncoderThread(lambda: encoder)
        await thread.start()
        encoder.gate.clear()
        first, second = thread.encode("a"), thread.encode("b")
        assert first is not None
        assert second is not None
        while not thread_is_at_work(encoder):  # noqa: ASYNC110  # a thread has no event of this loop
            await asyncio.sleep(0)
        await thread.stop()
        assert second.cancelled()
        encoder.gate.set()
        await first

    run(going())


def thread_is_at_work(encoder: Gated) -> bool:
    """Whether the encoder has been asked since its gate was closed."""
    return encoder.asked > ASKED_AT_START
