"""The file of prompts, what counts as right, and the recommendation, all on hand-made answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.models.comparison import Answer, Facts, Prompt, Row, is_right, read_prompts, recommend, summarise
from schemas.errors import UsageError

EXAMPLE = Path(__file__).parents[3] / "examples/prompts.toml"


def row(name: str, *, right: float | None = 0.5, tokens: float = 16.0, memory: int = 400, first_ms: float = 50.0, tokens_s: float = 80.0) -> Row:
    """One model's figures."""
    return Row(name, "1", 100, memory * 1_000_000, first_ms, tokens_s, tokens, right, right, 10)


def answer(text: str, by_deadline: str | None = "", *, tokens: int = 9, in_time: int = 4, first_s: float = 0.1, total_s: float = 0.5) -> Answer:
    """One answer: first token after 0.1 s, nine of them after 0.5 s."""
    return Answer(text, by_deadline, tokens, in_time, first_s, total_s)


def test_the_example_file_is_right() -> None:
    """What the docs point to can be read, and uses each kind of expectation."""
    file = read_prompts(EXAMPLE)
    assert len(file.prompts) >= 10
    assert any(prompt.expect for prompt in file.prompts)
    assert any(prompt.choice for prompt in file.prompts)
    assert any(not prompt.judged for prompt in file.prompts)


def test_jsonl_is_read_line_by_line(tmp_path: Path) -> None:
    """One object a line, empty lines passed over."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a", "expect": ["x"]}\n\n{"prompt": "b", "choice": ["y", "n"], "right": "n"}\n', encoding="utf-8")
    assert [prompt.prompt for prompt in read_prompts(file).prompts] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": 5}\n', "line 2"),
        ("p.jsonl", "", "no prompts"),
        ("p.jsonl", '{"prompt": "a", "expct": []}', "expct"),
        ("p.toml", "prompts = [", "not TOML"),
        ("p.toml", "prompts = []", "prompts"),
        ("p.toml", '[[prompts]]\nprompt = "a"\nchoice = ["y"]\n', "choice"),
        ("p.toml", '[[prompts]]\nprompt = "a"\nchoice = ["y"]\nright = "n"\n', "none of the choices"),
        ("p.toml", '[[prompts]]\nprompt = "a"\nchoice = ["y"]\nright = "y"\nexpect = ["y"]\n', "neither"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    """What is wrong and where, without a traceback."""
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_prompts(file)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_file_is_a_wrong_usage(tmp_path: Path, content: bytes | None) -> None:
    """A file that is gone or no text is the caller's to mend."""
    file = tmp_path / "p.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError):
        read_prompts(file)


@pytest.mark.parametrize(
    ("prompt", "text", "right"),
    [
        (Prompt("p", expect=("Paris",)), "It is PARIS.", True),
        (Prompt("p", expect=("Paris", "France")), "It is Paris.", False),
        (Prompt("p", expect=(("seven", "7"),)), "There are 7 days.", True),
        (Prompt("p", expect=(("seven", "7"),)), "There are six.", False),
        (Prompt("p", choice=("yes", "no"), right="no"), "no", True),
        (Prompt("p", choice=("yes", "no"), right="no"), "no way", False),
        (Prompt("p", expect=("x",)), None, False),
    ],
)
def test_right_is_what_the_file_says(prompt: Prompt, text: str | None, right: bool) -> None:
    """Every text must be there whatever its case, one of each list; a choice must be the label; nothing is never right."""
    assert is_right(prompt, text) is right


def test_figures_are_medians_and_shares() -> None:
    """Medians over all prompts, shares over those with an expectation, in time apart from at all."""
    prompts = [Prompt("a", expect=("yes",)), Prompt("b", expect=("yes",)), Prompt("c")]
    answers = [answer("yes", "yes"), answer("yes", "ye", first_s=0.2), answer("no", tokens=1, total_s=0.1)]
    found = summarise(Facts("m", "1", 1000, 2000), prompts, answers)
    assert (found.right, found.right_by_deadline) == (1.0, 0.5)
    assert found.first_ms == pytest.approx(100.0)
    assert found.tokens_s == pytest.approx((8 / 0.4 + 8 / 0.3) / 2)
    assert found.tokens_by_deadline == 4


def test_no_expectations_no_shares() -> None:
    """A file of bare prompts measures speed and claims nothing else."""
    found = summarise(Facts("m", "1", 1, 1), [Prompt("a")], [answer("x")])
    assert (found.right, found.right_by_deadline) == (None, None)


def test_the_one_that_is_right_in_time_is_recommended() -> None:
    """More right answers by the deadline beat speed; the reason names the runner-up."""
    found = recommend([row("quick", right=0.4, tokens=30), row("good", right=0.8)], deadline_ms=300, min_tokens=6)
    assert found.name == "good"
    assert "80%" in found.why
    assert "quick: 40%" in found.why


def test_among_equals_the_one_that_says_more() -> None:
    """Shares within what a few prompts can tell apart: speed decides, then memory."""
    assert recommend([row("slow", right=0.82), row("fast", right=0.80, tokens=30)], deadline_ms=300, min_tokens=6).name == "fast"
    assert recommend([row("big", memory=900), row("small", memory=300)], deadline_ms=300, min_tokens=6).name == "small"


def test_a_slow_model_is_not_recommended() -> None:
    """Right answers that come after the deadline are of no use; with one model left the reason says so."""
    found = recommend([row("slow", right=0.0, tokens=2), row("fast", right=0.3)], deadline_ms=300, min_tokens=6)
    assert found.name == "fast"
    assert "only one that is quick enough" in found.why


def test_none_is_an_answer() -> None:
    """When no model is quick enough, the quickest is named with the time it would need."""
    found = recommend([row("m", right=0.0, tokens=2, first_ms=400, tokens_s=20)], deadline_ms=300, min_tokens=6)
    assert found.name is None
    assert "about 700 ms" in found.why


def test_without_expectations_nobody_is_called_right() -> None:
    """The reason claims nothing that was not measured."""
    found = recommend([row("a", right=None), row("b", right=None, tokens=20)], deadline_ms=300, min_tokens=6)
    assert found.name == "b"
    assert "right by" not in found.why
