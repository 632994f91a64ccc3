"""What a person said of themselves, found by rules and kept as typed facts; whether an answer contradicts them is `agents.consistency`."""

from __future__ import annotations

from agents.facts.extract import extract, split_decisions
from agents.facts.merge import forget, merge
from agents.facts.render import render_facts
from agents.facts.slots import SlotSet, load_slots

__all__ = ["SlotSet", "extract", "forget", "load_slots", "merge", "render_facts", "split_decisions"]
