"""`answerby cache tune`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.cli.main import main

EXAMPLES = Path(__file__).parents[3] / "examples" / "semantic_pairs.jsonl"


def ends_with(arguments: list[str]) -> int:
    """The exit code of a command line."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    assert isinstance(code, int)
    return code


def test_the_examples_get_a_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    """A table of thresholds for each language, with and without guards, and one recommended."""
    assert ends_with(["cache", "tune", str(EXAMPLES)]) == 0
    shown = capsys.readouterr().out
    assert "recommended: threshold = 0." in shown
    assert "held out" in shown


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """For a program: every row, and the recommendation among them."""
    assert ends_with(["cache", "tune", str(EXAMPLES), "--json", "--encoder", "ngrams"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recommended"] in [row["threshold"] for row in found["rows"]]
    assert set(found["rows"][0]["languages"]) == {"en", "zh"}
    assert all(row["guarded"]["wrong"] <= row["bare"]["wrong"] for row in found["rows"])


def test_no_safe_threshold_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pair that rules them out is shown."""
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"a": "How do I pay?", "b": "how do I pay", "same": false}\n{"a": "x", "b": "x", "same": true}\n', encoding="utf-8")
    assert ends_with(["cache", "tune", str(file)]) == 1
    assert "none is safe" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "extra", "code", "said"),
    [
        ("nonsense", [], 2, "line 1"),
        ('{"a": "x", "b": "y", "same": true}', [], 2, "not both kinds"),
        (EXAMPLES.read_text(encoding="utf-8"), ["--encoder", "nosuch"], 1, "encoder 'nosuch' is not here"),
    ],
)
@pytest.mark.usefixtures("home")
def test_what_is_wrong_is_one_line(line: str, extra: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong file is wrong usage; an encoder that is not here is work that failed."""
    file = tmp_path / "pairs.jsonl"
    file.write_text(line, encoding="utf-8")
    assert ends_with(["cache", "tune", str(file), *extra]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The command and its group show what to type."""
    for words in (["cache", "--help"], ["cache", "tune", "--help"]):
        assert ends_with(words) == 0
        assert "Example: answerby cache tune" in capsys.readouterr().out
