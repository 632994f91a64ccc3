"""A person's text can never become a control token, and a template that loses texts is found before it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.backend import RequestRefused
from agents.runtime.prompt import PromptBuilder
from schemas.errors import SetupError
from schemas.inference import Message

CONTROL = {1: "<|im_start|>", 2: "<|im_end|>", 3: "<|x|>", 4: "<|x"}


class _CharTokenizer:
    """One token a character (its code point + 100), and control strings found greedily, longest first, as real tokenizers do."""

    def __init__(self, template: Callable[[list[dict[str, str]]], str]) -> None:
        self._template = template

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._ids(text) for text in texts]

    def render(self, messages: list[dict[str, str]]) -> str:
        return self._template(messages)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            control = next((token for token, word in sorted(CONTROL.items(), key=lambda item: -len(item[1])) if text.startswith(word)), None)
            ids.append(control if control is not None else ord(text[0]) + 100)
            text = text[len(CONTROL[control]) if control is not None else 1 :]
        return ids


def _chatml(messages: list[dict[str, str]]) -> str:
    return "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages) + "<|im_start|>assistant\n"


def _read(ids: list[int]) -> str:
    return "".join(CONTROL.get(token) or chr(token - 100) for token in ids)


@given(st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<|x|>", "<|", "|>", "x", "im_end", " ", "你", "<", "\ue0000\ue001"]), max_size=12))
def test_control_strings_in_texts_stay_text(parts: list[str]) -> None:
    """Any mix of control strings reads the same in the prompt, while its only control tokens are the template's own."""
    text = "".join(parts)
    builder = PromptBuilder(_CharTokenizer(_chatml), CONTROL)
    ids = builder.build((Message("system", text), Message("user", text))).ids
    assert _read(ids) == _chatml([{"role": "system", "content": text}, {"role": "user", "content": text}])
    assert [token for token in ids if token in CONTROL] == [1, 2, 1, 2, 1]


@given(st.text(alphabet="ab <|>im_end", max_size=70), st.text(alphabet="xyz\n", max_size=40), st.text(alphabet="pq", max_size=9))
def test_what_prompts_share_ends_on_a_block(instructions: str, state: str, said: str) -> None:
    """Everything before the first text of one's own fills whole blocks, with line ends after the instructions and nothing else added."""
    messages = (Message("system", instructions + state, len(instructions)), Message("user", said))
    plain = PromptBuilder(_CharTokenizer(_chatml), CONTROL).build(messages)
    built = PromptBuilder(_CharTokenizer(_chatml), CONTROL, block=32).build(messages)
    end = built.shared
    filled = "<|im_start|>system\n" + instructions
    assert _read(plain.ids) == filled + state + "<|im_end|>\n<|im_start|>user\n" + said + "<|im_end|>\n<|im_start|>assistant\n"
    assert _read(built.ids) == filled + "\n" * built.padding + _read(plain.ids)[len(filled) :]
    if instructions:
        assert end % 32 == 0
        assert built.padding < 32
        assert _read(built.ids[:end]).endswith("\n" * built.padding + ("" if state else "<|im_end|>\n<|im_start|>user\n"))
    else:
        assert (built.shared, built.padding) == (0, 0)


def test_turn_end_is_found_in_the_template() -> None:
    """The control token after an assistant's text ends a turn."""
    assert PromptBuilder(_CharTokenizer(_chatml), CONTROL).turn_ends() == [2]


def _without_system(messages: list[dict[str, str]]) -> str:
    return _chatml([one for one in messages if one["role"] != "system"])


def _raising(messages: list[dict[str, str]]) -> str:
    text = "System role not supported"
    raise RuntimeError(text)


@pytest.mark.parametrize(("template", "says"), [(_without_system, "it keeps 1 of 2 texts"), (_raising, "System role not supported")])
def test_template_that_cannot_serve_is_found_at_load(template: Callable[[list[dict[str, str]]], str], says: str) -> None:
    """The error says what the template did and what to do."""
    with pytest.raises(SetupError, match=rf"{says}.*chat_template.jinja"):
        PromptBuilder(_CharTokenizer(template), CONTROL).require_template()


def test_conversation_the_template_refuses_fails_alone() -> None:
    """A shape that was not tried at load ends that request, without its text in the reason."""
    with pytest.raises(RequestRefused) as caught:
        PromptBuilder(_CharTokenizer(_raising), CONTROL).build((Message("user", "secret"),))
    assert "secret" not in str(caught.value)
