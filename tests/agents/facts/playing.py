"""Plays the conversation scripts of `examples/` and counts what was found, missed and falsely alarmed; used by the tests of facts and of consistency."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agents.consistency import check
from agents.facts import SlotSet, extract, load_slots, merge
from agents.facts.render import render_value
from schemas.facts import Fact, Facts
from schemas.session import Decision
from schemas.settings_facts import Facts as FactsSettings

EXAMPLES = Path(__file__).parents[3] / "examples"

START_MS = 1_767_225_600_000
"""Thursday, 1 January 2026, 00:00 UTC."""

MINUTE_MS = 60_000


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer as a model might write it, and the facts that it contradicts."""

    text: str
    contradicts: tuple[str, ...] = ()


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a script."""

    part: str
    turn: str
    text: str
    sets: dict[str, str]
    """Facts that the text states, as `slot` or `slot:key` with the value as a prompt shows it."""
    answers: tuple[Answer, ...] = ()
    confirms: str | None = None
    fresh: bool = False
    """True: a new conversation begins."""


@dataclass(slots=True)
class Score:
    """What came of one conversation; each list holds what is to be looked at."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Turns after which what is known is not what was stated so far."""
    caught: int = 0
    overlooked: list[str] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    consistent: int = 0
    """Answers that contradict nothing."""


@functools.cache
def built_in() -> SlotSet:
    """The slots that every worker has."""
    return load_slots(FactsSettings())


def read_script(language: str, part: str) -> list[Turn]:
    """The turns of one part of a script."""
    lines = (EXAMPLES / f"conversations_{language}.jsonl").read_bytes().splitlines()
    return [turn for turn in (msgspec.json.decode(line, type=Turn) for line in lines) if turn.part == part]


def know(*texts: str, locale: str = "en") -> Facts:
    """What is known after these turns."""
    known = Facts()
    for number, text in enumerate(texts):
        found = extract(text, locale, built_in(), f"e{number}", START_MS + number, known=known)
        known = merge(known, found, built_in().settings)
    return known


def said(text: str, locale: str = "en", known: Facts | None = None) -> dict[str, str]:
    """The facts of one text, as scripts write them."""
    return {name_of(fact): show(fact, locale) for fact in extract(text, locale, built_in(), "e", START_MS, known=known)}


def play(turns: list[Turn], language: str) -> Score:
    """One conversation from its first turn to its last."""
    score, known, decisions, stated = Score(), Facts(), list[Decision](), dict[str, str]()
    for number, turn in enumerate(turns):
        at_ms = START_MS + number * MINUTE_MS
        if turn.fresh:
            known, decisions, stated = Facts(), [], {}
        found = extract(turn.text, language, built_in(), turn.turn, at_ms, offset=number, known=known)
        known = merge(known, found, built_in().settings)
        stated |= turn.sets
        if turn.confirms is not None:
            decisions.append(Decision(turn.turn, turn.confirms, at_ms))
        _count_facts(turn, {name_of(fact): show(fact, language) for fact in found}, score)
        if {name_of(fact): show(fact, language) for fact in known.facts} != stated:
            score.forgotten.append(turn.turn)
        for answer in turn.answers:
            _count_alarms(
                turn,
                answer,
                {alarm.slot + (f":{alarm.key}" if alarm.key else "") for alarm in check(answer.text, known, decisions, language, built_in(), at_ms=at_ms)},
                score,
            )
    return score


def name_of(fact: Fact) -> str:
    """`slot` or `slot:key`."""
    return fact.slot + (f":{fact.key}" if fact.key else "")


def show(fact: Fact, language: str) -> str:
    """The value as a prompt shows it."""
    value = render_value(fact.value, language)
    return value if not fact.denied else f"不是{value}" if language == "zh" else f"not {value}"


def _count_facts(turn: Turn, found: dict[str, str], score: Score) -> None:
    score.right += sum(found.get(name) == value for name, value in turn.sets.items())
    score.wrong += [f"{turn.turn} {name}={value}" for name, value in found.items() if turn.sets.get(name) != value]
    score.missed += [f"{turn.turn} {name}={value}" for name, value in turn.sets.items() if found.get(name) != value]


def _count_alarms(turn: Turn, answer: Answer, alarms: set[str], score: Score) -> None:
    wanted = set(answer.contradicts)
    score.consistent += not wanted
    score.caught += len(wanted & alarms)
    score.overlooked += [f"{turn.turn} {answer.text} ({name})" for name in sorted(wanted - alarms)]
    score.false_alarms += [f"{turn.turn} {answer.text} ({name})" for name in sorted(alarms - wanted)]
