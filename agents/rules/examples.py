"""Whether rules do what their own examples say; that they are right as rules is `files`."""

from __future__ import annotations

import msgspec

from agents.rules.files import Read, Written
from agents.rules.index import RuleSet
from schemas.rules import RuleExample

_SHOWN_CHARS = 80
"""Of a text in a message, so that it stays one line."""


class Failure(msgspec.Struct, frozen=True):
    """An example that came out differently; `number` counts from 1 within its rule."""

    file: str | None
    line: int | None
    rule: str
    number: int
    text: str
    wrong: str

    def __str__(self) -> str:
        """One line."""
        at = f"{self.file}:{self.line}: " if self.file else ""
        return f"{at}rule {self.rule}, example {self.number} ({_shorten(self.text)}): {self.wrong}"


class Outcome(msgspec.Struct, frozen=True):
    """All examples of some rules."""

    passed: int
    failures: tuple[Failure, ...]
    without: tuple[str, ...]
    """Rules that have no example."""


def run_examples(read: Read) -> Outcome:
    """Ask every rule its examples, with all the others in force as they would be."""
    passed = 0
    failures: list[Failure] = []
    for written in read.rules:
        for index, example in enumerate(written.rule.examples):
            wrong = _run_example(read.ruleset, written, example)
            if wrong is None:
                passed += 1
            else:
                line = written.source.line((written.index, "examples", index))
                failures.append(Failure(written.source.file, line, written.rule.name, index + 1, example.text, wrong))
    return Outcome(passed, tuple(failures), tuple(written.rule.name for written in read.rules if not written.rule.examples))


def _run_example(ruleset: RuleSet, written: Written, example: RuleExample) -> str | None:
    """What is wrong, or None."""
    rule = written.rule
    found = ruleset.match(example.text, scenario=example.scenario, locale=example.locale, state=example.state, when=rule.when)
    answers = found is not None and found.rule == rule.name
    if not example.matches:
        return f"it answers, and must not: {_shorten(found.text)}" if found is not None and answers else None
    if found is None or not answers:
        why = ruleset.why_not(rule.name, example.text, scenario=example.scenario, locale=example.locale, state=example.state)
        return f"it does not answer: {why}"
    if example.answer is not None and found.text != example.answer:
        return f"it says {_shorten(found.text)}, not {_shorten(example.answer)}"
    return None


def _shorten(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN_CHARS else f"{shown[: _SHOWN_CHARS - 1]}…"
