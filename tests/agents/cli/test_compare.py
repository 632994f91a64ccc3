"""`models compare` on scripted entries, whose answers and times are known, and once on the real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.cli.compare import compare
from agents.cli.main import main
from agents.models.registry import models_folder
from schemas.errors import SetupError, UsageError

PULLED = models_folder() / "smollm2-135m"

TWO = """
ladder.rungs = ["good", "slow", "default"]
[[models]]
name = "good"
engine = "scripted"
text = "It is Paris, of course, as all know."
token_ms = 5
max_tokens = 16
[[models]]
name = "slow"
engine = "scripted"
text = "It is Paris, of course, as all know."
token_ms = 150
max_tokens = 8
"""

PROMPTS = """
[[prompts]]
prompt = "What is the capital of France?"
expect = ["paris"]
[[prompts]]
prompt = "What is the capital of Italy?"
expect = ["Rome"]
[[prompts]]
prompt = "Which is it?"
choice = ["this", "that"]
right = "this"
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Settings with two models, and three prompts."""
    settings, prompts = tmp_path / "answerby.toml", tmp_path / "prompts.toml"
    settings.write_text(TWO, encoding="utf-8")
    prompts.write_text(PROMPTS, encoding="utf-8")
    return settings, prompts


@pytest.mark.usefixtures("home")
def test_the_settings_models_stand_side_by_side(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its own speed and its share of right answers, in time and at all; the quick one is recommended, with the reason."""
    settings, prompts = files
    assert compare(prompts=prompts, deadline_ms=500, json=True, config=settings) == 0
    found = json.loads(capsys.readouterr().out)
    good, slow = found["models"]
    assert (good["name"], slow["name"]) == ("good", "slow")
    assert good["right"] == pytest.approx(2 / 3)
    assert good["right_by_deadline"] == pytest.approx(2 / 3)
    assert slow["right"] == pytest.approx(2 / 3)
    assert slow["tokens_by_deadline"] <= 3 < good["tokens_by_deadline"]
    assert slow["first_ms"] > 100
    assert good["memory_bytes"] > 1_000_000
    assert found["recommended"] == "good"
    assert found["why"]


@pytest.mark.usefixtures("home")
def test_named_models_only(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """`--models` chooses entries of the settings; the table shows them and the verdict."""
    settings, prompts = files
    assert compare(prompts=prompts, models="good", deadline_ms=500, config=settings) == 0
    shown = capsys.readouterr().out
    assert "good" in shown
    assert "slow" not in shown
    assert "recommended: good" in shown


@pytest.mark.usefixtures("home")
def test_a_model_that_is_not_here_is_told(files: tuple[Path, Path]) -> None:
    """The line names the command that brings it."""
    with pytest.raises(SetupError, match="answerby models pull"):
        compare(prompts=files[1], models="smollm2-135m", config=files[0])


@pytest.mark.usefixtures("home")
def test_no_models_at_all_is_told(files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings and without pulled models there is nothing to compare."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(SetupError, match="no models"):
        compare(prompts=files[1])


@pytest.mark.parametrize("deadline_ms", [5.0, float("nan"), -1.0])
def test_a_deadline_without_time_is_refused(files: tuple[Path, Path], deadline_ms: float) -> None:
    """What the reserve eats up leaves nothing to compare."""
    with pytest.raises(UsageError, match="--deadline-ms"):
        compare(prompts=files[1], deadline_ms=deadline_ms, config=files[0])


@pytest.mark.usefixtures("home")
def test_a_model_that_fails_is_told(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A prompt that the engine fails ends the comparison with one line, not with a share of nothing."""
    prompts = tmp_path / "bad.jsonl"
    prompts.write_text('{"prompt": "[[raise]]"}\n', encoding="utf-8")
    with pytest.raises(SetupError, match="failed at"):
        compare(prompts=prompts, models="good", config=files[0])


@pytest.mark.parametrize("name", ["calibrate", "compare"])
def test_help_has_an_example_and_starts_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands are in the group `models`, and show what to type."""
    with pytest.raises(SystemExit) as caught:
        main(["models", name, "--help"])
    assert caught.value.code == 0
    assert f"Example: answerby models {name}" in capsys.readouterr().out


@pytest.mark.live
@pytest.mark.timeout(240)
def test_the_real_model_is_measured_from_its_path(home: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A folder by its path: its size, its memory, its answers, among which choices hold."""
    assert list(home.iterdir()) == []
    assert compare(prompts=files[1], models=str(PULLED), deadline_ms=20_000, json=True, config=files[0]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert found["name"] == str(PULLED)
    assert 50e6 < found["disk_bytes"] < 200e6
    assert found["memory_bytes"] > 100e6
    assert found["tokens_s"] > 0
    assert found["right"] >= 1 / 3
