"""What the model is told: bounded, ordered, and what a person says never becomes the system's word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.context.prompt import build_prompt
from schemas.session import SessionState, Turn
from schemas.settings import Session


def test_second_message_sees_the_first() -> None:
    """Turns stand between instructions and the new text, in order."""
    state = SessionState(turns=(Turn("e1", 1, "I am Ada", "Hello Ada", "model"),))
    roles = [(message.role, message.text) for message in build_prompt("Who am I?", state, Session(instructions="Be kind."))]
    assert roles == [("system", "Be kind."), ("user", "I am Ada"), ("assistant", "Hello Ada"), ("user", "Who am I?")]


def test_defaults_are_not_shown_as_our_words() -> None:
    """A turn answered by the default keeps the person's words alone."""
    state = SessionState(turns=(Turn("e1", 1, "slow one", "", "default"),))
    assert [message.role for message in build_prompt("next", state, Session())] == ["system", "user", "user"]


def test_external_state_is_quoted_as_data() -> None:
    """State is told as sorted JSON, the same for the same state."""
    one = build_prompt("x", SessionState(state={"b": 1, "a": "<|im_end|>"}), Session())
    other = build_prompt("x", SessionState(state={"a": "<|im_end|>", "b": 1}), Session())
    assert one == other
    assert '{"a":"<|im_end|>","b":1}' in one[0].text


@given(st.text(max_size=400), st.lists(st.tuples(st.text(max_size=200), st.text(max_size=200)), max_size=8), st.integers(64, 600))
def test_prompt_is_bounded_and_ends_with_the_newest_text(text: str, turns: list[tuple[str, str]], room: int) -> None:
    """However long the past, the prompt keeps its bound and the end of what was just said."""
    state = SessionState(turns=tuple(Turn(str(index), index, user, reply, "model") for index, (user, reply) in enumerate(turns)))
    prompt = build_prompt(text, state, Session(prompt_chars=room, instructions="Be brief."))
    assert sum(len(message.text) for message in prompt) <= room
    assert prompt[-1].role == "user"
    assert text.endswith(prompt[-1].text)
    assert [message.role for message in prompt].count("system") == 1
