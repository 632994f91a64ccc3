"""`models calibrate` and its `--explore`, on the scripted engine whose times are known, and once on the real model."""

from __future__ import annotations

import json
import os
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from agents.cli.calibrate import calibrate
from agents.cli.engine_alone import find_model, spec_alone, worker_cpus
from agents.cli.explore import parse_rates
from agents.cli.explore_svg import draw_svg
from agents.cli.explore_view import share_bar, toml_lines
from agents.models.explore import Advice, Candidate, Load, Setting, advise, predict
from agents.models.profiles import load_profile, this_cpu
from agents.models.registry import models_folder
from agents.runtime.cpus import available_cores
from schemas.cost import CostProfile, StepCost
from schemas.errors import SetupError, UsageError
from schemas.settings import Model, Settings
from schemas.settings_ladder import Ladder

PULLED = models_folder() / "smollm2-135m"
"""Where the suite's own model is; tests with a home of their own name it by its path."""

PACE = '[[models]]\nname = "main"\nengine = "scripted"\ntoken_ms = 4\nprefill_ms_per_token = 0.5\nmax_tokens = 16\nmax_batch = 4\n'

PROFILE = CostProfile("m", "1", 1, "cpu", 32, (StepCost(1, 0.012, 0.013), StepCost(8, 0.020, 0.023)), 0.001, 1.2, 4.0)


@pytest.fixture
def scripted(tmp_path: Path) -> Path:
    """Settings of an engine that takes 4 ms a step and half a millisecond a prompt token."""
    file = tmp_path / "answerby.toml"
    file.write_text(PACE, encoding="utf-8")
    return file


def made(*settings: Setting) -> list[Candidate]:
    """Their predictions."""
    return [predict(PROFILE, setting, [Load(rate, 0.3, 30, 6, 16) for rate in (2.0, 16.0)], waiting=8) for setting in settings]


def test_a_known_pace_is_measured(scripted: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are the engine's own: 4 ms a step whatever the batch, half a millisecond a token; nothing is kept for a scripted one."""
    assert calibrate(rounds=1, json=True, config=scripted) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["batch"] for step in found["steps"]] == [1, 2, 4]
    assert [step["median_ms"] for step in found["steps"]] == pytest.approx([4.0, 4.0, 4.0], abs=0.01)
    assert found["steps"][2]["tokens_s"] == pytest.approx(1000.0, rel=0.01)
    assert found["prefill_token_ms"] == pytest.approx(0.5, abs=0.05)
    assert found["file"] is None
    assert list(home.iterdir()) == []


