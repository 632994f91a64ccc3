"""Whether an answer says other than what a person stated and confirmed, and mending it by rule; the facts themselves are `agents.facts`."""

from __future__ import annotations

from agents.consistency.check import check
from agents.consistency.contradiction import Contradiction
from agents.consistency.repair import repair

__all__ = ["Contradiction", "check", "repair"]
