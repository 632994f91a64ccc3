"""Whether an answer contradicts what is known: pinned facts and confirmed decisions against what the answer says of the same slots; mending is `repair`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from agents.consistency.actions import check_decisions
from agents.consistency.contradiction import Contradiction
from agents.consistency.perspective import speaks_of_person, swap_speaker
from agents.facts.clauses import Clause, cut
from agents.facts.extract import read_answer
from agents.facts.finder import Finder, encode
from agents.facts.render import render_value
from agents.facts.slots import SlotSet
from agents.facts.values import agree, same
from agents.rules.normalize import fold_width
from schemas.facts import Fact, Facts, Number, Text
from schemas.session import Decision

CERTAIN = 0.6
"""Confidence below which a fact holds no answer up: a guess must not overrule the model."""

_OF_THE_PAST = Finder(
    r"\b(?:previous(?:ly)?|former(?:ly)?|earlier|originally|original|old|instead of|rather than"
    r"|no longer|used to|at first|before that|was changed|changed from)\b",
    "原来|之前|以前|原先|原本|此前|旧|不再|曾",
)
"""What was so once contradicts nothing that is so now."""

_DIGITS = re.compile(r"\d[\d,]*(?:\.\d+)?")


def check(
    answer: str, facts: Facts, decisions: Iterable[Decision], locale: str, slots: SlotSet, *, scenario: str = "default", at_ms: int = -1
) -> tuple[Contradiction, ...]:
    """Every place where `answer` says other than what is known, in its order; pure. No alarm for what it does not mention.

    Asked, supposed, quoted and past things say nothing. `at_ms` is when `tomorrow` is said; negative: such words are passed over.
    """
    text = answer[: slots.settings.text_chars]
    known = {fact.identity: fact for fact in facts.facts if fact.pinned and fact.confidence >= CERTAIN}
    decided = tuple(decisions)
    if not known and not decided:
        return ()
    past = _OF_THE_PAST.within(encode(text))
    clauses = [clause for clause in cut(text) if clause.mood == "states" and not past.finds(encode(clause.text))]
    if not clauses:
        return ()
    found = _check_facts(clauses, known, locale, slots, scenario, at_ms) if known else []
    found = [contradiction for contradiction in found if not _is_of_decision(contradiction.said, decided)]
    found += check_decisions(clauses, decided)
    movable = len(fold_width(text)) == len(text)  # else places in the clauses are not places in the answer
    placed = [_place(contradiction, text) if movable else msgspec.structs.replace(contradiction, replacement=None) for contradiction in found]
    return tuple(sorted(placed, key=lambda contradiction: (contradiction.start, contradiction.slot)))


def _check_facts(clauses: Sequence[Clause], known: dict[tuple[str, str], Fact], locale: str, slots: SlotSet, scenario: str, at_ms: int) -> list[Contradiction]:
    names = {slot for slot, _ in known}
    texts = swap_speaker("\n".join(clause.text for clause in clauses)).split("\n")  # a clause holds no line end
    swapped = [Clause(text, clause.mood, clause.start, clause.sentence) for text, clause in zip(texts, clauses, strict=True)]
    originals = {clause.start: clause for clause in clauses}
    heard: dict[tuple[str, str], list[tuple[Clause, Fact, str]]] = {}
    for clause, said, raw, for_answers in read_answer(swapped, locale, slots, scenario, names, at_ms):
        if said.identity in known and (for_answers or speaks_of_person(clause.text)):
            heard.setdefault(said.identity, []).append((originals[clause.start], said, raw))
    found: list[Contradiction] = []
    for identity, places in heard.items():
        fact = known[identity]
        wrong = [place for place in places if _contradicts(fact, place[1])]
        if len(wrong) < len(places) and isinstance(fact.value, Text):
            continue  # it names the right one as well: two orders are compared, not confused
        found += [_explain(fact, said, raw, clause, locale) for clause, said, raw in wrong]
    return found


def _is_of_decision(said: str, decisions: Sequence[Decision]) -> bool:
    """Whether a code that differs from the known one is that of a confirmed decision: then it is another order, and not a wrong one."""
    return any(char.isdigit() for char in said) and not said.isdigit() and any(said.casefold() in decision.text.casefold() for decision in decisions)


def _contradicts(fact: Fact, said: Fact) -> bool:
    if type(fact.value) is not type(said.value):
        return False
    if fact.denied:
        return not said.denied and same(fact.value, said.value)
    if said.denied:
        return same(fact.value, said.value)
    return not agree(fact.value, said.value)


def _explain(fact: Fact, said: Fact, raw: str, clause: Clause, locale: str) -> Contradiction:
    language = "zh" if locale.lower().startswith("zh") else "en"
    known = render_value(fact.value, language)
    at = clause.text.find(raw) if clause.text.count(raw) == 1 else -1
    replacement = None if at < 0 or fact.denied or said.denied else _replacement(fact, said, raw)
    start = clause.start + max(at, 0)
    end = start + (len(raw) if at >= 0 else len(clause.text))
    return Contradiction(fact.slot, fact.key, raw, f"not {known}" if fact.denied else known, fact.event_id, start, end, replacement)


def _replacement(fact: Fact, said: Fact, raw: str) -> str | None:
    """The right words for `raw`, where they are certain: a name or a code for another, a number for a number of the same unit."""
    if isinstance(fact.value, Text):
        return fact.value.text
    if isinstance(fact.value, Number) and isinstance(said.value, Number) and (fact.value.unit == said.value.unit or not fact.value.unit):
        number = f"{fact.value.number:.10g}"
        return _DIGITS.sub(number, raw, count=1) if _DIGITS.search(raw) else number
    return None


def _place(contradiction: Contradiction, text: str) -> Contradiction:
    """Without its replacement when the words are not where they were expected, as after a quotation mark left out."""
    if contradiction.replacement is not None and fold_width(text[contradiction.start : contradiction.end]) != contradiction.said:
        return msgspec.structs.replace(contradiction, replacement=None)
    return contradiction
