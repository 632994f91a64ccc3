"""`rules check` and `rules test`: exit codes, lines, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.cli.config import check as check_config
from agents.cli.config import load_settings
from agents.cli.main import main
from agents.cli.rules import app
from schemas.errors import ConfigError, UsageError

GOOD = """\
[[rules]]
name = "hours"
match.any = ["open*", "营业"]
answer = { en = "9 to 5, {state.name|friend}.", zh = "九点到五点。" }
[[rules.examples]]
text = "When do you open?"
answer = "9 to 5, friend."
[[rules.examples]]
text = "几点营业"
locale = "zh-CN"
answer = "九点到五点。"
[[rules.examples]]
text = "reopen"
matches = false
"""
FAILING = """
[[rules]]
name = "late"
match.any = ["late", "open"]
answer.en = "Sorry."
examples = [{ text = "so late", answer = "Very sorry." }, { text = "late", matches = false }, { text = "early" }]
[[rules.examples2]]
"""


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A right rule file in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "rules.toml"
    file.write_text(GOOD, encoding="utf-8")
    return file


def call(*words: str | Path) -> object:
    """The exit code of `answerby rules …`."""
    return app([str(word) for word in words], result_action="return_value", exit_on_error=False, print_error=False)


def failing(rules: Path) -> Path:
    """The same file with a rule whose examples fail, and with one that is answered by another."""
    rules.write_text(
        GOOD + FAILING.replace("[[rules.examples2]]\n", "").replace('{ text = "early" }', '{ text = "early" }, { text = "open" }'), encoding="utf-8"
    )
    return rules


def test_right_rules_pass_both(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 and one line each."""
    assert call("check", rules) == 0
    assert capsys.readouterr().out == "ok: 1 rule\n"
    assert call("test", rules) == 0
    assert capsys.readouterr().out == "ok: 3 of 3 examples as written\n"


def test_failing_examples_are_told_by_line(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, and for each example what came instead, or which condition did not hold."""
    assert call("test", failing(rules)) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{rules}:20: rule late, example 1 ('so late'): it says 'Sorry.', not 'Very sorry.'",
        f"{rules}:20: rule late, example 2 ('late'): it answers, and must not: 'Sorry.'",
        f"{rules}:20: rule late, example 3 ('early'): it does not answer: match.any does not hold",
        f"{rules}:20: rule late, example 4 ('open'): it does not answer: rule hours answers first",
        "failed: 3 of 7 examples as written",
    ]


def test_failing_examples_as_json(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a program."""
    assert call("test", failing(rules), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["rules"], told["passed"], told["without"]) == (False, 2, 3, [])
    assert told["failures"][2] == {
        "file": str(rules),
        "line": 20,
        "rule": "late",
        "number": 3,
        "text": "early",
        "wrong": "it does not answer: match.any does not hold",
    }


@pytest.mark.parametrize("command", ["check", "test"])
def test_wrong_rules_exit_two(rules: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem is one line on standard error, or one entry of the JSON."""
    rules.write_text(GOOD.replace("open*", "*").replace("|friend", "").replace("state.name", "stat"), encoding="utf-8")
    assert call(command, rules) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.split(" ")[:3] for line in told.err.splitlines()] == [
        ["error:", f"{rules}:3:", "rules[0].match.any[0]"],
        ["error:", f"{rules}:4:", "rules[0].answer.en"],
    ]
    assert call(command, rules, "--json") == 2
    plain = json.loads(capsys.readouterr().out)
    assert [(problem["line"], problem["key"], problem["rule"]) for problem in plain["problems"]] == [
        (3, "rules[0].match.any[0]", "hours"),
        (4, "rules[0].answer.en", "hours"),
    ]
    assert plain["ok"] is False


def test_rules_of_the_settings(rules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`-c` means all rules that a worker would have: inline ones by their line, files beside the settings wherever one stands."""
    settings = tmp_path / "conf" / "answerby.toml"
    settings.parent.mkdir()
    rules.rename(settings.parent / "rules.toml")
    settings.write_text('rules.files = ["rules.toml"]\n[[rules.inline]]\nname = "i"\nmatch.any = ["hi"]\nanswer.en = "Hi."\n', encoding="utf-8")
    assert call("check", "-c", settings) == 0
    assert capsys.readouterr().out == "ok: 2 rules\n"
    assert call("test", "-c", settings) == 0
    assert capsys.readouterr().out == "ok: 3 of 3 examples as written; 1 rule without any\n"
    monkeypatch.chdir(settings.parent)
    assert call("check") == 0
    settings.write_text('[[rules]]\nname = "i"\nmatch.any = [""]\nanswer.en = "Hi."\n', encoding="utf-8")
    assert call("check") == 2
    assert f"error: {settings.name}:3: rules[0].match.any[0] (rule i): is empty" in capsys.readouterr().err


def test_no_rules_and_both_kinds_are_wrong_usage(rules: Path, tmp_path: Path) -> None:
    """Checking nothing is not success."""
    (tmp_path / "answerby.toml").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="no rules"):
        call("check")
    with pytest.raises(UsageError, match="at once"):
        call("check", rules, "-c", tmp_path / "answerby.toml")


def test_command_line_reaches_them(rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`answerby rules check FILE` is there, and its exit code is the process's."""
    with pytest.raises(SystemExit) as ended:
        main(["rules", "check", str(rules), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "rules": 1, "problems": []}


def test_rule_files_lie_beside_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the settings file, whatever the working directory; relative to that when a variable names them; absolute ones as they are."""
    (tmp_path / "conf").mkdir()
    settings = tmp_path / "conf" / "a.toml"
    settings.write_text('rules.files = ["r.toml", "/abs/r.toml"]\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path("conf/a.toml"), {}).rules.files == (f"{tmp_path}/conf/r.toml", "/abs/r.toml")
    assert load_settings(settings, {"ANSWERBY__RULES__FILES": '["e.toml"]'}).rules.files == (f"{tmp_path}/e.toml",)
    assert load_settings(settings, {"ANSWERBY__RULES__FILES__1": "e.toml"}).rules.files == (f"{tmp_path}/conf/r.toml", f"{tmp_path}/e.toml")


def test_inline_rules_are_told_by_key(tmp_path: Path) -> None:
    """`[[rules]]` in the settings file is `[[rules.inline]]`, in what is read and in what is refused."""
    settings = tmp_path / "a.toml"
    settings.write_text('[[rules]]\nname = "i"\nmatch.any = ["x"]\nanswer.en = "Hi."\n', encoding="utf-8")
    assert [rule.name for rule in load_settings(settings, {}).rules.inline] == ["i"]
    settings.write_text('[[rules]]\nname = "i"\nmatch.any = ["x"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"^rules\.inline\[0\]\.answer: is missing; must be a table, each value text"):
        check_config(config=settings)


def test_example_file_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The file that the guide points to is right, and so is every example in it."""
    assert call("test", Path(__file__).parents[3] / "examples" / "rules.toml") == 0
    assert "7 of 7 examples as written" in capsys.readouterr().out
