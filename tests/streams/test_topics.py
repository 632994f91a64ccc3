"""Tests for `streams.topics`: the names, what each topic should be, and what a report says."""

from __future__ import annotations

import pytest

from schemas.settings import App, Kafka, Settings
from streams.topics import FoundTopic, TopicReport, Topics, compare_topics, specs

SETTINGS = Settings(app=App(id="shop"), kafka=Kafka(topic_prefix="eu-", partitions=4))
SPECS = specs(SETTINGS)
JOINED = {"eu-interactions", "eu-responses", "eu-responses.chunks", "eu-shop-sessions-changelog", "eu-shop-answers-changelog"}


def _cluster(**changes: int) -> dict[str, FoundTopic]:
    """A cluster where everything fits, but for the partition counts named (with _ for - and .)."""
    counts = {spec.name: changes.get(spec.name.replace("-", "_").replace(".", "_"), spec.partitions) for spec in SPECS}
    return {spec.name: FoundTopic(counts[spec.name], spec.settings) for spec in SPECS}


def _report(found: dict[str, FoundTopic]) -> TopicReport:
    return compare_topics(SPECS, found, "kafka:9092")


def test_names_are_the_contracts() -> None:
    """Without a prefix the topics have the names that other programs rely on; the changelogs carry the application's id."""
    topics = Topics.of(Settings())
    assert (topics.interactions, topics.responses, topics.chunks) == ("interactions", "responses", "responses.chunks")
    assert (topics.tasks, topics.tasks_status, topics.control) == ("tasks", "tasks.status", "control")
    assert (topics.dead_letters, topics.audit) == ("dead-letters", "audit")
    assert (topics.sessions_changelog, topics.answers_changelog) == ("answerby-sessions-changelog", "answerby-answers-changelog")


def test_prefix_is_on_every_topic() -> None:
    """No topic escapes the prefix, changelogs included, and no two share a name."""
    names = [spec.name for spec in SPECS]
    assert all(name.startswith("eu-") for name in names)
    assert len(set(names)) == len(names)


def test_cleanup_is_the_contracts() -> None:
    """State is compacted, records of what happened are deleted with age, chunks soon."""
    cleanup = {spec.name.removeprefix("eu-"): spec.cleanup for spec in SPECS}
    compacted = {"tasks.status", "control", "shop-sessions-changelog", "shop-answers-changelog", "shop-persons"}
    assert {name for name, policy in cleanup.items() if policy == "compact"} == compacted
    chunks = next(spec for spec in SPECS if spec.name == "eu-responses.chunks")
    assert int(chunks.settings["retention.ms"]) <= 3_600_000


def test_what_meets_in_a_table_has_one_partition_count() -> None:
    """The joined topics are those of the life of an event, all with `kafka.partitions`."""
    joined = {spec.name: spec.partitions for spec in SPECS if spec.joined}
    assert joined == dict.fromkeys(JOINED, 4)


def test_largest_records_fit() -> None:
    """A dead letter has room for the largest record and our headers; responses and changelogs take 1 MiB."""
    limits = {spec.name: int(spec.settings.get("max.message.bytes", 0)) for spec in SPECS}
    assert all(limits[name] >= 1_048_576 for name in JOINED - {"eu-responses.chunks"})
    assert limits["eu-dead-letters"] > limits["eu-interactions"]


def test_fitting_cluster_has_no_problem() -> None:
    """Where everything is as it should be the report is empty of complaints."""
    report = _report(_cluster())
    assert report.is_fit
    assert (report.missing, report.mismatches, report.warnings, report.problem) == ((), (), (), "")
    assert len(report.found) == len(SPECS)


def test_missing_topics_name_the_command() -> None:
    """What is missing is named together with the command that makes it."""
    found = _cluster()
    del found["eu-audit"]
    report = _report(found)
    assert not report.is_fit
    assert report.missing == ("eu-audit",)
    assert report.problem == "topics are missing (eu-audit): run `answerby topics create`"


def test_one_common_other_count_is_mended_by_the_setting() -> None:
    """When the topics agree with each other the setting is what is wrong, since partitions cannot be taken away."""
    found = {name: FoundTopic(6, topic.config) for name, topic in _cluster().items()}
    report = _report(found)
    assert {item.topic for item in report.mismatches} == JOINED
    assert report.problem.endswith("set kafka.partitions = 6")


def test_smaller_topic_is_mended_by_adding_partitions() -> None:
    """One topic that lags behind gets the command that lets it catch up, and no other is named."""
    report = _report(_cluster(eu_responses=2))
    assert [(item.topic, item.found, item.wanted) for item in report.mismatches] == [("eu-responses", 2, 4)]
    assert report.mismatches[0].mend == "kafka-topics.sh --bootstrap-server kafka:9092 --alter --topic eu-responses --partitions 4"


def test_larger_topic_pulls_the_others_and_the_setting() -> None:
    """A topic with more partitions cannot shrink: the others grow and the setting follows, and doing what is said makes a fit."""
    report = _report(_cluster(eu_interactions=8))
    assert {item.topic for item in report.mismatches} == JOINED - {"eu-interactions"}
    assert all(item.wanted == 8 for item in report.mismatches)
    assert report.problem.endswith("then set kafka.partitions = 8")
    mended = specs(Settings(app=App(id="shop"), kafka=Kafka(topic_prefix="eu-", partitions=8)))
    found = {spec.name: FoundTopic(8, spec.settings) for spec in mended}
    assert compare_topics(mended, found, "kafka:9092").is_fit


def test_counts_of_lone_topics_do_not_matter() -> None:
    """Topics that meet nothing may have any partition count."""
    assert _report(_cluster(eu_dead_letters=12, eu_control=3, eu_audit=1)).is_fit


@pytest.mark.parametrize(("topic", "policy"), [("eu-interactions", "compact"), ("eu-shop-sessions-changelog", "delete")])
def test_wrong_cleanup_is_warned_of(topic: str, policy: str) -> None:
    """A policy that would lose records does not stop a worker but is said, with what it loses."""
    found = _cluster()
    found[topic] = FoundTopic(4, {**(found[topic].config or {}), "cleanup.policy": policy})
    report = _report(found)
    assert report.is_fit
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith(f"{topic}: cleanup.policy is {policy}")


def test_small_records_only_is_warned_of() -> None:
    """A topic that takes less than our largest record is named before one is refused."""
    found = _cluster()
    found["eu-responses"] = FoundTopic(4, {"cleanup.policy": "delete", "max.message.bytes": "1000"})
    assert "max.message.bytes is 1000" in _report(found).warnings[0]


def test_a_changelog_that_is_never_compacted_is_warned_of() -> None:
    """Topics of older releases have no bound on compaction: what was erased would stay in their files."""
    found = _cluster()
    config = {"cleanup.policy": "compact", "max.message.bytes": "1048588", "max.compaction.lag.ms": str(2**63 - 1)}
    found["eu-shop-sessions-changelog"] = FoundTopic(4, config)
    assert "max.compaction.lag.ms should be 86400000" in _report(found).warnings[0]


def test_unreadable_configuration_is_warned_of() -> None:
    """Where we may not look the report says so instead of passing it."""
    found = _cluster()
    found["eu-audit"] = FoundTopic(4, None)
    assert "cannot be read" in _report(found).warnings[0]
