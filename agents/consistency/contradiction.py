"""One place where an answer says other than what is known; finding them is `check`, mending them `repair`."""

from __future__ import annotations

import msgspec


class Contradiction(msgspec.Struct, frozen=True):
    """What was said, what is known, and what to write instead when that is certain."""

    slot: str
    """The fact's slot; `decision` for a confirmed decision."""
    key: str
    said: str
    known: str
    event_id: str
    """The event that the fact or decision comes from."""
    start: int
    end: int
    """Characters of the answer that say it."""
    replacement: str | None = None
    """None: no rule can mend it."""
