"""Facts that a person stated, as a session keeps them: typed, dated, superseded explicitly; finding them in a text is `agents.facts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

FACTS_VERSION = 1

HISTORY = 4
"""Values of one slot that are remembered after newer ones: a person who changes their mind at every turn must not fill the session. At worst a fact
is five values long."""


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="text", tag_field="type"):
    """A name, a code, a place, a goal: the person's own characters."""

    text: str


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="number", tag_field="type"):
    """A number; `unit` is its canonical name (`EUR`, `hour`), empty when none was said."""

    number: float
    unit: str = ""


class Date(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="date", tag_field="type"):
    """A day, a time of day, or both, as far as they were said; `weekday` is 1 (Monday) to 7."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None
    hour: int | None = None
    minute: int | None = None


class YesNo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="yes_no", tag_field="type"):
    """Whether the person does, has or wants what the slot names."""

    yes: bool


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="choice", tag_field="type"):
    """One of the slot's choices, by its name."""

    choice: str


Value = Text | Number | Date | YesNo | Choice


class Past(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value that a newer one has superseded."""

    value: Value
    event_id: str
    at_ms: int
    offset: int = 0
    denied: bool = False
    superseded_by: str = ""
    """The event whose fact took its place."""


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One slot's value and where it comes from."""

    slot: str
    value: Value
    event_id: str
    at_ms: int
    offset: int = 0
    confidence: Annotated[float, Meta(ge=0, le=1)] = 1.0
    key: str = ""
    """What it is about, for slots that hold several: `tea` of preferences, `mugs` of quantities."""
    denied: bool = False
    """True: the person said that it is not this value, and nothing better is known."""
    pinned: bool = False
    """True: always in the prompt while there is room, and answers must not contradict it."""
    personal: bool = False
    """True: not to be shown to others, kept in shared caches or kept without consent."""
    history: tuple[Past, ...] = ()
    """Oldest first, at most `HISTORY`."""
    unknown: dict[str, Any] = {}
    """Fields that this release does not know, kept as they were."""

    @property
    def identity(self) -> tuple[str, str]:
        """Facts of one identity supersede each other."""
        return self.slot, self.key

    @property
    def stamp(self) -> tuple[int, int, str]:
        """Of two facts the greater stamp wins, in whatever order they come."""
        return self.at_ms, self.offset, self.event_id


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known of one person or session, in the order of their identity."""

    facts: tuple[Fact, ...] = ()
    foreign: tuple[dict[str, Any], ...] = ()
    """Facts of a newer release that this one cannot read (a new type of value), kept until a newer fact takes their place."""
    unknown: dict[str, Any] = {}

    def find(self, slot: str, key: str = "") -> Fact | None:
        """The fact of that identity."""
        return next((fact for fact in self.facts if fact.slot == slot and fact.key == key), None)


def dump_facts(facts: Facts) -> dict[str, Any]:
    """A plain map for the session's value; `{}` for no facts, so that sessions without any stay as small as they were."""
    if not facts.facts and not facts.foreign and not facts.unknown:
        return {}
    plain = [_plain(fact) for fact in facts.facts]
    return {"v": FACTS_VERSION, **facts.unknown, "facts": [*plain, *facts.foreign]}


def load_facts(plain: Mapping[str, Any]) -> Facts:
    """Read what any release from version 1 on has dumped; what is no list of facts means none."""
    known: list[Fact] = []
    foreign: list[dict[str, Any]] = []
    stored = plain.get("facts")
    for raw in stored if isinstance(stored, list | tuple) else ():
        fact = _read_fact(raw)
        if fact is not None:
            known.append(fact)
        elif isinstance(raw, dict):
            foreign.append(raw)
    unknown = {name: value for name, value in plain.items() if name != "facts" and (name != "v" or value != FACTS_VERSION)}
    return Facts(tuple(known), tuple(foreign), unknown)


def _plain(fact: Fact) -> dict[str, Any]:
    """Without what has its default: fifty facts go through the changelog with every turn of a session."""
    fields: dict[str, Any] = msgspec.to_builtins(fact)
    unknown = fields.pop("unknown", None)
    return _merge_plain(unknown, fields) if unknown else fields


_FIELDS = frozenset(Fact.__struct_fields__) - {"unknown"}
_VALUE_FIELDS = {kind.__struct_config__.tag: frozenset((*kind.__struct_fields__, "type")) for kind in (Text, Number, Date, YesNo, Choice)}


def _read_fact(raw: object) -> Fact | None:
    try:
        return msgspec.convert(raw, Fact)
    except msgspec.ValidationError:
        pass  # fields of a newer release, kept by the slower way, or a type of value that is not ours
    if not isinstance(raw, dict):
        return None
    fields = {name: value for name, value in raw.items() if name in _FIELDS}
    unknown = {name: value for name, value in raw.items() if name not in _FIELDS}
    value = fields.get("value")
    if isinstance(value, dict):
        names = _VALUE_FIELDS.get(value.get("type"), frozenset())
        fields["value"] = {name: part for name, part in value.items() if name in names}
        extra = {name: part for name, part in value.items() if name not in names}
        unknown |= {"value": extra} if extra else {}
    try:
        return msgspec.convert({**fields, "unknown": unknown}, Fact)
    except msgspec.ValidationError:
        return None


def _merge_plain(unknown: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    merged = {**unknown, **known}
    for name in unknown.keys() & known.keys():
        if isinstance(unknown[name], dict) and isinstance(known[name], dict):
            merged[name] = {**unknown[name], **known[name]}
    return merged
