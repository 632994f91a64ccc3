"""The embedded broker's settings as Kafka reads them, and its JVM's; pure text, written to disk by `streams.broker.process`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streams.broker.probe import HOST

JVM_FLAGS = (
    "-Xmx384m",  # Kafka's script takes 1 GiB, which is the model's memory here; measured need is below 200 MB
    "-XX:+UseSerialGC",  # one thread for collection: the cores belong to the engines
    "-XX:TieredStopAtLevel=1",  # the second compiler would take a core for a minute to speed up a broker that idles
    "-XX:+ExitOnOutOfMemoryError",  # a broker that lives on without memory answers nobody
    "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-AOTAdapterCaching",  # classes alone are taken from a recording of a start: machine code is tied to the very processor
    "-XX:-AOTStubCaching",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "--sun-misc-unsafe-memory-access=allow",  # without it the JVM prints four lines of warnings about Kafka's own calls
)

NODE_ID = 1

MESSAGE_BYTES = 1_048_588
"""Kafka's own default, 1 MiB and the head of a batch: what works here works on a cluster that nobody tuned."""

LOG4J = """status = error
appenders = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = broker.log
appender.file.filePattern = broker.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{ISO8601} %p %c: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
"""Warnings only, in at most two files of 8 MB: an embedded broker's log must not fill the disk it serves from."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What one run of the broker is told; the largest record is in bytes."""

    port: int
    controller_port: int
    log_dir: str
    message_bytes: int = MESSAGE_BYTES
    partitions: int = 4


def server_properties(config: BrokerConfig) -> str:
    """The text of `server.properties`: one node that is broker and controller, for one machine's development, demo and tests."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": NODE_ID,
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{config.controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{config.port},CONTROLLER://{HOST}:{config.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{config.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": config.log_dir,
        # A topic made by a typo would be read by nobody, and Faust never gets a topic that appears after its start.
        "auto.create.topics.enable": "false",
        "num.partitions": config.partitions,
        # One node can hold one replica; the default of 3 would leave consumer groups and transactions waiting for ever.
        "default.replication.factor": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # 50 partitions each cost files and a second at the first join; a handful of groups needs no more than these.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 4,
        # Waiting 3 s for more members only delays the first answer; two workers started together cost one more rebalance.
        "group.initial.rebalance.delay.ms": 0,
        # The default minimum of 6 s would refuse the worker.session_timeout_ms of 2000 that the settings allow.
        "group.min.session.timeout.ms": 1000,
        "message.max.bytes": config.message_bytes,
        # A follower does not exist, but a consumer's fetch must still carry the largest record.
        "replica.fetch.max.bytes": max(config.message_bytes, MESSAGE_BYTES),
        # 128 MB by default, a third of the heap; a dedupe map of this size still covers 400,000 keys a pass.
        "log.cleaner.dedupe.buffer.size": 16_777_216,
        # After a kill the next start waits this long, since the controller takes the old broker for alive; a pause longer than this fences the only broker.
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "num.recovery.threads.per.data.dir": 2,
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def jvm_command(java: Path, jars: tuple[Path, ...], main: tuple[str, ...], more_flags: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The command line of a JVM that runs one of Kafka's main classes in a directory that holds `log4j2.properties`."""
    return (str(java), *JVM_FLAGS, *more_flags, "-Dlog4j2.configurationFile=log4j2.properties", "-cp", ":".join(map(str, jars)), *main)
