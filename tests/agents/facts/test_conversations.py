"""The conversation scripts of `examples/`: the right facts after each turn, and contradictions caught; single sentences are in `test_extract`."""

from __future__ import annotations

import pytest

from tests.agents.facts.playing import play, read_script

LANGUAGES = ("en", "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_scripts_are_of_thirty_turns_at_least(language: str) -> None:
    """Each language's script is long enough to set, change, confirm and contradict."""
    turns = read_script(language, "known")
    assert len(turns) >= 30
    assert any(turn.confirms for turn in turns)
    assert sum(bool(answer.contradicts) for turn in turns for answer in turn.answers) >= 20


@pytest.mark.parametrize("part", ["known", "tuned later", "tuned last"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_facts_are_right_after_each_turn(language: str, part: str) -> None:
    """Of the scripts that the rules were written with, every fact is found, none is invented, and none is forgotten."""
    score = play(read_script(language, part), language)
    assert (score.wrong, score.missed, score.forgotten) == ([], [], [])


@pytest.mark.parametrize("part", ["known", "tuned later", "tuned last"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_contradictions_are_caught(language: str, part: str) -> None:
    """Of the same scripts every contradiction raises an alarm, and no consistent answer does."""
    score = play(read_script(language, part), language)
    assert (score.overlooked, score.false_alarms) == ([], [])
    assert score.consistent > 0


@pytest.mark.parametrize(
    ("part", "language", "recall", "caught", "wrong"),
    [("held out", "en", 0.65, 0.75, 0), ("held out", "zh", 0.6, 0.65, 0), ("held out later", "en", 0.5, 0.5, 1), ("held out later", "zh", 0.75, 0.85, 1)],
)
def test_held_out_script_does_not_get_worse(part: str, language: str, recall: float, caught: float, wrong: int) -> None:
    """What the rules never saw: more is missed, next to nothing is wrong; the shares are those of docs/guide/facts.md."""
    score = play(read_script(language, part), language)
    assert score.right / (score.right + len(score.missed)) >= recall
    assert score.caught / (score.caught + len(score.overlooked)) >= caught
    assert len(score.wrong) <= wrong
    assert score.false_alarms == []
