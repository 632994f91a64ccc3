"""`answerby send` and `answerby watch` as programs, against a worker with the scripted engine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.cli.watch import _clock_text
from streams.broker.probe import free_port
from tests.live_support import fresh, running_worker, worker_toml

pytestmark = pytest.mark.live

BOUND_S = 60.0
"""Generous: says only that something does not hang."""


@pytest.fixture(scope="module")
def config(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The settings file of a worker that is ready."""
    folder = tmp_path_factory.mktemp("send")
    with running_worker(folder, worker_toml(broker, fresh("send"), models=({"text": "Tea is a leaf.", "token_ms": 1},))):
        yield folder / "worker.toml"


def prefix_of(config: Path) -> str:
    """What the topics' names begin with."""
    return next(line for line in config.read_text().splitlines() if line.startswith("topic_prefix")).split('"')[1]


def start(*arguments: str) -> subprocess.Popen[str]:
    """`answerby` in this environment's Python."""
    return subprocess.Popen([sys.executable, "-m", "agents.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    process = start(*arguments)
    out, err = process.communicate(timeout=BOUND_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def sent(config: Path, *arguments: str) -> dict[str, Any]:
    """The response that `send --json` prints."""
    done = finish("send", *arguments, "--json", "-c", str(config))
    assert done.returncode == 0, done.stderr
    response: dict[str, Any] = json.loads(done.stdout)
    return response


def test_send_prints_the_answer_and_where_the_time_went(config: Path) -> None:
    """The text, the outcome with its time and model, and the bar."""
    done = finish("send", "What is tea?", "--max-tokens", "4", "-c", str(config))
    assert done.returncode == 0, done.stderr
    text, facts, bar = done.stdout.splitlines()
    assert text == "Tea is a leaf."
    assert facts.startswith("model · ")
    assert "of 1000 ms" in facts
    assert "4 tokens by main scripted" in facts
    assert bar.startswith("▕")
    assert done.stderr == ""


def test_send_carries_every_option(config: Path) -> None:
    """What is asked for on the command line is in the event, and so in its response."""
    options = (
        "--session",
        "会话",
        "--tenant",
        "t",
        "--deadline-ms",
        "5000",
        "--locale",
        "zh-CN",
        "--max-tokens",
        "2",
        "--event-id",
        "mine",
        "--encoding",
        "json",
    )
    response = sent(config, "hi", *options, "--state", '{"gold": 3}', "--scenario", "shop")
    assert (response["session_id"], response["tenant"], response["event_id"]) == ("会话", "t", "mine")
    assert response["deadline"]["budget_ms"] == 5000
    assert response["usage"]["completion_tokens"] == 2
    assert response["disclosure"] == "本回答由人工智能生成。"


def test_an_event_sent_again_gets_the_same_answer(config: Path) -> None:
    """`--event-id` of an answered event: the same response, stamp for stamp."""
    first = sent(config, "hi", "--event-id", "again", "--session", "repeat")
    assert sent(config, "hi", "--event-id", "again", "--session", "repeat") == first


def test_a_used_event_id_is_told_as_what_it_is(config: Path) -> None:
    """Another event under a used id: exit 1, one line with the reason and the way out, without a wait for an answer that cannot come."""
    sent(config, "hi", "--event-id", "f-3", "--session", "twice")
    done = finish("send", "something else", "--event-id", "f-3", "--session", "twice", "--deadline-ms", "60000", "-c", str(config))
    assert done.returncode == 1
    assert done.stderr.startswith("error: f-3 became a dead letter (conflict: ")
    assert done.stderr.endswith(": use another --event-id\n")


def test_feedback_shows_what_it_did(config: Path) -> None:
    """The acknowledgement's `data` stands below the line."""
    sent(config, "hi", "--event-id", "judged", "--session", "judges")
    done = finish("send", "wrong", "--kind", "feedback", "--ref", "judged", "--session", "judges", "-c", str(config))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith('data {"found":true,"verdict":"wrong","marked":true')


@pytest.mark.parametrize(("words", "said"), [((), {"confirmed": True}), (("--decline",), {"confirmed": False, "why": "declined"})])
def test_a_decision_is_confirmed_or_declined(config: Path, words: tuple[str, ...], said: dict[str, object]) -> None:
    """A decision is asked back; `--kind confirm` settles it, and with `--decline` says no."""
    session, decision = f"closes-{len(words)}", f"close-{len(words)}"
    asked = sent(config, "Close my account", "--kind", "decision", "--session", session, "--event-id", decision)
    assert asked["outcome"] == "confirm_request"
    settled = sent(config, "--kind", "confirm", "--session", session, "--ref", decision, *words)
    assert (settled["outcome"], settled["data"]) == ("ack", said)


def test_a_person_and_their_consent_can_be_given(config: Path) -> None:
    """`--subject` and `--store-history` are in the event: the person's session is found by them."""
    sent(config, "hi", "--session", "anns", "--subject", "ann", "--store-history")
    done = finish("sessions", "export", "--subject", "ann", "-c", str(config))
    assert [session["session_id"] for session in json.loads(done.stdout)["sessions"]] == ["anns"]


def test_explain_knows_dead_letters_and_other_sessions(config: Path, broker: str) -> None:
    """An id without a response: its dead letter, or the session that has it, or that there is neither; exit 1 and one line."""
    from confluent_kafka import Producer  # noqa: PLC0415  a foreign client, for an event that ours would not send

    producer = Producer({"bootstrap.servers": broker})
    producer.produce(f"{prefix_of(config)}interactions", value=b'{"event_id": "bad-1", "session_id": "x-1", "kind": "odd"}', key=b"x-1")
    producer.flush(BOUND_S)
    sent(config, "hi", "--event-id", "here", "--session", "x-1", "--tenant", "red")
    sent(config, "hi", "--event-id", "later", "--session", "x-1")  # answered in order: the bad one is a dead letter by now
    for words, says in (
        (("here", "--session", "x-2"), "error: no such here, but session x-1 of tenant red has one: use --session x-1 --tenant red\n"),
        (("bad-1",), "error: bad-1 became a dead letter (invalid_field: "),
        (("bad-1", "--session", "x-2"), "error: no such bad-1, but session x-1 of tenant default has one"),
        (("nope",), "and no dead letter: check the id"),
    ):
        done = finish("explain", *words, "-c", str(config))
        assert done.returncode == 1
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


def test_an_event_that_says_nothing_is_acknowledged(config: Path) -> None:
    """Kinds without a text need none."""
    response = sent(config, "--kind", "reset", "--session", "ends")
    assert (response["outcome"], response["text"], response["kind"]) == ("ack", "", "reset")


def test_no_worker_is_one_line_after_a_bounded_wait(broker: str, tmp_path: Path) -> None:
    """Topics but no worker: exit 1, and the line asks whether one is running."""
    config = tmp_path / "answerby.toml"
    config.write_text(worker_toml(broker, fresh("empty")))
    assert finish("topics", "create", "-c", str(config)).returncode == 0
    began = time.monotonic()
    done = finish("send", "hi", "--deadline-ms", "1", "-c", str(config))
    assert done.returncode == 1
    assert "is a worker running?" in done.stderr
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - began < BOUND_S


@pytest.mark.parametrize("arguments", [("send", "hi"), ("watch",)], ids=["send", "watch"])
def test_no_broker_is_one_line(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1 and what to start; libraries' own complaints are not beside it."""
    monkeypatch.setenv("ANSWERBY__KAFKA__BOOTSTRAP", f"127.0.0.1:{free_port()}")
    done = finish(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no broker answers at ")
    assert done.stderr.count("\n") == 1


def watching(config: Path, *options: str) -> subprocess.Popen[str]:
    """A watch that has begun to read: it says so only then."""
    process = start("watch", *options, "-c", str(config))
    assert process.stderr is not None
    assert process.stderr.readline().startswith("watching ")
    return process


def test_watch_shows_answers_as_they_come(config: Path) -> None:
    """One line an answer, and an end after `--limit`."""
    with watching(config, "--limit", "2") as process:
        sent(config, "one", "--session", "w-1")
        sent(config, "two", "--session", "w-2")
        out, _err = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0
    lines = out.splitlines()
    assert len(lines) == 2
    assert all("model" in line and "▕" in line for line in lines)
    assert ("w-1" in lines[0], "w-2" in lines[1]) == (True, True)


def test_watch_gives_programs_whole_records(config: Path, broker: str) -> None:
    """`--json` prints responses as they are, and dead letters with their reason and their bytes."""
    from confluent_kafka import Producer  # noqa: PLC0415  a foreign client, for bytes that ours would not send

    with watching(config, "--dead-letters", "--json", "--limit", "2") as process:
        producer = Producer({"bootstrap.servers": broker})
        producer.produce(f"{prefix_of(config)}interactions", value=b"\xc1\x00", key=b"odd")
        producer.flush(BOUND_S)
        response = sent(config, "one", "--session", "w-3")
        out, _err = process.communicate(timeout=BOUND_S)
    records = [json.loads(line) for line in out.splitlines()]
    (letter,) = [record for record in records if "dead_letter" in record]
    assert letter["dead_letter"]["reason"] == "undecodable"
    assert (base64.b64decode(letter["value_base64"]), base64.b64decode(letter["key_base64"])) == (b"\xc1\x00", b"odd")
    assert response in records


def test_watch_can_begin_with_the_oldest_answers(config: Path) -> None:
    """`--from-start`: answers given before it began come first, and then those that come."""
    older = sent(config, "old", "--session", "w-old")
    with watching(config, "--from-start", "--json") as process:
        newer = sent(config, "new", "--session", "w-new")
        assert process.stdout is not None
        seen: list[dict[str, Any]] = []
        while newer not in seen:
            seen.append(json.loads(process.stdout.readline()))
        process.kill()
    assert older in seen


def test_an_answer_of_another_day_shows_its_date() -> None:
    """The time of day is enough for today's answers alone."""
    now = time.time()
    today, before = _clock_text(now, now), _clock_text(now - 3 * 86_400, now)
    assert before == time.strftime("%Y-%m-%d ", time.localtime(now - 3 * 86_400)) + today


def test_watch_ends_well_on_ctrl_c(config: Path) -> None:
    """Ctrl-C is how a watch ends: exit 0 and no traceback."""
    with watching(config) as process:
        os.kill(process.pid, 2)
        _out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (0, "")
