"""What topics there are, their names and how they are kept: the one place that forms the names; making and checking them is `streams.topic_admin`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from schemas.settings import Settings

RECORD_BYTES = 1_048_588
"""Kafka's own default for the largest batch; set by hand where our records may come near 900,000 bytes and a cluster may allow less."""

_DEAD_LETTER_BYTES = RECORD_BYTES + 65_536
"""A dead letter is the record as received plus our headers: without room for them the largest one could not be kept, and its partition would stop."""

_CHUNKS_KEPT_MS = 600_000
"""Chunks matter while a person watches; the final text is on `responses`. Ten minutes let a reader that reconnects catch up."""

_CHUNK_SEGMENT_MS = 300_000
"""Only closed segments are deleted, and the default closes one a week: at worst a chunk is kept for a quarter of an hour."""

_CHANGELOG_SEGMENT_BYTES = 67_108_864
"""Only closed segments are compacted, and recovery reads all the rest: with the default of 1 GiB, minutes. At worst 64 MiB a partition."""

_CHANGELOG_SEGMENT_MS = 3_600_000
"""The same for a quiet changelog: at worst an hour's writes are read twice."""

ERASED_WITHIN_MS = 86_400_000
"""What was erased or replaced leaves the disk within so long and a run of the cleaner: without it a quiet changelog, never half dirty, keeps it for ever."""

