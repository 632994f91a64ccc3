"""Tests for `streams.broker.jars`: the lock file is whole and says what Kafka needs."""

from __future__ import annotations

import pytest

from schemas.errors import SetupError
from streams.broker.jars import KAFKA_VERSION, LOCK_FILE, Jar, format_lock, parse_lock


def test_committed_lock_is_complete() -> None:
    """The lock holds one version of each jar: Kafka itself, its clients of the same version, and a binding for its log."""
    jars = parse_lock(LOCK_FILE.read_text(encoding="ascii"))
    versions = {f"{jar.group}:{jar.artifact}": jar.version for jar in jars}
    assert len(versions) == len(jars)
    assert len({jar.file_name for jar in jars}) == len(jars)
    assert versions["org.apache.kafka:kafka_2.13"] == versions["org.apache.kafka:kafka-clients"] == KAFKA_VERSION
    assert versions["org.apache.logging.log4j:log4j-slf4j-impl"] == versions["org.apache.logging.log4j:log4j-core"]


def test_committed_lock_is_in_the_tools_own_form() -> None:
    """The committed file is what `streams.broker.lock` would write: nobody edited it by hand."""
    text = LOCK_FILE.read_text(encoding="ascii")
    assert format_lock(list(parse_lock(text))) == text


def test_path_follows_maven() -> None:
    """A jar's path is where every Maven repository keeps it."""
    jar = Jar("org.apache.kafka", "kafka_2.13", "4.1.0", 1, "0" * 64)
    assert jar.path == "org/apache/kafka/kafka_2.13/4.1.0/kafka_2.13-4.1.0.jar"


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", f"a:b:1 10 {'0' * 63}", f"a:b:1 0 {'0' * 64}", f"a:b 10 {'0' * 64}", f"../x:b:1 10 {'0' * 64}", "<<<<<<< ours"],
)
def test_damaged_lock_is_refused(text: str) -> None:
    """A lock that does not parse is an error, never fewer or other files."""
    with pytest.raises(SetupError, match="install answerby again"):
        parse_lock(text)
