"""The settings of the ladder: rungs, rules, caches, breakers and what a scenario changes of them; the tree they hang on is `schemas.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.rules import Rule

BUILT_IN_RUNGS = ("rules", "cache", "semantic_cache", "main", "fallback", "default")
"""Names the ladder knows by itself; without configuration they are skipped."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z")]


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every section: unknown keys are errors."""


class Ladder(Section, frozen=True, forbid_unknown_fields=True):
    """Which answers are tried, best first."""

    rungs: Annotated[
        tuple[Name, ...], Meta(min_length=1, description="built-in names without configuration are skipped; every other name is a [[models]] entry")
    ] = BUILT_IN_RUNGS
    default_text: Annotated[
        dict[str, str],
        Meta(description="what is said when nothing better is ready in time, by locale; `en` serves the rest; {state.KEY} is filled in"),
    ] = msgspec.field(
        default_factory=lambda: {
            "en": "I can't answer that in time right now. Please try again in a moment.",
            "zh": "现在来不及回答，请稍后再试。",
        }
    )


class Rules(Section, frozen=True, forbid_unknown_fields=True):
    """Answers that need no model. `[[rules.inline]]` may be written `[[rules]]` when no other key of this section is given."""

    files: Annotated[tuple[str, ...], Meta(description="rule files (TOML with [[rules]]), relative to this file; read again when they change")] = ()
    inline: Annotated[tuple[Rule, ...], Meta(description="rules written here; without any rule the rung is skipped")] = ()
    reload_s: Annotated[float, Meta(ge=0.1, le=3600, description="how often the files are looked at; a wrong new file leaves the old rules in force")] = 2.0
    max_rules: Annotated[int, Meta(ge=1, le=1_000_000, description="of all files together: more would make a match slower than the rungs below it")] = 20_000
    text_chars: Annotated[
        int, Meta(ge=1, le=10_000, description="longest message whose text is looked into, so that a match stays short; a longer one is for the model")
    ] = 1000


class Cache(Section, frozen=True, forbid_unknown_fields=True):
    """Answers given before to the same question; skipped until `ttl_s` is set."""

    ttl_s: Annotated[float, Meta(ge=0, le=31_536_000, description="how long an answer may be given again; 0: no cache")] = 0.0
    entries: Annotated[int, Meta(ge=1, le=10_000_000, description="answers kept in this worker; the one used longest ago goes first")] = 10_000
    max_bytes: Annotated[int, Meta(ge=4096, description="of all kept answers together, for the same reason: memory stays flat")] = 64 * 1024 * 1024
    shared: Annotated[str, Meta(description="redis:// or rediss:// address of a store (Redis or Valkey) that workers share; empty: each has its own")] = ""
    shared_ms: Annotated[float, Meta(gt=0, le=1000, description="the longest wait for the shared store: after it the answer is looked for elsewhere")] = 5.0


class SemanticCache(Section, frozen=True, forbid_unknown_fields=True):
    """Answers given before to a question that means the same; each scenario opts in by its own threshold."""

    encoder: Annotated[str, Meta(min_length=1, description="name of a pulled encoder, a folder with an OpenVINO encoder, or `ngrams`")] = "ngrams"
    ttl_s: Annotated[float, Meta(gt=0, le=31_536_000, description="how long an answer may be given again")] = 3600.0
    entries: Annotated[
        int, Meta(ge=1, le=10_000, description="questions kept for each tenant and scenario, the oldest goes first; a search takes 0.2 ms a thousand")
    ] = 2_000
    indexes: Annotated[int, Meta(ge=1, le=100_000, description="tenants and scenarios with an index of their own; the one used longest ago goes first")] = 200
    max_bytes: Annotated[int, Meta(ge=65536, description="of all kept questions and answers together; the index used longest ago goes first")] = (
        64 * 1024 * 1024
    )
    wait_ms: Annotated[float, Meta(gt=0, le=1000, description="the longest wait for the encoder: after it the answer is looked for elsewhere")] = 40.0


class Breaker(Section, frozen=True, forbid_unknown_fields=True):
    """When a model is left alone for a while, and how it comes back."""

    failures: Annotated[int, Meta(ge=1, le=1000, description="failed answers in a row (or while most fail) that open it")] = 3
    late_share: Annotated[float, Meta(gt=0, le=1, description="share of recent admitted answers that came to nothing for want of time that opens it")] = 0.5
    window: Annotated[int, Meta(ge=4, le=1000, description="recent admitted answers that the share is taken of")] = 20
    cooldown_ms: Annotated[int, Meta(ge=10, le=600_000, description="how long it stays open before one event tries again; doubles with each vain try")] = 1000
    max_cooldown_ms: Annotated[int, Meta(ge=10, le=3_600_000, description="the longest pause between two tries")] = 15_000


StateType = Literal["string", "number", "integer", "boolean", "array", "object"]
"""JSON's own types; the value may be null only by being absent."""


