"""One rule made ready to match, or all that is wrong with it; finding it among thousands is `index`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from agents.rules.keywords import MAX_KEYWORD_CHARS, Keyword, parse_keyword
from agents.rules.patterns import Pattern, PatternProblem, compile_pattern, has_fixed_piece
from agents.rules.predicates import OneOf, Predicate, holds, parse_state, widen_locale
from agents.templates import Template, TemplateProblem, parse_template, render
from schemas.rules import Rule, RuleMatch

FALLBACK_LOCALE = "en"

_OWN_NAMES = ("text", "locale", "state")
"""What every answer may be filled with; a pattern's groups come on top and may not take these names."""

_NONE: frozenset[str] = frozenset()
"""One for all rules: Python makes a new one each time, which the cyclic collector would look at, 10,000 of them for 5,000 rules."""

Key: TypeAlias = tuple[str | int, ...]


class RuleProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a rule: at which key of it, and what would be right."""

    key: Key
    wrong: str
    right: str


class View(msgspec.Struct, frozen=True, gc=False):
    """What a rule may look at; `folded` and `raw` are the text for keywords and for patterns, or None when it is too long to look into.

    `apart` is what `normalize.fold_case_apart` says of it.
    """

    text: str
    folded: str | None
    apart: str | None
    raw: bytes | None
    scenario: str
    locales: tuple[str, ...]
    state: Mapping[str, Any]
    locale: str


class CompiledRule(msgspec.Struct, frozen=True, gc=False):
    """A rule that was found right."""

    rule: Rule
    any: tuple[Keyword, ...]
    all: tuple[Keyword, ...]
    none: tuple[Keyword, ...]
    pattern: Pattern | None
    has_fixed_piece: bool
    """Whether a filter can tell when the pattern need not be tried."""
    scenarios: frozenset[str]
    locales: frozenset[str]
    predicates: tuple[Predicate, ...]
    answers: dict[str, Template]

    reads_text: bool
    """Whether any condition is on the text."""

    def failing(self, view: View) -> str | None:
        """The first condition that does not hold; the pattern, which costs most, is left to `say`."""
        if self.scenarios and view.scenario not in self.scenarios:
            return "scenarios"
        if self.locales and self.locales.isdisjoint(view.locales):
            return "locales"
        if self.reads_text and (lacking := self._lacking(view.folded)) is not None:
            return lacking
        for predicate in self.predicates:
            if not holds(predicate, view.state):
                return f"state.{'.'.join(predicate.path)}"
        return None

    def _lacking(self, folded: str | None) -> str | None:
        """Loops, and a first look without a call: this is asked a hundred times for one message, and most keywords are not there at all."""
        if folded is None:
            return "the text's length"
        for keyword in self.all:
            if keyword.text not in folded or not keyword.stands_in(folded):
                return "all"
        for keyword in self.any:
            if keyword.text in folded and keyword.stands_in(folded):
                break
        else:
            if self.any:
                return "any"
        for keyword in self.none:
            if keyword.text in folded and keyword.stands_in(folded):
                return "none"
        return None

    def say(self, view: View) -> str | None:
        """What it says where nothing is `failing`; None when the pattern does not match, or a value that the answer speaks of is missing."""
        groups = self.pattern.search(view.raw or b"") if self.pattern else {}
        template = next((self.answers[locale] for locale in (*view.locales, FALLBACK_LOCALE) if locale in self.answers), None)
        if groups is None or template is None:
            return None
        return template.fixed or render(template, {**groups, "text": view.text, "locale": view.locale, "state": view.state})


def compile_rule(rule: Rule) -> CompiledRule | list[RuleProblem]:
    """Check everything that a rule's types leave open."""
    problems: list[RuleProblem] = []
    match = rule.match
    keywords = {name: _parse_keywords(name, getattr(match, name), problems) for name in ("any", "all", "none")}
    pattern = None if match.pattern is None else compile_pattern(match.pattern)
    if isinstance(pattern, PatternProblem):
        problems.append(RuleProblem(("match", "pattern"), pattern.wrong, pattern.right))
        pattern = None
    problems += [
        RuleProblem(("match", "pattern"), f"a group is called {name!r}", "choose another name: that one is taken")
        for name in (pattern.groups if pattern else ())
        if name in _OWN_NAMES
    ]
    predicates, wrong = parse_state(match.state)
    problems += [RuleProblem(("match", "state", *problem.keys), problem.wrong, problem.right) for problem in wrong]
    locales = frozenset(widen_locale(locale)[0] for locale in match.locales)
    if match == RuleMatch() and rule.when == "always":
        problems.append(RuleProblem(("match",), "looks for nothing, so no other rung would ever answer", 'add a condition, or set when = "degraded"'))
    answers = _parse_answers(rule, (*_OWN_NAMES, *(pattern.groups if pattern else ())), broken=bool(match.pattern and not pattern), problems=problems)
    _check_locales(answers, locales, problems)
    if problems:
        return problems
    return CompiledRule(
        rule=rule,
        any=keywords["any"],
        all=keywords["all"],
        none=keywords["none"],
        pattern=pattern,
        has_fixed_piece=pattern is not None and has_fixed_piece(pattern),
        scenarios=frozenset(match.scenarios) or _NONE,
        locales=locales or _NONE,
        predicates=tuple(sorted(predicates, key=lambda predicate: not isinstance(predicate, OneOf))),
        answers=answers,
        reads_text=bool(match.any or match.all or match.none or match.pattern),
    )


def _parse_keywords(name: str, written: tuple[str, ...], problems: list[RuleProblem]) -> tuple[Keyword, ...]:
    found: dict[Keyword, None] = {}
    for index, text in enumerate(written):
        keyword = parse_keyword(text)
        if keyword is None:
            problems.append(RuleProblem(("match", name, index), "is empty", "write a word to look for"))
        elif len(keyword.text) > MAX_KEYWORD_CHARS:
            problems.append(RuleProblem(("match", name, index), f"has {len(keyword.text)} characters", f"use at most {MAX_KEYWORD_CHARS}"))
        else:
            found[keyword] = None
    return tuple(found)


def _parse_answers(rule: Rule, names: tuple[str, ...], *, broken: bool, problems: list[RuleProblem]) -> dict[str, Template]:
    """The answers by folded locale; with a `broken` pattern nobody knows which groups there would be, so their names are not held against it."""
    answers: dict[str, Template] = {}
    for locale, text in rule.answer.items():
        parsed = parse_template(text, names)
        if isinstance(parsed, TemplateProblem):
            if not broken:
                problems.append(RuleProblem(("answer", locale), parsed.wrong, parsed.right))
            parsed = Template(())
        elif not text.strip():
            problems.append(RuleProblem(("answer", locale), "is empty", "write what is to be said"))
        answers[widen_locale(locale)[0]] = parsed
    return answers


def _check_locales(answers: dict[str, Template], locales: frozenset[str], problems: list[RuleProblem]) -> None:
    """Whoever the rule is for, there is something to say."""
    if FALLBACK_LOCALE in answers:
        return
    without = next((locale for locale in sorted(locales) if not any(wider in answers for wider in widen_locale(locale))), None)
    if not locales or without is not None:
        missing = without or FALLBACK_LOCALE
        problems.append(RuleProblem(("answer",), f"has no text for `{missing}`", "add one, or `en`, which serves every locale without its own"))
