"""How many prompt tokens a request will make the engine read, foreseen without its tokenizer and its cache; both are learnt from what comes back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from agents.runtime.prefix import BLOCK_TOKENS
from schemas.inference import Done, Message

MESSAGE_TOKENS = 5
"""Of the chat template around each message: role, marks and line ends."""

REMEMBERED = 4096
"""Beginnings of prompts that may still be in the cache: a few for each session that speaks within minutes; beyond it the oldest are forgotten."""

LEARN_SHARE = 0.1
"""How much one request moves the tokens a character: texts differ more than the tokenizer drifts."""

FIRST_ASCII, FIRST_OTHER = 0.30, 1.3
"""Tokens a character before anything was learnt: English words, and Chinese for a tokenizer made for English."""


class PromptEstimator:
    """One a model. All figures in tokens.

    `prefixes` are what prompts begin with that the engine has read before it served; None when it does not end them on a block, and what many
    prompts share is then found in its cache only as far as whole blocks reach.
    """

    def __init__(self, prefixes: Sequence[str] | None = None) -> None:
        self._ascii = FIRST_ASCII
        self._other = FIRST_OTHER
        self._aligned = prefixes is not None
        self._prefixes = frozenset(prefixes or ())
        self._seen: OrderedDict[int, None] = OrderedDict()

    def uncached(self, messages: Sequence[Message]) -> int:
        """What is left to read when the longest beginning that was read before is still in the cache; at least one token."""
        shared = self._shared(messages)
        lengths = self._lengths(messages, shared)
        known = 0.0
        for key, length in zip(_beginnings(messages), lengths, strict=True):
            if key in self._seen:
                known = length
        left = (lengths[-1] if lengths else 0.0) - _whole_blocks(known)  # the cache holds whole blocks
        if shared and shared not in self._prefixes and hash(shared) not in self._seen:
            left += -_whole_blocks(-MESSAGE_TOKENS - self._text(shared))
        return max(1, round(left))

    def learn(self, messages: Sequence[Message], done: Done) -> None:
        """The engine read this prompt and counted its tokens."""
        shared = self._shared(messages)
        for key in (*((hash(shared),) if shared else ()), *_beginnings(messages)):
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        letters = sum(len(message.text) for message in messages)
        foreign = sum(_foreign(message.text) for message in messages)
        text_tokens = done.prompt_tokens - done.padding_tokens - MESSAGE_TOKENS * len(messages)
        if letters == 0 or text_tokens <= 0:
            return
        if foreign * 2 > letters:
            seen = (text_tokens - (letters - foreign) * self._ascii) / foreign
            self._other += LEARN_SHARE * (min(max(seen, 0.2), 4.0) - self._other)
        else:
            seen = (text_tokens - foreign * self._other) / (letters - foreign)
            self._ascii += LEARN_SHARE * (min(max(seen, 0.1), 1.5) - self._ascii)

    def forget(self) -> None:
        """The engine was replaced, and its cache with it."""
        self._seen.clear()

    def _text(self, text: str) -> float:
        foreign = _foreign(text)
        return (len(text) - foreign) * self._ascii + foreign * self._other

    def _shared(self, messages: Sequence[Message]) -> str:
        """What other prompts begin with as well, ended on a block; empty when nothing is."""
        return messages[0].text[: messages[0].shared] if self._aligned and messages else ""

    def _lengths(self, messages: Sequence[Message], shared: str) -> list[float]:
        """Tokens up to the end of each message, counted from the end of what is shared."""
        lengths, total = [], 0.0
        for index, message in enumerate(messages):
            text = message.text[len(shared) :] if index == 0 else message.text
            if text or index or not shared:
                total += MESSAGE_TOKENS + self._text(text)
            lengths.append(total)
        return lengths


def _whole_blocks(tokens: float) -> int:
    """Rounded down; of a negative number that is up, in size."""
    return int(tokens // BLOCK_TOKENS) * BLOCK_TOKENS


def _foreign(text: str) -> int:
    """Characters that are not ASCII."""
    return 0 if text.isascii() else sum(not character.isascii() for character in text)


def _beginnings(messages: Sequence[Message]) -> list[int]:
    """A key for each beginning of the prompt that ends with a message."""
    keys, key = [], 0
    for message in messages:
        key = hash((key, message.role, message.text))
        keys.append(key)
    return keys