class ScenarioLadder(Section, frozen=True, forbid_unknown_fields=True):
    """What a scenario changes of `[ladder]`."""

    rungs: Annotated[tuple[Name, ...] | None, Meta(description="instead of ladder.rungs")] = None
    default_text: Annotated[dict[str, str] | None, Meta(description="instead of ladder.default_text; needs `en` as well")] = None


class ScenarioCache(Section, frozen=True, forbid_unknown_fields=True):
    """What a scenario changes of `[cache]`."""

    ttl_s: Annotated[Annotated[float, Meta(ge=0, le=31_536_000)] | None, Meta(description="instead of cache.ttl_s; 0: this scenario is not cached")] = None
    standalone: Annotated[
        bool,
        Meta(description="true: an answer depends on the question and on `context` alone, so earlier turns and other state do not keep questions apart (FAQ)"),
    ] = False


class ScenarioSemanticCache(Section, frozen=True, forbid_unknown_fields=True):
    """Whether a scenario uses the semantic cache."""

    threshold: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description="least similarity of a hit (see `cache tune`); unset: off")] = None


class StateSchema(Section, frozen=True, forbid_unknown_fields=True):
    """What the session's `state` must be like in a scenario; an event that would make it otherwise is a dead letter."""

    required: Annotated[tuple[str, ...], Meta(description="top-level keys that must be there once anything is")] = ()
    types: Annotated[dict[str, StateType], Meta(description="type of a top-level key's value, as JSON Schema calls it")] = msgspec.field(default_factory=dict)
    closed: Annotated[bool, Meta(description="true: no other keys than those of `types` and `required`")] = False


class Scenario(Section, frozen=True, forbid_unknown_fields=True):
    """One `[scenarios.NAME]`: an allowed use, and what it changes."""

    ladder: ScenarioLadder = ScenarioLadder()
    cache: ScenarioCache = ScenarioCache()
    semantic_cache: ScenarioSemanticCache = ScenarioSemanticCache()
    instructions: Annotated[Annotated[str, Meta(max_length=20_000)] | None, Meta(description="instead of session.instructions")] = None
    context: Annotated[
        tuple[str, ...], Meta(description="keys of the session's state that an answer depends on (a.b for nested ones): cached answers differ with them")
    ] = ()
    priority: Annotated[int, Meta(ge=0, le=9, description="who gets the model when there is not enough for all: higher ones first")] = 5
    weight: Annotated[float, Meta(gt=0, le=1000, description="share of the model between scenarios of one priority")] = 1.0

    state_schema: StateSchema = StateSchema()
    decision_patterns: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=2000)], ...],
        Meta(max_length=100, description="RE2 patterns: a message that one is found in is a decision, and asks for a confirm"),
    ] = ()
    decision_field: Annotated[
        str, Meta(max_length=128, description="field of a `json_schema` answer: set to anything but null, false or empty, the answer is a decision")
    ] = ""


OWN_TOPICS = frozenset({"interactions", "responses", "responses.chunks", "tasks", "tasks.status", "control", "dead-letters", "audit"})
"""Names that reviews may not go to: on `interactions` each would come back as an event, and be answered."""


class Feedback(Section, frozen=True, forbid_unknown_fields=True):
    """What happens when a person says that an answer was wrong or unsafe."""

    topic: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,200}\Z", description="topic that such answers are handed to, for people; empty: none")] = ""
