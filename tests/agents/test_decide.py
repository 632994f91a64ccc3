"""What later prompts show of earlier turns, and what they never show."""

from __future__ import annotations

import msgspec

from agents.ladder import Budget, Declined, Given, Question
from schemas.settings import Settings
from tests.agents.intake import Intake
from tests.support import run


class Remembers:
    """A rung that keeps what it was asked, and fails on demand."""

    name = "main"
    label = "main"
    floor_s = 0.0

    def ended(self, question: Question, given: Given | None) -> None:
        """Nothing to let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """All messages of each question, as one text."""

    async def answer(self, question: Question, _budget: Budget) -> Given | Declined:
        """`fail` in the text is declined."""
        self.asked.append("\n".join(message.text for message in question.messages))
        newest = question.messages[-1].text
        return Declined("failed", "told to", "engine_error") if "fail" in newest else Given("model", f"reply to {newest}")


def prompts(*events: dict[str, object], settings: Settings | None = None) -> list[str]:
    """What the rung was asked for each message of one session."""

    async def asking() -> list[str]:
        rung = Remembers()
        async with Intake(settings, rung) as intake:
            for number, event in enumerate(events):
                intake.feed(f"e{number}", **{"session": "s", **event})  # type: ignore[arg-type]  # fields of an event, by name
                await intake.until_released()
            assert intake.crashes == []
            assert intake.publisher.dead == []
        return rung.asked

    return run(asking())


def test_a_turn_shows_what_was_said_and_answered() -> None:
    """Both sides of the last turn stand in the next prompt, before the new text."""
    _, second = prompts({"text": "first"}, {"text": "second"})
    assert second.index("first") < second.index("reply to first") < second.index("second")


def test_a_default_is_never_shown_as_our_own_words() -> None:
    """An apology in the prompt would teach the model to apologise."""
    default = Settings().ladder.default_text["en"]
    _, second = prompts({"text": "please fail"}, {"text": "second"})
    assert "please fail" in second
    assert default not in second


def test_what_may_not_be_answered_is_not_told_to_the_model_later() -> None:
    """A text without consent stays out of every prompt."""
    asked = prompts({"text": "private", "consent": {"ai_reply": False}}, {"text": "second"})
    assert len(asked) == 1
    assert "private" not in asked[0]


def test_state_is_merged_and_an_expired_event_still_brings_its_state() -> None:
    """External state counts even when its event came too late to be answered."""
    (asked,) = prompts(
        {"kind": "context", "text": None, "state": {"gold": 5, "hat": "red"}}, {"text": "x", "late": True, "state": {"gold": 7, "hat": None}}, {"text": "now"}
    )
    assert '"gold":7' in asked
    assert "hat" not in asked


def test_only_the_last_turns_are_shown() -> None:
    """`session.turns` bounds what each prompt costs."""
    settings = msgspec.structs.replace(Settings(), session=msgspec.structs.replace(Settings().session, turns=1))
    *_, third = prompts({"text": "first"}, {"text": "second"}, {"text": "third"}, settings=settings)
    assert "second" in third
    assert "first" not in third
