"""Slots made ready to match: the built-in ones and the settings' own, each pattern checked at load; what is done with a match is `extract`."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import msgspec

from agents.facts.finder import Finder, encode
from agents.facts.pieces import EXPECTED_GROUPS, SIGNS, expand, unknown_pieces
from agents.rules.patterns import Pattern, PatternFilter, PatternProblem, compile_pattern
from schemas.errors import ConfigError
from schemas.settings_facts import Facts, Slot

_SIGNS = {piece: Finder(*sources) for piece, sources in SIGNS.items()}


class _BuiltIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One pattern and the slot that it finds a value of."""

    slot: Slot
    pattern: Pattern
    for_answers: bool
    """True: only an answer is spoken like this."""
    sign: Finder | None
    """What stands in every text with a value for it; None when that is not known."""


class SlotSet:
    """Every slot of a worker; finds those whose patterns can match a text at all."""

    def __init__(self, slots: Sequence[Slot], matchers: Sequence[Matcher], settings: Facts) -> None:
        self.slots = {slot.name: slot for slot in slots}
        self.settings = settings
        self._matchers = tuple(matchers)
        self._filter = PatternFilter([matcher.pattern for matcher in matchers])

    def possible(self, text: str, scenario: str, *, answers: bool, names: Container[str] | None = None) -> tuple[Matcher, ...]:
        """Matchers worth a search in `text`, in the order written; those for answers only when it is one, and only of slots in `names` when given."""
        raw = encode(text)
        found = (self._matchers[place] for place in sorted(self._filter.possible(raw)))
        return tuple(
            matcher
            for matcher in found
            if (answers or not matcher.for_answers)
            and (not matcher.slot.scenarios or scenario in matcher.slot.scenarios)
            and (names is None or matcher.slot.name in names)
            and (matcher.sign is None or matcher.sign.finds(raw))
        )

    def label(self, name: str, locale: str) -> str:
        """What a prompt calls the slot; a slot of a newer configuration goes by its name."""
        slot = self.slots.get(name)
        if slot is None:
            return name
        return slot.labels.get(locale.partition("-")[0].lower()) or slot.labels.get("en") or name.replace("_", " ")


def load_slots(settings: Facts) -> SlotSet:
    """The slots that the settings name, own ones in place of built-in ones of the same name.

    Raises:
        ConfigError: a slot or one of its patterns cannot work; names the key and what would be right.
    """
    own = {slot.name for slot in settings.slots}
    if len(own) < len(settings.slots):
        raise _twice(settings.slots)
    matchers: list[Matcher] = []
    slots = [(slot, "the built-in slots") for slot in builtin_slots() if settings.builtin and slot.name not in own]
    slots += [(slot, f"facts.slots[{index}]") for index, slot in enumerate(settings.slots)]
    for slot, key in slots:
        matchers += _compile(slot, key)
    return SlotSet([slot for slot, _ in slots], matchers, settings)


@functools.cache
def builtin_slots() -> tuple[Slot, ...]:
    """The slots of `builtin.toml`."""
    text = resources.files("agents.facts").joinpath("builtin.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=_BuiltIn).slots


def _twice(slots: tuple[Slot, ...]) -> ConfigError:
    names = [slot.name for slot in slots]
    index = next(index for index, name in enumerate(names) if name in names[:index])
    return ConfigError(f"facts.slots[{index}].name", f"{names[index]!r} stands twice", "give each slot its own name, or one slot all the patterns")


def _compile(slot: Slot, key: str) -> Iterator[Matcher]:
    if not any(slot.patterns.values()):
        raise ConfigError(f"{key}.patterns", "there is no pattern", "write one at least, as patterns.en = ['my class is (?P<value>[a-z]+)']")
    if (slot.type == "choice") != bool(slot.choices):
        right = "list them, as choices = { mage = ['wizard'] }" if slot.type == "choice" else 'leave them out, or set type = "choice"'
        raise ConfigError(f"{key}.choices", f"{'missing' if slot.type == 'choice' else 'given'} for type {slot.type!r}", right)
    for field, table in (("answers", slot.answers), ("patterns", slot.patterns)):
        for language, sources in table.items():
            for index, source in enumerate(sources):
                sign = next((finder for piece, finder in _SIGNS.items() if piece in source), None)
                yield Matcher(slot, _pattern(source, f"{key}.{field}.{language}[{index}]"), field == "answers", sign)


def _pattern(source: str, key: str) -> Pattern:
    unknown = unknown_pieces(source)
    if unknown:
        raise ConfigError(key, f"there is no piece <<{unknown[0]}>>", "see the list in docs/guide/facts.md")
    pattern = compile_pattern(expand(source))
    if isinstance(pattern, PatternProblem):
        raise ConfigError(key, pattern.wrong, pattern.right)
    wrong = [group for group in pattern.groups if group not in EXPECTED_GROUPS]
    if wrong:
        raise ConfigError(key, f"a group is named {wrong[0]!r}", f"name groups {', '.join(EXPECTED_GROUPS)}; use (?:…) for the rest")
    if "value" not in pattern.groups:
        raise ConfigError(key, "has no group `value`", "put what is to be remembered in (?P<value>…)")
    return pattern
