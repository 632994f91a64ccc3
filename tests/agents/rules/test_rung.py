"""The rung: what an event gets from the rules, and what it does not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec

from agents.ladder import Declined, Given, Question
from agents.rules.index import LOOP_WORK, TooMuchWork
from agents.rules.rung import RulesRung, build_rules_rung
from schemas.events import InteractionEvent
from schemas.inference import Constraint, Message
from schemas.rules import Rule, RuleMatch
from schemas.session import SessionState
from schemas.settings_ladder import Rules
from tests.support import run

HOURS = Rule(name="hours", match=RuleMatch(any=("open*", "营业"), scenarios=("shop",)), answer={"en": "9 to 5, {state.name|friend}.", "zh": "九点到五点。"})
LATER = Rule(name="later", match=RuleMatch(locales=("en",)), answer={"en": "Ticket {state.ticket} is open."}, when="degraded")


class Time:
    """A budget with a minute left."""

    def __init__(self) -> None:
        self.stop: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.stop_at = time.monotonic() + 60


def question(text: str | None, *, locale: str = "en", scenario: str = "shop", state: dict[str, Any] | None = None, **fields: Any) -> Question:
    """A message as a rung sees it."""
    event = InteractionEvent(event_id="e", session_id="s", text=text, scenario=scenario)
    plain = Question(
        event=event,
        state=SessionState(state=state or {}),
        messages=(Message("user", text or ""),),
        max_tokens=None,
        temperature=0.0,
        stop=(),
        constraint=None,
        locale=locale,
    )
    return msgspec.structs.replace(plain, **fields)


def answer(asked: Question, *rules: Rule) -> Given | Declined:
    """What the rung with these rules says."""

    async def going() -> Given | Declined:
        return await RulesRung(Rules(inline=rules)).answer(asked, Time())

    return run(going())


def test_rule_answers_with_its_name() -> None:
    """The outcome is `rule`, the text is filled from the session, and the way down names the rule."""
    assert answer(question("When do you OPEN?", state={"name": "Mei"}), HOURS) == Given("rule", "9 to 5, Mei.", why="hours")
    assert answer(question("几点营业", locale="zh-CN"), HOURS) == Given("rule", "九点到五点。", why="hours")


def test_no_rule_is_a_refusal_that_gives_no_reason() -> None:
    """The rungs below decide; nothing went wrong here."""
    for asked in (question("opening", scenario="default"), question("reopen"), question(None)):
        assert answer(asked, HOURS) == Declined("skipped", "no rule matches", None)


def test_asked_for_form_is_kept() -> None:
    """One of the labels may come from a rule, a sentence for a program may not."""
    yes = msgspec.structs.replace(HOURS, answer={"en": "yes"})
    labels = question("open?", constraint=Constraint(choice=("yes", "no")))
    assert answer(labels, yes) == Given("rule", "yes", why="hours")
    for asked in (labels, question("open?", constraint=Constraint(regex="[0-9]+")), question("open?", constraint=Constraint(json_schema="{}"))):
        refused = answer(asked, HOURS)
        assert isinstance(refused, Declined)
        assert refused.reason is None


def test_degraded_rule_answers_instead_of_the_default_alone() -> None:
    """It is asked for by itself, says nothing half, and keeps to the form as well."""
    rung = RulesRung(Rules(inline=(LATER,)))
    asked = question("x", state={"ticket": 7})
    assert rung.degraded(asked) == Given("rule", "Ticket 7 is open.", why="later")
    assert rung.degraded(question("x")) is None
    assert rung.degraded(question("x", locale="de", state={"ticket": 7})) is None
    assert rung.degraded(msgspec.structs.replace(asked, constraint=Constraint(choice=("a", "b")))) is None
    assert isinstance(answer(asked, LATER), Declined)


def test_long_search_leaves_the_loop() -> None:
    """A text that needs more work than the loop may do is matched all the same."""
    slow = tuple(Rule(name=f"r{number}", match=RuleMatch(pattern=f"a.{{{number}}}b[^b]{{60}}c"), answer={"en": "slow"}, priority=1) for number in range(1, 9))
    last = Rule(name="last", match=RuleMatch(pattern="b+c$"), answer={"en": "found"})
    text = "ab" * 450 + "c"
    found = RulesRung(Rules(inline=(*slow, last)))
    assert isinstance(found._match(question(text), LOOP_WORK, "always"), TooMuchWork)
    assert answer(question(text), *slow, last) == Given("rule", "found", why="last")


def test_nothing_configured_is_no_rung(tmp_path: Path) -> None:
    """Without rules the rung is skipped; a file alone makes one, which starts and stops."""
    assert build_rules_rung(Rules()) is None
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nname = "r"\nmatch.any = ["x"]\nanswer.en = "a"\n', encoding="utf-8")
    rung = build_rules_rung(Rules(files=(str(file),)))
    assert rung is not None
    assert rung.count == 1

    async def going() -> None:
        await rung.start()
        rung.ended(question("x"), None)
        await rung.stop()

    run(going())
