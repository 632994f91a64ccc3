"""What a session learns from an event: facts that hold at once, and those that wait for a confirm; the rules that find them are `agents.facts`."""

from __future__ import annotations

import msgspec

from agents.context.sessions import Stamp
from agents.facts import SlotSet, extract, merge, render_facts, split_decisions
from schemas.events import InteractionEvent
from schemas.facts import Fact, Facts, dump_facts, load_facts
from schemas.session import SessionState


def event_time_ms(occurred_at_ms: int | None, record_ms: int, arrived_at_ms: int) -> int:
    """When an event happened, Unix ms: its own stamp, else its record's, never later than its arrival and never below 0."""
    stamp = occurred_at_ms if occurred_at_ms is not None and occurred_at_ms >= 0 else record_ms
    return min(stamp, arrived_at_ms) if stamp >= 0 else arrived_at_ms


def find_facts(state: SessionState, event: InteractionEvent, locale: str, slots: SlotSet, stamp: Stamp) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """What a message states: facts that hold at once, and those that wait for the person's confirm."""
    found = extract(event.text or "", locale, slots, event.event_id, stamp[0], offset=stamp[1], scenario=event.scenario, known=load_facts(state.facts))
    return split_decisions(slots, found)


def with_facts(state: SessionState, found: tuple[Fact, ...], slots: SlotSet) -> SessionState:
    """The session with more facts, bounded."""
    if not found:
        return state
    return msgspec.structs.replace(state, facts=dump_facts(merge(load_facts(state.facts), found, slots.settings)))


def known_facts(state: SessionState, person: Facts, slots: SlotSet) -> Facts:
    """What is known of the person, from this session and from their others; of one slot the newer value."""
    known = load_facts(state.facts)
    return merge(person, known.facts, slots.settings) if person.facts else known


def line_of_facts(facts: Facts, locale: str, slots: SlotSet) -> str:
    """The facts as a prompt quotes them."""
    return render_facts(facts.facts, slots.settings.prompt_chars, locale, slots)
