"""What a scenario changes: its ladder, its instructions and its default texts, each built once; what a ladder does is `agents.ladder`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agents.answer_check import AnswerCheck
from agents.facts import SlotSet, load_slots
from agents.facts.finder import encode
from agents.ladder import Degraded, Ladder, OnRung, RungProtocol
from agents.rules.patterns import Pattern, PatternProblem, compile_pattern
from agents.templates import Template, TemplateProblem, parse_template, render
from schemas.errors import ConfigError
from schemas.settings import Session, Settings
from schemas.settings_ladder import Ladder as LadderSection
from schemas.settings_ladder import Scenario
from schemas.settings_tree import format_path

RungsOf = Callable[[tuple[str, ...]], Mapping[str, RungProtocol]]
"""The rungs of one ladder by their names, from the names above each other; a built-in one that is not configured is not among them."""

_NAMES = frozenset({"state", "locale"})
"""What a default text may name. Not the person's own text: a default is no place to repeat what nobody has looked at."""

_SHIPPED = LadderSection().default_text
"""The last resort: texts without a single value to fill in, so that the default can never fail."""


class DefaultTexts:
    """What is said when nothing better is ready, by locale, with values of the session filled in."""

    def __init__(self, layers: Mapping[str, Mapping[str, str]]) -> None:
        """`layers` are default texts by the settings key they stand under, the scenario's own first.

        Raises:
            ConfigError: a text is no template; says which.
        """
        self._layers = [{locale: _parsed(f"{key}.{locale}", text) for locale, text in texts.items()} for key, texts in layers.items()]
        self._layers.append({locale: _parsed(locale, text) for locale, text in _SHIPPED.items()})
        self._chains = {locale: self._chain(locale) for locale in {locale for layer in self._layers for locale in layer}}

    def render(self, locale: str, state: Mapping[str, Any]) -> str:
        """The first text whose values are all there: the scenario's for the locale, then texts in the same language, then English ones."""
        values = {"state": state, "locale": locale}
        chain = self._chains.get(locale) or self._chains.get(_language(locale)) or self._chains["en"]
        for template in chain:
            text = render(template, values)
            if text is not None:
                return text
        return _SHIPPED["en"]

    def _chain(self, locale: str) -> tuple[Template, ...]:
        """The texts for one locale that the settings know, in the order in which they are tried."""
        spellings = (locale, _language(locale))
        first = self._layers[0]
        best = next((first[name] for name in spellings if name in first), first["en"])
        same = [layer[name] for layer in self._layers for name in spellings if name in layer]
        english = [layer["en"] for layer in self._layers]
        return tuple(dict.fromkeys((best, *same, *english)))


DECISION_CHARS = 2000
"""Of a message, how many characters are searched for a decision, as for facts: the time stays short."""


class Plan(msgspec.Struct, frozen=True):
    """How events of one scenario are answered."""

    scenario: Scenario
    session: Session
    """The session settings with the scenario's own instructions."""
    ladder: Ladder
    defaults: DefaultTexts
    decisions: tuple[Pattern, ...] = ()
    """A message that one of these is found in is a decision."""

    def is_decision(self, text: str) -> bool:
        """Whether a message asks for something that needs a confirm."""
        return bool(self.decisions) and any(pattern.search(encode(text[:DECISION_CHARS])) is not None for pattern in self.decisions)


class Scenarios:
    """The plan for each named scenario, and one for all others: events may carry any name, and nothing is kept of it."""

    def __init__(self, base: Plan, named: Mapping[str, Plan], slots: SlotSet) -> None:
        self._base = base
        self._named = dict(named)
        self.slots = slots
        """What is looked for in a person's words, in every scenario."""

    def of(self, name: str) -> Plan:
        """The plan of a scenario."""
        return self._named.get(name, self._base)


def plan_scenarios(settings: Settings, rungs_of: RungsOf, *, insurance: Degraded | None = None, on_rung: OnRung | None = None) -> Scenarios:
    """Every scenario's plan.

    Raises:
        ConfigError: a default text is no template, a pattern cannot work, or a rung stands where it is never reached.
    """
    slots = load_slots(settings.facts)
    look = AnswerCheck(slots).look
    ladders: dict[tuple[str, ...], Ladder] = {}

    def ladder(names: tuple[str, ...]) -> Ladder:
        """One for all scenarios with the same rungs: what a rung costs is learned once."""
        if names not in ladders:
            known = rungs_of(names)
            ladders[names] = Ladder(
                tuple(known[name] for name in names if name in known), insurance=insurance if "rules" in names else None, on_rung=on_rung, look=look
            )
        return ladders[names]

    def plan(key: str, scenario: Scenario) -> Plan:
        own_rungs, own_texts = scenario.ladder.rungs, scenario.ladder.default_text
        names = settings.ladder.rungs if own_rungs is None else own_rungs
        texts = {"ladder.default_text": settings.ladder.default_text}
        if own_texts is not None:
            texts = {f"{key}.default_text": own_texts, **texts}
        session = settings.session
        if scenario.instructions is not None:
            session = msgspec.structs.replace(session, instructions=scenario.instructions)
        reached = _reached("ladder.rungs" if own_rungs is None else f"{key}.rungs", names)
        patterns = _decision_patterns(f"{key.removesuffix('.ladder')}.decision_patterns", scenario)
        return Plan(scenario, session, ladder(tuple(name for name in reached if _is_on(name, scenario, settings))), DefaultTexts(texts), patterns)

    named = {name: plan(format_path(("scenarios", name, "ladder")), scenario) for name, scenario in settings.scenarios.items()}
    return Scenarios(plan("ladder", Scenario()), named, slots)


def _decision_patterns(key: str, scenario: Scenario) -> tuple[Pattern, ...]:
    patterns = []
    for index, source in enumerate(scenario.decision_patterns):
        pattern = compile_pattern(source)
        if isinstance(pattern, PatternProblem):
            raise ConfigError(f"{key}[{index}]", pattern.wrong, pattern.right)
        patterns.append(pattern)
    return tuple(patterns)


def _reached(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names above `default`, which is what every walk ends with; nothing may stand below it."""
    if "default" not in names:
        return names
    end = names.index("default")
    if end + 1 < len(names):
        raise ConfigError(f"{key}[{end + 1}]", f"{names[end + 1]!r} stands below `default`, which always answers", "put default last")
    return names[:end]


def _is_on(name: str, scenario: Scenario, settings: Settings) -> bool:
    """Whether the scenario uses this rung: one that it switches off is not asked, and not listed as if it had been."""
    match name:
        case "cache":
            return (settings.cache.ttl_s if scenario.cache.ttl_s is None else scenario.cache.ttl_s) > 0
        case "semantic_cache":
            return scenario.semantic_cache.threshold is not None
        case _:
            return True


def _parsed(key: str, text: str) -> Template:
    template = parse_template(text, _NAMES)
    if isinstance(template, TemplateProblem):
        raise ConfigError(key, template.wrong, template.right)
    return template


def _language(locale: str) -> str:
    return locale.split("-", maxsplit=1)[0].split("_", maxsplit=1)[0].lower()
