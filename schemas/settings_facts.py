"""The settings of key facts: what is looked for in a person's words, and how much of it is kept; finding it is `agents.facts`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.settings_ladder import Section

SlotType = Literal["text", "number", "date", "yes_no", "choice"]

PatternText = Annotated[str, Meta(min_length=1, max_length=2000)]


class Slot(Section, frozen=True, forbid_unknown_fields=True):
    """One `[[facts.slots]]`: something that a person may state of themselves or of their affair. One of a built-in's name replaces it."""

    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,49}\Z", description="names it in the session, in prompts and in messages")]
    type: Annotated[SlotType, Meta(description="what its value is read as")] = "text"
    patterns: Annotated[
        dict[str, tuple[PatternText, ...]],
        Meta(
            description="RE2 patterns by language, each with a group `value`, perhaps `key`, `unit`, `no` (it is denied);"
            " <<number>>, <<money>>, <<date>>, <<code>>, <<name>>, <<name_zh>> stand for such pieces. Written as the person says it (my, 我的)"
        ),
    ] = msgspec.field(default_factory=dict)
    answers: Annotated[dict[str, tuple[PatternText, ...]], Meta(description="more patterns, for answers alone: how the model may speak of it (`Dear Ann`)")] = (
        msgspec.field(default_factory=dict)
    )
    choices: Annotated[dict[str, tuple[str, ...]], Meta(description="type choice: name of each choice and the words that mean it")] = msgspec.field(
        default_factory=dict
    )
    labels: Annotated[dict[str, str], Meta(description="what prompts call it, by language; the name serves the rest")] = msgspec.field(default_factory=dict)
    scenarios: Annotated[tuple[str, ...], Meta(description="only in these; empty: in every one")] = ()
    decision: Annotated[bool, Meta(description="true: it becomes a fact only when the person has confirmed it")] = False
    many: Annotated[bool, Meta(description="true: several side by side, one for each `key` (without such a group: for each value)")] = False
    pinned: Annotated[bool, Meta(description="true: in every prompt while there is room; answers must not contradict it")] = True
    personal: Annotated[bool, Meta(description="true: personal data, kept across sessions only with consent")] = False
    in_questions: Annotated[bool, Meta(description="true: a question names it too (`where is order A-12?`)")] = False
    whole_sentence: Annotated[bool, Meta(description="true: its value may hold commas, as addresses do")] = False
    confidence: Annotated[float, Meta(gt=0, le=1, description="how sure a match is")] = 0.9


class Facts(Section, frozen=True, forbid_unknown_fields=True):
    """What is remembered of what a person said."""

    enabled: Annotated[bool, Meta(description="false: nothing is looked for, and what is known already stays as it is")] = True
    builtin: Annotated[bool, Meta(description="false: only the slots written here")] = True
    slots: Annotated[tuple[Slot, ...], Meta(max_length=200, description="slots of your own")] = ()
    max_facts: Annotated[int, Meta(ge=1, le=1000, description="of a session; the oldest that is not pinned goes first")] = 50
    max_bytes: Annotated[int, Meta(ge=256, le=262_144, description="of all facts of a session as stored; the same go first")] = 16_384
    value_chars: Annotated[int, Meta(ge=8, le=2000, description="longest text of a fact; what is longer is cut")] = 160
    text_chars: Annotated[int, Meta(ge=50, le=20_000, description="of a message, how many characters are looked into: the time stays short")] = 2000
    prompt_chars: Annotated[int, Meta(ge=0, le=20_000, description="of all facts in one prompt")] = 1000
    utc_offset_minutes: Annotated[int, Meta(ge=-840, le=840, description="the time zone in which `tomorrow` is meant")] = 0
    check_answers: Annotated[bool, Meta(description="true: an answer that contradicts a pinned fact or a confirmed decision is mended or not sent")] = True
