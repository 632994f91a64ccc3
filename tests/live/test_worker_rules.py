"""Rule files in a real worker: found beside the settings, followed while it answers, refused at its start; rules themselves: `tests.agents.rules`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_support import WAIT_S, Wire, fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

RULE = '[[rules]]\nname = "hours"\nmatch.any = ["hours"]\nanswer.en = "{said}, {{state.name|friend}}."\n'


def write(file: Path, said: str) -> None:
    """Put a rule file in place as deployments do, by renaming."""
    beside = file.with_suffix(".new")
    beside.write_text(RULE.format(said=said) if said else "[[rules]\n", encoding="utf-8")
    beside.replace(file)


def test_rule_files_are_followed_while_answers_go_on(broker: str, tmp_path: Path) -> None:
    """A right change is said from then on; a wrong one is logged and changes nothing; in between no event is without an answer."""
    file, name = tmp_path / "shop" / "rules.toml", fresh("rules")
    file.parent.mkdir()
    write(file, "Nine")
    config = worker_toml(broker, name, rules={"files": ["shop/rules.toml"], "reload_s": 0.1})
    with running_worker(tmp_path, config) as worker, Wire(broker, name) as wire:

        def said() -> str:
            event = {"event_id": fresh("e"), "session_id": "s", "text": "Your HOURS?", "state": {"name": "Mei"}, "deadline_ms": 5000}
            body = wire.ask(event)
            assert (body["outcome"], body["rungs"][0]["why"]) == ("rule", "hours")
            return str(body["text"])

        assert said() == "Nine, Mei."
        write(file, "Ten")
        wire.await_that(lambda: said() == "Ten, Mei.", "the changed rule")
        write(file, "")
        wire.await_that(lambda: b"changed rules are wrong" in (tmp_path / "worker.log").read_bytes(), "a word about the wrong file")
        assert said() == "Ten, Mei."
        write(file, "Eleven")
        wire.await_that(lambda: said() == "Eleven, Mei.", "the mended rule")
        assert worker.running


def test_rules_and_default_texts_answer_without_a_model(broker: str, tmp_path: Path) -> None:
    """A ladder that names no model needs none: rules answer, the default text says the rest, in a scenario of any name that events may carry."""
    write(tmp_path / "rules.toml", "Nine")
    name = fresh("rules")
    config = worker_toml(broker, name, (), rules={"files": ["rules.toml"]}, ladder={"rungs": ["rules", "default"]})
    config += '[scenarios."客服 1".ladder.default_text]\nen = "Not known at this desk."\n'
    with running_worker(tmp_path, config), Wire(broker, name) as wire:
        event = {"session_id": "s", "scenario": "客服 1", "state": {"name": "Mei"}, "deadline_ms": 5000}
        assert wire.ask({**event, "event_id": fresh("e"), "text": "Your hours?"})["text"] == "Nine, Mei."
        other = wire.ask({**event, "event_id": fresh("e"), "text": "What is the weather?"})
        assert (other["outcome"], other["text"]) == ("default", "Not known at this desk.")


def test_worker_does_not_start_with_wrong_rules(tmp_path: Path) -> None:
    """Exit code 2 and one line that names the file, the line, the key and what would be right; no broker is needed to be told."""
    (tmp_path / "rules.toml").write_text(RULE.format(said="{nmae}").replace("any", "pattern").replace('["hours"]', '"(a"'), encoding="utf-8")
    config = tmp_path / "answerby.toml"
    config.write_text(worker_toml("127.0.0.1:1", "none", rules={"files": ["rules.toml"]}), encoding="utf-8")
    ended = subprocess.run([sys.executable, "-m", "agents.cli", "worker", "-c", config], capture_output=True, text=True, timeout=3 * WAIT_S, check=False)
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 2
    assert last.startswith(f"error: {tmp_path}/rules.toml:3: rules[0].match.pattern (rule hours): is no RE2 pattern")
    assert "Traceback" not in ended.stderr
