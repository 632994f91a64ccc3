"""The mirror of the prefix cache counts whole leading blocks and forgets the oldest."""

from __future__ import annotations

from agents.runtime.prefix import BLOCK_TOKENS, PrefixMirror


def test_shared_start_counts_in_whole_blocks() -> None:
    """What two prompts share, up to the last full block."""
    mirror = PrefixMirror(100)
    first = list(range(100))
    assert mirror.cached_tokens(first) == 0
    mirror.remember(first)
    assert mirror.cached_tokens([*range(70), *range(500, 530)]) == 2 * BLOCK_TOKENS


def test_last_token_is_always_computed() -> None:
    """A prompt that is there as a whole still costs one token."""
    mirror = PrefixMirror(100)
    mirror.remember(list(range(64)))
    assert mirror.cached_tokens(list(range(64))) == 63


def test_oldest_blocks_are_forgotten() -> None:
    """No more is remembered than the cache can hold."""
    mirror = PrefixMirror(2)
    mirror.remember(list(range(64)))
    mirror.remember(list(range(1000, 1064)))
    assert mirror.cached_tokens(list(range(64))) == 0
    assert mirror.cached_tokens([*range(1000, 1064), 1]) == 64
