"""Turns messages into token ids so that a person's text can never become a control token; the tokenizer itself lives in `openvino`.

The chat template is rendered with placeholders for the texts and cut at them. The template's own pieces are tokenised with control tokens, the
texts without: a text is cut inside every control string before it is tokenised, which gives ordinary tokens that read the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.runtime.backend import RequestRefused
from schemas.errors import SetupError
from schemas.inference import Message, Role

KEPT_LITERALS = 256
"""Template pieces whose ids are kept; they repeat with the roles, so a handful is used. Cleared when full, as a template with a clock in it would fill it."""

_PLACEHOLDER = re.compile("\ue000([0-9]+)\ue001")
"""Private-use characters, which no template treats specially; a person's own are safe, since texts are put in after the cut."""

_TRIALS: tuple[tuple[Role, ...], ...] = (("user",), ("system", "user"), ("system", "user", "assistant", "user"))


class TokenizerPort(Protocol):
    """What prompt building needs of a tokenizer."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, nothing added; control strings become control tokens."""

    def render(self, messages: list[dict[str, str]]) -> str:
        """The chat template over `messages`, ending where the assistant begins. May raise anything."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids; `shared` of them stand at the beginning of many prompts, `padding` of these only fill the last block."""

    ids: list[int]
    shared: int = 0
    padding: int = 0


class PromptBuilder:
    """Builds prompts for one tokenizer; `control` maps each control token's id to its string.

    `block` is how many tokens the prefix cache keeps together: what many prompts begin with is filled up with line ends to whole blocks, since
    a block that also holds a person's text is never found again. 0 leaves prompts as they are.
    """

    def __init__(self, tokenizer: TokenizerPort, control: Mapping[int, str], *, block: int = 0) -> None:
        self._tokenizer = tokenizer
        self._block = block
        self._control = frozenset(control)
        strings = sorted((text for text in control.values() if len(text) > 1), key=len, reverse=True)
        self._inside = re.compile("|".join(re.escape(text) for text in strings)) if strings else None
        self._literals: dict[str, list[int]] = {}

    def require_template(self) -> None:
        """Try the template on every shape of conversation that the worker sends.

        Raises:
            SetupError: there is none, it fails, or it loses a text.
        """
        for roles in _TRIALS:
            try:
                self._cut_template(roles)
            except Exception as error:  # templates are programs of others: whatever they raise means the same
                lines = str(error).strip().splitlines()
                text = f"the model's chat template does not work for {' + '.join(roles)} ({lines[-1][:200] if lines else type(error).__name__})"
                advice = "put a working chat_template.jinja into the model's folder"
                message = f"{text}; {advice}"
                raise SetupError(message) from None

    def turn_ends(self) -> list[int]:
        """Control tokens that the template puts right after an assistant's text: a model that says one has ended its turn."""
        pieces = self._cut_template(("system", "user", "assistant", "user"))
        after = pieces[pieces.index(2) + 1]
        ids = self._literal(after) if isinstance(after, str) else []
        return [ids[0]] if ids and ids[0] in self._control else []

    def build(self, messages: Sequence[Message]) -> Prompt:
        """The prompt's token ids.

        Raises:
            RequestRefused: the template cannot express these messages.
        """
        try:
            pieces = self._cut_template([message.role for message in messages])
        except Exception as error:
            text = f"template: {type(error).__name__}"
            raise RequestRefused(text) from None
        ids: list[int] = []
        shared = padding = 0
        for place, piece in enumerate(pieces):
            if isinstance(piece, str):
                ids += self._literal(piece)
                continue
            message = messages[piece]
            if message.shared and piece == 0 and all(isinstance(before, str) for before in pieces[:place]):
                ids += self._data(message.text[: message.shared])
                rest = message.text[message.shared :]
                after = pieces[place + 1] if place + 1 < len(pieces) else None
                beyond = len(self._literal(after)) if isinstance(after, str) and not rest else 0
                filling = self._filling(len(ids) + beyond)
                padding, shared = len(filling), len(ids) + len(filling) + beyond
                ids += filling + self._data(rest)
            else:
                ids += self._data(message.text)
        return Prompt(ids, shared, padding)

    def _filling(self, tokens: int) -> list[int]:
        """What brings `tokens` up to whole blocks: line ends, which say nothing (tried: they change an answer less than spaces, dots or control tokens do)."""
        line_end = self._literal("\n")
        if not self._block or len(line_end) != 1:
            return []
        return line_end * (-tokens % self._block)

    def _cut_template(self, roles: Sequence[Role]) -> list[str | int]:
        """Pieces of the rendered template: literals, and indexes of messages where their texts go."""
        rendered = self._tokenizer.render([{"role": role, "content": f"\ue000{index}\ue001"} for index, role in enumerate(roles)])
        parts = _PLACEHOLDER.split(rendered)
        found = [int(part) for part in parts[1::2]]
        if sorted(found) != list(range(len(roles))):
            text = f"it keeps {len(set(found))} of {len(roles)} texts"
            raise ValueError(text)
        return [int(part) if index % 2 else part for index, part in enumerate(parts) if index % 2 or part]

    def _literal(self, text: str) -> list[int]:
        known = self._literals.get(text)
        if known is None:
            if len(self._literals) >= KEPT_LITERALS:
                self._literals.clear()
            known = self._literals[text] = self._tokenizer.encode([text])[0]
        return known

    def _data(self, text: str) -> list[int]:
        if not text:
            return []
        cuts = [match.start() + 1 for match in self._inside.finditer(text)] if self._inside else []
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        ids = [token for piece in self._tokenizer.encode(pieces) for token in piece]
        if self._control.isdisjoint(ids):
            return ids
        # A tokenizer that folds characters may still meet a control string; alone, no character can be one.
        ids = [token for piece in self._tokenizer.encode(list(text)) for token in piece]
        return [token for token in ids if token not in self._control]
