"""`answerby sessions`: what it refuses before it asks anybody; the rest is tried on a real worker in tests/live."""

from __future__ import annotations

import pytest

from agents.cli.main import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["forget"], "name either a session or --subject"),
        (["forget", "s1", "--subject", "ann"], "name either a session or --subject"),
        (["export", "s1", "--subject", "ann"], "name either a session or --subject"),
        (["forget", "s1", "--wait", "nan"], "--wait nan is not a number of seconds"),
        (["forget", "s1", "--wait", "-1"], "--wait -1 is not a number of seconds"),
    ],
)
def test_a_wrong_command_erases_nothing(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and one line, without a look at any broker."""
    with pytest.raises(SystemExit) as ended:
        main(["sessions", *words])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "export", "forget"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command shows how it is called."""
    with pytest.raises(SystemExit) as ended:
        main(["sessions", command, "--help"])
    assert ended.value.code == 0
    assert f"Example: answerby sessions {command}" in capsys.readouterr().out
