"""Mirrors the pipeline's prefix cache to tell how many prompt tokens it held; the pipeline itself, in `openvino`, does not say.

An estimate: blocks are matched as the pipeline does, evicted oldest first; it errs when the pipeline evicts in another order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

BLOCK_TOKENS = 32
"""Tokens in one KV block on CPU (openvino-genai's own constant)."""


class PrefixMirror:
    """Which leading blocks of a prompt have been computed before and are still there."""

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._known: OrderedDict[int, None] = OrderedDict()

    def cached_tokens(self, prompt: Sequence[int]) -> int:
        """Leading tokens that need no work; never all of them, since the last one has to be computed."""
        cached = 0
        for chain in self._chains(prompt):
            if chain not in self._known:
                break
            self._known.move_to_end(chain)
            cached += BLOCK_TOKENS
        return min(cached, max(0, len(prompt) - 1))

    def remember(self, tokens: Sequence[int]) -> None:
        """These tokens, from the start of a prompt on, have been computed."""
        for chain in self._chains(tokens):
            self._known[chain] = None
            self._known.move_to_end(chain)
        while len(self._known) > self._blocks:
            self._known.popitem(last=False)

    def _chains(self, tokens: Sequence[int]) -> Iterator[int]:
        chain = 0
        for start in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            chain = hash((chain, *tokens[start : start + BLOCK_TOKENS]))
            yield chain