_CHANGELOG = (
    ("segment.bytes", str(_CHANGELOG_SEGMENT_BYTES)),
    ("segment.ms", str(_CHANGELOG_SEGMENT_MS)),
    ("max.compaction.lag.ms", str(ERASED_WITHIN_MS)),
)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics' full names, prefix included."""

    interactions: str
    responses: str
    chunks: str
    tasks: str
    tasks_status: str
    control: str
    dead_letters: str
    audit: str
    sessions_changelog: str
    answers_changelog: str
    persons: str
    reviews: str = ""
    """Answers that people called wrong, for people; empty without `feedback.topic`."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The names under these settings. The changelogs carry the application's id: two applications on one cluster keep their own state."""
        prefix, app = settings.kafka.topic_prefix, settings.app.id
        return cls(
            interactions=f"{prefix}interactions",
            responses=f"{prefix}responses",
            chunks=f"{prefix}responses.chunks",
            tasks=f"{prefix}tasks",
            tasks_status=f"{prefix}tasks.status",
            control=f"{prefix}control",
            dead_letters=f"{prefix}dead-letters",
            audit=f"{prefix}audit",
            sessions_changelog=f"{prefix}{app}-sessions-changelog",
            answers_changelog=f"{prefix}{app}-answers-changelog",
            persons=f"{prefix}{app}-persons",
            reviews=f"{prefix}{settings.feedback.topic}" if settings.feedback.topic else "",
        )


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What one topic should be; `joined` ones meet in a table or answer by partition number, so their partition counts must be equal."""

    name: str
    partitions: int
    cleanup: Literal["delete", "compact"]
    joined: bool = False
    config: tuple[tuple[str, str], ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """The topic's own configuration, as Kafka names it; what is not here is the cluster's."""
        return {"cleanup.policy": self.cleanup, **dict(self.config)}


def specs(settings: Settings) -> tuple[TopicSpec, ...]:
    """Every topic of the product under these settings."""
    topics, count = Topics.of(settings), settings.kafka.partitions
    large = ("max.message.bytes", str(RECORD_BYTES))
    reviews = (TopicSpec(topics.reviews, count, "delete"),) if topics.reviews else ()
    return (
        TopicSpec(topics.interactions, count, "delete", joined=True, config=(large,)),
        TopicSpec(topics.responses, count, "delete", joined=True, config=(large,)),
        TopicSpec(
            topics.chunks,
            count,
            "delete",
            joined=True,
            config=(("retention.ms", str(_CHUNKS_KEPT_MS)), ("segment.ms", str(_CHUNK_SEGMENT_MS))),
        ),
        TopicSpec(topics.sessions_changelog, count, "compact", joined=True, config=(large, *_CHANGELOG)),
        TopicSpec(topics.answers_changelog, count, "compact", joined=True, config=(large, *_CHANGELOG)),
        # One partition: every worker reads all of it, and a key's newest record is the last one however many partitions the others have.
        TopicSpec(topics.persons, 1, "compact", config=_CHANGELOG),
        TopicSpec(topics.tasks, count, "delete"),
        TopicSpec(topics.tasks_status, count, "compact"),
        # One partition, so that changes reach every worker in the order in which they were made.
        TopicSpec(topics.control, 1, "compact"),
        TopicSpec(topics.dead_letters, count, "delete", config=(("max.message.bytes", str(_DEAD_LETTER_BYTES)),)),
        TopicSpec(topics.audit, count, "delete"),
        *reviews,
    )


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """What the cluster says a topic is; `config` is `None` when we may not read it."""

    partitions: int
    config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A topic whose partition count cannot work, and what mends it."""

    topic: str
    found: int
    wanted: int
    mend: str


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What stands and what does not: `missing` and `mismatches` keep a worker from starting, `warnings` do not."""

    created: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_fit(self) -> bool:
        """Whether a worker can start on these topics."""
        return not self.missing and not self.mismatches

    @property
    def problem(self) -> str:
        """One line that says what is wrong and what mends it; empty when the topics are fit."""
        if self.mismatches:
            counts = ", ".join(f"{item.topic} has {item.found} partitions and needs {item.wanted}" for item in self.mismatches)
            return f"{counts}: {' && '.join(dict.fromkeys(item.mend for item in self.mismatches))}"
        if self.missing:
            return f"topics are missing ({', '.join(self.missing)}): run `answerby topics create`"
        return ""


def compare_topics(wanted: tuple[TopicSpec, ...], found: Mapping[str, FoundTopic], bootstrap: str) -> TopicReport:
    """Hold what the cluster has against what should be; pure. `bootstrap` is for the commands in the report."""
    return TopicReport(
        found=tuple(spec.name for spec in wanted if spec.name in found),
        missing=tuple(spec.name for spec in wanted if spec.name not in found),
        mismatches=_find_mismatches(wanted, found, bootstrap),
        warnings=tuple(warning for spec in wanted if spec.name in found for warning in _warnings_about(spec, found[spec.name])),
    )


def _find_mismatches(wanted: tuple[TopicSpec, ...], found: Mapping[str, FoundTopic], bootstrap: str) -> tuple[Mismatch, ...]:
    """Partitions can be added, never removed: where all agree the setting follows the topics, else the smaller topics follow the largest."""
    joined = [spec for spec in wanted if spec.joined and spec.name in found]
    counts = {spec.name: found[spec.name].partitions for spec in joined}
    odd = [spec for spec in joined if counts[spec.name] != spec.partitions]
    if not odd:
        return ()
    if len(set(counts.values())) == 1:
        mend = f"set kafka.partitions = {counts[odd[0].name]}"
        return tuple(Mismatch(spec.name, counts[spec.name], spec.partitions, mend) for spec in odd)
    target = max(*counts.values(), odd[0].partitions)
    mismatches = [
        Mismatch(spec.name, counts[spec.name], target, f"kafka-topics.sh --bootstrap-server {bootstrap} --alter --topic {spec.name} --partitions {target}")
        for spec in joined
        if counts[spec.name] != target
    ]
    if target != odd[0].partitions:
        last = mismatches[-1]
        mismatches[-1] = Mismatch(last.topic, last.found, last.wanted, f"{last.mend}; then set kafka.partitions = {target}")
    return tuple(mismatches)


def _warnings_about(spec: TopicSpec, found: FoundTopic) -> list[str]:
    if found.config is None:
        return [f"{spec.name}: its configuration cannot be read, so its cleanup policy is unchecked"]
    warnings = []
    policy = found.config.get("cleanup.policy", spec.cleanup)
    if policy != spec.cleanup:
        loss = "records are lost when keys repeat" if spec.cleanup == "delete" else "state is lost when records grow old"
        warnings.append(f"{spec.name}: cleanup.policy is {policy} and should be {spec.cleanup}, or {loss}")
    need, have = int(spec.settings.get("max.message.bytes", 0)), int(found.config.get("max.message.bytes", RECORD_BYTES))
    if have < need:
        warnings.append(f"{spec.name}: max.message.bytes is {have} and should be at least {need}, or large records are refused")
    if (lag := spec.settings.get("max.compaction.lag.ms")) and int(found.config.get("max.compaction.lag.ms", lag)) > int(lag):
        warnings.append(f"{spec.name}: max.compaction.lag.ms should be {lag} at most, or what was erased may stay in its files for ever")
    return warnings
