"""The rung that answers by rules: where the settings' rules meet an event; the rules themselves are `index`, the ladder is `agents.ladder`."""

from __future__ import annotations

import asyncio

from agents.ladder import Budget, Declined, Given, Question
from agents.rules.index import LOOP_WORK, WORK_LIMIT, Matched, TooMuchWork, When
from agents.rules.live import LiveRules, OnReload
from schemas.settings_ladder import Rules

FLOOR_S = 0.0005
"""What a match may take: with less left than this the default is as good. Measured p99 of 5,000 rules stays below half of it."""


class RulesRung:
    """Answers in microseconds, without a model. Started and stopped with the worker, because it follows its files."""

    name = "rules"
    label = "rules"
    floor_s = FLOOR_S

    def __init__(self, settings: Rules, *, on_reload: OnReload | None = None) -> None:
        """Read and check all rules.

        Raises:
            ConfigError: a file or a rule is wrong.
        """
        self._live = LiveRules(settings, on_reload=on_reload)

    @property
    def count(self) -> int:
        """Rules in force."""
        return self._live.current.count

    async def start(self) -> None:
        """Follow the files."""
        await self._live.start()

    async def stop(self) -> None:
        """Follow them no more; what is in force still answers."""
        await self._live.stop()

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """What the highest rule says that matches. On the loop, unless the patterns to search for could hold it up."""
        found = self._match(question, LOOP_WORK, "always")
        if isinstance(found, TooMuchWork):
            found = await asyncio.to_thread(self._match, question, WORK_LIMIT, "always")
        if isinstance(found, TooMuchWork):
            return Declined("skipped", "too many patterns to search this text for", None)
        if found is None:
            return Declined("skipped", "no rule matches", None)
        if not _keeps_to_form(found.text, question):
            return Declined("skipped", f"{found.rule}: what it says is not of the form that was asked for", None)
        return Given("rule", found.text, why=found.rule)

    def degraded(self, question: Question) -> Given | None:
        """What a rule that is `when = "degraded"` says instead of the default; at once, so that nothing is left to compute at the deadline."""
        found = self._match(question, WORK_LIMIT, "degraded")
        if not isinstance(found, Matched) or not _keeps_to_form(found.text, question):
            return None
        return Given("rule", found.text, why=found.rule)

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing was kept."""

    def _match(self, question: Question, work: int, when: When) -> Matched | TooMuchWork | None:
        event, state = question.event, question.state.state
        return self._live.current.match_within(work, event.text or "", scenario=event.scenario, locale=question.locale, state=state, when=when)


def build_rules_rung(settings: Rules, *, on_reload: OnReload | None = None) -> RulesRung | None:
    """The rung, or None when no rules are configured: then it is skipped.

    Raises:
        ConfigError: a file is missing or wrong, or a rule is; names file, line, key and what would be right.
    """
    return RulesRung(settings, on_reload=on_reload) if settings.files or settings.inline else None


def _keeps_to_form(text: str, question: Question) -> bool:
    """Who asked for one of some labels, or for JSON, gets that or nothing from a rule: a sentence would break the program that reads it."""
    constraint = question.constraint
    if constraint is None:
        return True
    return constraint.choice is not None and text in constraint.choice
