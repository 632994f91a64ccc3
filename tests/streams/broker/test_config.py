"""Tests for `streams.broker.config`: what Kafka is told."""

from __future__ import annotations

from pathlib import Path

from streams.broker.config import BrokerConfig, jvm_command, server_properties


def _read(config: BrokerConfig) -> dict[str, str]:
    lines = server_properties(config).splitlines()
    properties = dict(line.split("=", 1) for line in lines)
    assert len(properties) == len(lines)
    return properties


def test_broker_listens_on_the_loopback_interface_alone() -> None:
    """No listener is reachable from another machine: the broker asks nobody for a password."""
    properties = _read(BrokerConfig(9092, 9093, "logs"))
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:9093"


def test_one_node_is_enough_for_groups_and_transactions() -> None:
    """Every internal topic is content with one replica."""
    properties = _read(BrokerConfig(9092, 9093, "logs"))
    wanting = {key: value for key, value in properties.items() if key.endswith((".replication.factor", ".min.isr")) and value != "1"}
    assert wanting == {}
    assert int(properties["group.min.session.timeout.ms"]) <= 2000
    assert properties["auto.create.topics.enable"] == "false"


def test_largest_record_is_a_setting() -> None:
    """The size asked for is allowed."""
    assert _read(BrokerConfig(9092, 9093, "logs", message_bytes=2_000_000))["message.max.bytes"] == "2000000"


def test_own_flags_come_last() -> None:
    """Flags of the user's stand behind ours, where the JVM lets them win."""
    command = jvm_command(Path("java"), (Path("a.jar"), Path("b.jar")), ("kafka.Kafka", "server.properties"), ("-Xmx1g",))
    assert command.index("-Xmx1g") > command.index("-Xmx384m")
    assert command[-3:] == ("a.jar:b.jar", "kafka.Kafka", "server.properties")
