"""How long a model lately took to its first useful words, from the answers it gave; what it will take under load is the scheduler's to say."""

from __future__ import annotations

from agents.ladder import Given

FIRST_GUESS_S = 0.1
"""Before any answer was seen. Too little, and an event that waited for another's answer in vain has no time for its own; too much only costs
a second request for the same."""

SHARE = 0.2
"""How much one answer moves the mean: half of it after three."""

MARGIN = 1.5
"""What one answer may take beyond the mean."""


class Pace:
    """A running mean for one model."""

    def __init__(self, tokens: int) -> None:
        """`tokens` are those without which an answer is not worth sending."""
        self._tokens = tokens
        self._mean_s: float | None = None

    def note(self, given: Given) -> None:
        """Learn from an answer of the model's, whole or cut."""
        made = given.usage.completion_tokens
        if given.outcome not in ("model", "partial") or made <= 0:
            return
        took_s = given.times.prefill + given.times.generate * min(1.0, self._tokens / made)
        self._mean_s = took_s if self._mean_s is None else self._mean_s + SHARE * (took_s - self._mean_s)

    @property
    def needs_s(self) -> float:
        """Seconds to keep free for it."""
        return FIRST_GUESS_S if self._mean_s is None else MARGIN * self._mean_s
