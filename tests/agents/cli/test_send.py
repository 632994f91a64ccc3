"""`answerby send`: what it refuses before it asks anybody; the rest is tried on a real worker in `test_send_watch`."""

from __future__ import annotations

import pytest

from agents.cli.main import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "feedback"], "--kind feedback needs --ref"),
        (["--kind", "confirm", "--ref", ""], "--kind confirm needs --ref"),
        (["no", "--decline"], "--decline says something about a decision, and --kind message is none of its answers"),
        (["--kind", "cancel"], "--kind cancel needs --ref"),
        (["hi", "--deadline-ms", "-4"], "--deadline-ms -4 leaves no time, such an event is answered `expired`"),
        (["hi", "--deadline-ms", "0"], "--deadline-ms 0 leaves no time"),
    ],
)
def test_a_pointless_event_is_not_sent(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and one line, without a look at any broker."""
    with pytest.raises(SystemExit) as ended:
        main(["send", *words])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err
