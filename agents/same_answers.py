"""Which events were lately given the same answer, so that calling it wrong for one takes it from all caches; what else feedback does is `agents.feedback`.

Each cache knows the events that it gave an answer to. An answer that one cache gave may have come from a question that
another one keeps as well: without this, what is evicted here would be given again from there.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque

EventKey = tuple[str, str, str]
"""Tenant, session, event id."""

MOST = 10_000
"""Answers remembered; the one given longest ago goes first. With `EACH` at its most 40 MB, in practice 4: most answers are given once."""

EACH = 16
"""Events remembered of one answer: they lead to every place that keeps it, of which there are few."""

TELLING_CHARS = 40
"""A text of so many characters is the same answer wherever it stands. Shorter ones ("Yes.", a label) answer many questions, so theirs counts too."""


class SameAnswers:
    """Pure bookkeeping, bounded; of texts it keeps digests alone."""

    def __init__(self) -> None:
        self._events: OrderedDict[bytes, deque[EventKey]] = OrderedDict()

    def note(self, event: EventKey, question: str, answer: str) -> None:
        """This event was given this answer."""
        name = _name(event[0], question, answer)
        events = self._events.setdefault(name, deque(maxlen=EACH))
        events.append(event)
        self._events.move_to_end(name)
        if len(self._events) > MOST:
            self._events.popitem(last=False)

    def of(self, event: EventKey, question: str, answer: str) -> tuple[EventKey, ...]:
        """This event and all others that were given the same answer."""
        return tuple(dict.fromkeys((event, *self._events.get(_name(event[0], question, answer), ()))))


def _name(tenant: str, question: str, answer: str) -> bytes:
    parts = (tenant, answer) if len(answer) >= TELLING_CHARS else (tenant, answer, " ".join(question.split()).casefold())
    lengths = ",".join(str(len(part)) for part in parts)  # or a tenant with the mark between them in its name could speak for another
    return hashlib.blake2b(f"{lengths}:{''.join(parts)}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
