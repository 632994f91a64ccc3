"""The scripted engine keeps to its script and its clock; no process is needed to see that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.backend import StepResult
from agents.runtime.scripted import ScriptedBackend, split_tokens
from schemas.deadline import ManualClock
from schemas.inference import Constraint, Generate, Message
from schemas.settings import Model


def _request(text: str, request_id: int = 1, max_tokens: int = 4, constraint: Constraint | None = None, stop: tuple[str, ...] = ()) -> Generate:
    return Generate(request_id, (Message("user", text),), max_tokens, 1e9, constraint=constraint, stop=stop)


class _Stage:
    """A backend whose clock moves to the next moment it asks for."""

    def __init__(self, **model: object) -> None:
        self.clock = ManualClock()
        self.backend = ScriptedBackend(Model(engine="scripted", **model), self.clock.monotonic)  # type: ignore[arg-type]

    def play(self) -> list[StepResult]:
        results: list[StepResult] = []
        while (at := self.backend.step_at) is not None:
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            result = self.backend.step()
            results += [result] if result is not None else []
        return results

    def text(self, results: list[StepResult], request_id: int = 1) -> str:
        parts = [delta.text for result in results for delta in result.deltas if delta.id == request_id]
        tails = [ended.tail.text for result in results for ended in result.ended if ended.id == request_id and ended.tail]
        return "".join(parts + tails)


@pytest.mark.parametrize(
    ("text", "max_tokens", "said", "reason"),
    [
        ("hello", 7, "one two three one two three one", "length"),
        ("[[tokens=2]]", 7, "one two", "stop"),
        ("[[tokens=9]]", 3, "one two three", "length"),
        ("[[say=  a  b\n]]", 7, "  a  b\n", "stop"),
        ("[[say=a b c]]", 2, "a b", "length"),
        ("[[say=a b]]", 2, "a b", "stop"),
        ("[[tokens=x]] [[delay]]", 1, "one", "length"),
    ],
)
def test_script_is_said(text: str, max_tokens: int, said: str, reason: str) -> None:
    """Each command gives its text and its finish reason."""
    stage = _Stage(text="one two three")
    stage.backend.add(_request(text, max_tokens=max_tokens))
    results = stage.play()
    assert stage.text(results) == said
    assert [ended.finish_reason for result in results for ended in result.ended] == [reason]


@given(st.text(max_size=60))
def test_tokens_joined_are_the_text(text: str) -> None:
    """Words with their spaces lose nothing."""
    assert "".join(split_tokens(text)) == text


def test_choice_is_the_first() -> None:
    """A constraint's first choice is said, whatever the text is."""
    stage = _Stage()
    stage.backend.add(_request("hello", constraint=Constraint(choice=("not this time", "yes"))))
    assert stage.text(stage.play()) == "not this time"


def test_commands_of_earlier_turns_are_not_obeyed() -> None:
    """Only the last user text counts."""
    stage = _Stage(text="one two")
    stage.backend.add(Generate(1, (Message("user", "[[raise]]"), Message("assistant", "[[tokens=1]]"), Message("user", "go")), 2, 1e9))
    assert stage.text(stage.play()) == "one two"


@pytest.mark.parametrize("text", ["[[raise]]", "[[say=]]", "[[tokens=0]]"])
def test_failures_are_the_requests_own(text: str) -> None:
    """A request that fails leaves its neighbour alone."""
    stage = _Stage(text="one")
    stage.backend.add(_request(text, 1))
    stage.backend.add(_request("hello", 2, max_tokens=1))
    results = stage.play()
    assert [failed.id for result in results for failed in result.failed] == [1]
    assert [ended.id for result in results for ended in result.ended] == [2]


def test_steps_take_their_time_and_are_shared() -> None:
    """Four tokens of two requests take four steps and one prefill, not eight."""
    stage = _Stage(token_ms=10, prefill_ms_per_token=5)
    began = stage.clock.monotonic()
    stage.backend.add(_request("two words", 1))
    stage.backend.add(_request("two words", 2))
    results = stage.play()
    assert stage.clock.monotonic() - began == pytest.approx(0.04 + 4 * 0.005)
    assert [(result.batch, result.prefill_tokens) for result in results] == [(2, 4), (2, 0), (2, 0), (2, 0)]


def test_long_prompts_are_read_in_chunks() -> None:
    """One step reads no more than prefill_chunk."""
    stage = _Stage(token_ms=1, prefill_ms_per_token=1, prefill_chunk=16)
    stage.backend.add(_request("w " * 40, max_tokens=1))
    assert [result.prefill_tokens for result in stage.play()] == [16, 16, 8]


def test_delay_holds_no_place_and_nobody_else() -> None:
    """With room for one, another request is served while the first waits out its delay."""
    stage = _Stage(max_batch=1, token_ms=10)
    stage.backend.add(_request("[[delay=1000]]", 1, max_tokens=1))
    assert stage.backend.room == 1
    stage.backend.add(_request("hello", 2, max_tokens=1))
    ended = [end.id for result in stage.play() for end in result.ended]
    assert ended == [2, 1]
    assert stage.clock.monotonic() == pytest.approx(1001.01)


def test_instant_answer_is_one_step() -> None:
    """Without a pace an answer is one frame, its words still apart."""
    stage = _Stage(text="one two three")
    stage.backend.add(_request("hello", max_tokens=6))
    results = stage.play()
    assert len(results) == 1
    assert [delta.tokens for delta in results[0].deltas] == [1] * 6


def test_delivered_tokens_leave_out_what_a_stop_string_took() -> None:
    """Usage counts tokens whose text was delivered."""
    stage = _Stage(text="one two three")
    stage.backend.add(_request("hello", max_tokens=6, stop=(" three",)))
    results = stage.play()
    assert stage.text(results) == "one two"
    assert [(ended.completion_tokens, ended.finish_reason) for result in results for ended in result.ended] == [(2, "stop")]
