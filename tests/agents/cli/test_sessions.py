"""`answerby sessions`: what it refuses before it asks anybody; the rest is tried on a real worker in tests/live."""

from __future__ import annotations

import pytest

from agents.cli.main import main
from agents.cli.sessions import _print_session
from schemas.facts import Choice, Date, Fact, Facts, Number, Past, Text, YesNo, dump_facts


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["forget"], "name either a session or --subject"),
        (["forget", "s1", "--subject", "ann"], "name either a session or --subject"),
        (["export", "s1", "--subject", "ann"], "name either a session or --subject"),
        (["forget", "s1", "--wait", "nan"], "--wait nan is not a number of seconds"),
        (["forget", ""], "the session is empty"),
        (["show", " "], "the session is empty"),
        (["export", "--subject", ""], "--subject is empty"),
        (["forget", "s1", "--tenant", ""], "--tenant is empty"),
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


def test_a_session_is_shown_to_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """Whole texts on lines of their own, facts as words and not as JSON, and nothing that steers a terminal."""
    said = "long " * 60
    facts = Facts(
        (
            Fact("name", Text("Ann"), "e-1", 1_000, history=(Past(Text("Anna"), "e-0", 500),)),
            Fact("likes", YesNo(yes=True), "e-1", 1_000, key="tea"),
            Fact("budget", Number(20.0, "EUR"), "e-1", 1_000),
            Fact("day", Date(month=5, day=2), "e-1", 1_000),
            Fact("size", Choice("large"), "e-1", 1_000, denied=True),
        )
    )
    turn = {"event_id": "e-1", "at_ms": 1_000, "user": said, "reply": "Hello\x1b[2J\nAnn.", "outcome": "model"}
    state = {"turns": [turn], "facts": dump_facts(facts), "pending": [{"event_id": "d", "text": "buy it", "expires_at_ms": 1}], "state": {"gold": 3}, "v": 1}
    _print_session({"session_id": "s-1", "partition": 2, "last_used_ms": 1_000, "subjects": ["ann"], "session": state, "answers": []})
    assert capsys.readouterr().out.splitlines() == [
        "session s-1, partition 2, last used 1970-01-01 00:00:01 UTC",
        "  persons   ann",
        "1970-01-01 00:00:01 UTC · model · e-1",
        f"  said      {said.strip()}",
        "  answered  Hello [2J Ann.",
        "  fact      name = Ann, since 1970-01-01 00:00:01 UTC; before: Anna",
        "  fact      likes tea = yes, since 1970-01-01 00:00:01 UTC",
        "  fact      budget = 20.0 EUR, since 1970-01-01 00:00:01 UTC",
        "  fact      day = month 5, day 2, since 1970-01-01 00:00:01 UTC",
        "  fact      size = not large, since 1970-01-01 00:00:01 UTC",
        "  waiting   buy it · d",
        '  state     {"gold":3}',
        "0 answers kept for repeated events",
    ]