def test_the_table_says_what_was_measured(scripted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: a line for each batch, a bar, and where it is kept or why not."""
    before = os.sched_getaffinity(0)
    assert calibrate("main", rounds=1, config=scripted) == 0
    shown = capsys.readouterr().out
    assert "tokens/s" in shown
    assert "█" in shown
    assert "not kept" in shown
    assert os.sched_getaffinity(0) == before


def test_explore_prints_what_to_set(scripted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last lines are the settings' own language, with the reason; the plot is a picture."""
    svg = tmp_path / "plot.svg"
    assert calibrate(rounds=1, explore=True, deadline_ms=300, rates="4,32", svg=svg, config=scripted) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 engine start (")
    lines = shown[shown.index("# ") :].splitlines()[:5]
    assert set(tomllib.loads("\n".join(lines))) == {"threads", "prefill_chunk", "max_batch"}
    assert ET.parse(svg).getroot().tag.endswith("svg")


def test_explore_tells_programs_everything(scripted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON alone on standard output: each setting with each rate, the best, the present, the reason."""
    assert calibrate(rounds=1, explore=True, deadline_ms=300, rates="4,32", json=True, config=scripted) == 0
    found = json.loads(capsys.readouterr().out)
    assert {one["max_batch"] for one in found["candidates"]} == {4, 8, 16}
    assert [point["rate"] for point in found["best"]["points"]] == [4, 32]
    assert found["present"]["max_batch"] == 4
    assert found["skipped_starts"] == 0
    assert found["why"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rounds": 0}, "--rounds"),
        ({"explore": True, "rates": "2,fast"}, "--rates"),
        ({"explore": True, "rates": "2,nan"}, "--rates"),
        ({"explore": True, "deadline_ms": float("nan")}, "--deadline-ms"),
        ({"explore": True, "deadline_ms": 5.0}, "--deadline-ms"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(scripted: Path, options: dict[str, object], told: str) -> None:
    """A value that cannot work is told by its option's name."""
    with pytest.raises(UsageError, match=told):
        calibrate(config=scripted, **options)  # type: ignore[arg-type]


def test_a_model_that_is_not_in_the_settings_is_named(scripted: Path) -> None:
    """The known names are in the refusal."""
    with pytest.raises(UsageError, match="use one of: main"):
        calibrate("nope", config=scripted)


def test_an_engine_without_a_pace_cannot_be_measured(tmp_path: Path) -> None:
    """A scripted engine that takes no time has no figures."""
    file = tmp_path / "answerby.toml"
    file.write_text('[[models]]\nengine = "scripted"\n', encoding="utf-8")
    with pytest.raises(UsageError, match="takes no time"):
        calibrate(config=file)


def test_an_svg_that_cannot_be_written_is_told(scripted: Path, tmp_path: Path) -> None:
    """One line that names the file, after the work."""
    with pytest.raises(SetupError, match="cannot be written"):
        calibrate(rounds=1, explore=True, rates="4", svg=tmp_path / "none" / "x.svg", config=scripted)


def test_the_place_is_the_workers_own_choice() -> None:
    """A model is measured where the worker would run it, other models beside it counted."""
    models = (Model(engine="scripted"), Model(name="fallback", engine="scripted"))
    settings = Settings(models=models, ladder=Ladder(rungs=("main", "fallback", "default")))
    spec = spec_alone(find_model(settings, "fallback"), settings, rounds=3)
    assert (spec.model.name, spec.calibrate, spec.calibrate_rounds, spec.cpu_name) == ("fallback", True, 3, this_cpu())
    assert set(spec.cpus or available_cores().ids) <= set(available_cores().ids)
    if len(available_cores().ids) == 2:
        assert not set(spec.cpus or ()) & set(worker_cpus([spec.model], settings) or ())


def test_rates_are_sorted_once() -> None:
    """Any order, twice the same: one rising list."""
    assert parse_rates("8, 2,2,4") == (2.0, 4.0, 8.0)


def test_the_lines_say_what_changes() -> None:
    """Only what differs from what is set has a note of it; cores are named where more threads need them."""
    candidates = made(Setting(1, 32, 8), Setting(2, 64, 8))
    lines = toml_lines(Model(), Advice(candidates[1], candidates[0], "because"), (0, 1))
    assert lines[0] == "# because"
    assert lines[2:] == ["threads = 2  # now 1", "prefill_chunk = 64  # now 32", "max_batch = 8", "cpus = [0, 1]"]


@pytest.mark.parametrize(("share", "bar"), [(0.0, "0%"), (0.5, "█▌ 50%"), (1.0, "███ 100%"), (1.7, "███ 170%")])
def test_a_share_is_a_bar_and_a_number(share: float, bar: str) -> None:
    """As long as the share, never longer than the cell."""
    assert share_bar(share).plain.split() == bar.split()
    assert len(share_bar(share).plain) == 8


def test_the_plot_is_well_formed_and_says_which_is_which() -> None:
    """Any settings give a picture that an XML parser reads, with the advice in words."""
    candidates = made(Setting(1, 32, 4), Setting(1, 32, 8))
    svg = draw_svg(candidates, advise(candidates, Setting(1, 32, 8)), [PROFILE], 300.0)
    root = ET.fromstring(svg)
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert any("best" in text for text in texts)
    assert any("300 ms" in text for text in texts)
    assert sum(element.tag.endswith("polyline") for element in root.iter()) == len(candidates) + 1


@pytest.mark.live
@pytest.mark.timeout(240)
def test_the_real_models_profile_is_kept_for_the_worker(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was measured is found again by whoever starts this model in the same way."""
    file = tmp_path / "answerby.toml"
    file.write_text(f'[[models]]\npath = "{PULLED}"\nmax_batch = 2\n', encoding="utf-8")
    assert calibrate(rounds=1, json=True, config=file) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["file"]).is_relative_to(home)
    kept = load_profile(found["model"], found["version"], threads=found["threads"], prefill_chunk=found["prefill_chunk"], cpu=this_cpu())
    assert kept is not None
    assert [step.batch for step in kept.steps] == [1, 2]
    assert 0 < kept.steps[0].median < 5
