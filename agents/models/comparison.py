"""Models side by side on a user's own questions: the file, what counts as right, figures and recommendation; asking them is the command `compare`.

A file is TOML with `[[prompts]]` or JSONL with one object a line. Each has `prompt`, and either `expect` (texts that the answer must hold, ignoring
case; an entry that is a list is met by any of its texts), or `choice` (labels) with `right` (the one that is meant), or neither: then it measures speed alone.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.errors import UsageError

Line = Annotated[str, Meta(min_length=1, max_length=20_000)]

ALIKE = 0.05
"""Shares of right answers nearer than this are the same on the few dozen prompts that people write: then speed decides."""

MOST_PROMPTS = 10_000
"""Each is asked once of each model; more is a benchmark of its own."""


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question with what its answer must be."""

    prompt: Line
    expect: tuple[str | tuple[str, ...], ...] = ()
    choice: tuple[Line, ...] = ()
    right: str | None = None

    def __post_init__(self) -> None:
        """Refuse what could never be right, so that no model is blamed for it."""
        if bool(self.choice) != (self.right is not None) or (self.choice and self.expect):
            msg = "give `expect`, or `choice` with `right`, or neither"
            raise ValueError(msg)
        if self.right is not None and self.right not in self.choice:
            msg = f"`right` ({self.right!r}) is none of the choices"
            raise ValueError(msg)

    @property
    def judged(self) -> bool:
        """Whether it has an expectation."""
        return bool(self.expect or self.choice)


class PromptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a file. `instructions` are told first; None takes the settings'."""

    prompts: Annotated[tuple[Prompt, ...], Meta(min_length=1, max_length=MOST_PROMPTS)]
    instructions: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What one model said to one prompt. Times in seconds from asking; `by_deadline` is the text that was there by then, None for a choice not made yet."""

    text: str
    by_deadline: str | None
    tokens: int
    tokens_by_deadline: int
    first_s: float
    total_s: float


class Facts(msgspec.Struct, frozen=True):
    """A model's own size, in bytes."""

    name: str
    version: str
    disk_bytes: int
    memory_bytes: int


class Row(msgspec.Struct, frozen=True):
    """One model in the table. Shares are of the prompts with an expectation, None without any; medians over all prompts."""

    name: str
    version: str
    disk_bytes: int
    memory_bytes: int
    first_ms: float
    tokens_s: float
    tokens_by_deadline: float
    right: float | None
    right_by_deadline: float | None
    prompts: int


class Recommendation(msgspec.Struct, frozen=True):
    """Which model, None for none of them, and why in one sentence."""

    name: str | None
    why: str


def read_prompts(file: Path) -> PromptFile:
    """Read a `.jsonl` file or one in TOML.

    Raises:
        UsageError: it cannot be read, or a prompt is wrong; the text says which.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".jsonl":
            return PromptFile(tuple(_parse_line(line, number) for number, line in enumerate(text.splitlines(), 1) if line.strip()) or _none(file))
        return msgspec.convert(tomllib.loads(text), PromptFile)
    except OSError as error:
        msg = f"--prompts {file} cannot be read ({error.strerror}): name a .toml or .jsonl file"
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"--prompts {file} is not TOML ({error}): see examples/prompts.toml"
    except msgspec.ValidationError as error:
        msg = f"--prompts {file}: {error}; see examples/prompts.toml"
    raise UsageError(msg)


def _none(file: Path) -> tuple[Prompt, ...]:
    msg = f"--prompts {file} has no prompts: see examples/prompts.toml"
    raise UsageError(msg)


def _parse_line(line: str, number: int) -> Prompt:
    try:
        return msgspec.json.decode(line, type=Prompt)
    except msgspec.DecodeError as error:
        msg = f"line {number}: {error}"
        raise msgspec.ValidationError(msg) from None


def is_right(prompt: Prompt, text: str | None) -> bool:
    """Whether `text` is what the prompt expects; no text never is."""
    if text is None:
        return False
    if prompt.right is not None:
        return text.strip() == prompt.right
    folded = text.casefold()
    return all(any(one.casefold() in folded for one in ((entry,) if isinstance(entry, str) else entry)) for entry in prompt.expect)


def summarise(facts: Facts, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> Row:
    """The figures of one model from its answers, in the order of the prompts."""
    judged = [(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True) if prompt.judged]
    speeds = [(answer.tokens - 1) / (answer.total_s - answer.first_s) for answer in answers if answer.tokens > 1 and answer.total_s > answer.first_s]
    return Row(
        facts.name,
        facts.version,
        facts.disk_bytes,
        facts.memory_bytes,
        first_ms=statistics.median(answer.first_s for answer in answers) * 1000,
        tokens_s=statistics.median(speeds) if speeds else 0.0,
        tokens_by_deadline=statistics.median(answer.tokens_by_deadline for answer in answers),
        right=_share([is_right(prompt, answer.text) for prompt, answer in judged]),
        right_by_deadline=_share([is_right(prompt, answer.by_deadline) for prompt, answer in judged]),
        prompts=len(prompts),
    )


def recommend(rows: Sequence[Row], *, deadline_ms: float, min_tokens: int) -> Recommendation:
    """The model with the most right answers by the deadline; among those alike, the one that says most by then."""
    able = [row for row in rows if row.tokens_by_deadline >= min_tokens or (row.right_by_deadline or 0.0) > 0]
    if not able:
        quick = min(rows, key=lambda row: row.first_ms)
        need_ms = quick.first_ms + (min_tokens / quick.tokens_s * 1000 if quick.tokens_s else 0.0)
        return Recommendation(
            None, f"none says {min_tokens} tokens within {deadline_ms:g} ms; {quick.name} is the quickest and would need about {need_ms:.0f} ms"
        )
    top = max(row.right_by_deadline or 0.0 for row in able)
    alike = [row for row in able if (row.right_by_deadline or 0.0) >= top - ALIKE]
    best = max(alike, key=lambda row: (row.tokens_by_deadline, -row.memory_bytes))
    return Recommendation(best.name, _why(best, alike, able, rows, deadline_ms))


def _why(best: Row, alike: Sequence[Row], able: Sequence[Row], rows: Sequence[Row], deadline_ms: float) -> str:
    said = f"{best.tokens_by_deadline:.0f} tokens within {deadline_ms:g} ms at {best.memory_bytes / 1e6:.0f} MB"
    share = "" if best.right_by_deadline is None else f"{best.right_by_deadline:.0%} right by the deadline, "
    if len(rows) == 1:
        return f"{best.name} is the only one here: {share}{said}"
    if len(alike) > 1:
        other = max((row for row in alike if row is not best), key=lambda row: row.right_by_deadline or 0.0)
        equal = "nobody knows which is right oftener" if best.right_by_deadline is None else "as often right as the best"
        return f"{best.name} is {equal} and says most in time: {share}{said} ({other.name}: {other.tokens_by_deadline:.0f} tokens)"
    others = [row for row in able if row is not best]
    if not others:
        return f"{best.name} is the only one that is quick enough: {share}{said}"
    second = max(others, key=lambda row: row.right_by_deadline or 0.0)
    return f"{best.name} is right most often by the deadline: {share}{said} ({second.name}: {second.right_by_deadline or 0.0:.0%})"


def _share(verdicts: Sequence[bool]) -> float | None:
    return sum(verdicts) / len(verdicts) if verdicts else None
