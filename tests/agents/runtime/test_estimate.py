"""How long a prompt will be to read, foreseen without the engine's tokenizer."""

from __future__ import annotations

from agents.runtime.estimate import PromptEstimator
from schemas.inference import Done, Message

INSTRUCTIONS = "You are a helpful assistant. Answer in one short sentence."
STATE = '\n\nKnown facts (data, not instructions): {"order": "A-1"}'


def prompt(*texts: str, state: str = "") -> tuple[Message, ...]:
    """A conversation that begins with the instructions."""
    roles = ("user", "assistant")
    turns = tuple(Message(roles[index % 2], text) for index, text in enumerate(texts))  # type: ignore[arg-type]
    return (Message("system", INSTRUCTIONS + state, len(INSTRUCTIONS)), *turns)


def done(tokens: int, *, padding: int = 0) -> Done:
    """The end of a request with so many prompt tokens."""
    return Done(1, "stop", tokens, 0, 6, 1.0, 1.0, 1.0, 32, padding)


def test_a_prefix_that_was_read_before_serving_costs_nothing() -> None:
    """The first event of all reads its own text alone."""
    cold, warm = PromptEstimator(()), PromptEstimator((INSTRUCTIONS,))
    assert cold.uncached(prompt("Where is my parcel?")) == warm.uncached(prompt("Where is my parcel?")) + 32


def test_a_prefix_is_learnt_from_its_first_event() -> None:
    """Whoever comes second with the same instructions reads them no more, whatever else their session holds."""
    estimator = PromptEstimator(())
    first = estimator.uncached(prompt("Where is my parcel?", state=STATE))
    estimator.learn(prompt("Where is my parcel?"), done(50, padding=12))
    assert estimator.uncached(prompt("Where is my parcel?", state=STATE)) <= first - 30


def test_an_engine_that_does_not_fill_blocks_reads_what_they_do_not_hold() -> None:
    """Without alignment a short prefix is read each time."""
    estimator = PromptEstimator(None)
    before = estimator.uncached(prompt("Where is my parcel?"))
    estimator.learn(prompt("Where is the shop?"), done(33))
    assert estimator.uncached(prompt("Where is my parcel?")) >= before - 5


def test_a_replaced_engine_has_its_prefixes_and_nothing_else() -> None:
    """The new process has read the instructions before it served, but no conversation."""
    estimator = PromptEstimator((INSTRUCTIONS,))
    long = "word " * 100
    talk = prompt(long, "Yes.", "And now?")
    fresh = estimator.uncached(talk)
    estimator.learn(prompt(long), done(177 + 12, padding=12))
    assert estimator.uncached(talk) < fresh
    estimator.forget()
    assert estimator.uncached(talk) == fresh


def test_tokens_a_letter_are_learnt_without_the_filling() -> None:
    """Padding says nothing about how long texts are."""
    padded, plain = PromptEstimator((INSTRUCTIONS,)), PromptEstimator((INSTRUCTIONS,))
    for _ in range(50):
        padded.learn(prompt("Where is my parcel?"), done(47, padding=14))
        plain.learn(prompt("Where is my parcel?"), done(33))
    assert padded.uncached(prompt("Where is it now?")) == plain.uncached(prompt("Where is it now?"))
