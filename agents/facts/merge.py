"""New facts laid over known ones: newer supersede older explicitly, within bounds; finding them is `extract`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agents.facts.values import agree, same
from schemas.facts import HISTORY, Fact, Facts, Past, YesNo
from schemas.settings_facts import Facts as FactsSettings


def merge(known: Facts, new: Iterable[Fact], settings: FactsSettings) -> Facts:
    """`known` with `new`: of one identity the greater (at_ms, offset, event id) wins, in whatever order they come; deterministic.

    A denial takes effect only on a value that it agrees with, or where nothing is known. Beyond `max_facts` and `max_bytes` the oldest that is not
    pinned goes first, then the oldest.
    """
    by_identity = {fact.identity: fact for fact in known.facts}
    touched: set[tuple[str, str]] = set()
    for fact in new:
        touched.add(fact.identity)
        present = by_identity.get(fact.identity)
        by_identity[fact.identity] = fact if present is None else _lay_over(present, fact)
    if not touched:
        return known
    foreign = tuple(raw for raw in known.foreign if (raw.get("slot"), raw.get("key", "")) not in touched)
    merged = Facts(tuple(sorted(by_identity.values(), key=lambda fact: fact.identity)), foreign, known.unknown)
    return _bounded(merged, settings)


def forget(known: Facts, *, personal: bool = True) -> Facts:
    """What may be kept without consent: everything but personal facts, or with `personal=False` nothing."""
    return Facts(tuple(fact for fact in known.facts if personal and not fact.personal), (), known.unknown)


def _lay_over(present: Fact, fact: Fact) -> Fact:
    if fact.denied and not present.denied and not (agree(present.value, fact.value) and type(present.value) is type(fact.value)):
        return present
    newer, older = (fact, present) if fact.stamp >= present.stamp else (present, fact)
    if same(newer.value, older.value) and newer.denied == older.denied:
        return msgspec.structs.replace(
            newer, confidence=max(newer.confidence, older.confidence), history=present.history or fact.history, unknown=present.unknown
        )
    past = Past(older.value, older.event_id, older.at_ms, older.offset, older.denied, newer.event_id)
    history = sorted((*older.history, *newer.history, past), key=lambda entry: (entry.at_ms, entry.offset, entry.event_id))
    return msgspec.structs.replace(newer, history=tuple(history[-HISTORY:]), unknown=newer.unknown)


def _bounded(facts: Facts, settings: FactsSettings) -> Facts:
    kept = list(facts.facts)
    sizes = {fact.identity: _size(fact) for fact in kept}
    total = sum(sizes.values()) + len(msgspec.msgpack.encode(facts.foreign))
    for fact in sorted(kept, key=lambda fact: (fact.pinned, not isinstance(fact.value, YesNo), fact.stamp, fact.identity)):
        if len(kept) <= settings.max_facts and total <= settings.max_bytes:
            break
        kept.remove(fact)
        total -= sizes[fact.identity]
    foreign = facts.foreign if total <= settings.max_bytes else ()
    return msgspec.structs.replace(facts, facts=tuple(kept), foreign=foreign)


def _size(fact: Fact) -> int:
    """Bytes of the fact as stored."""
    return len(msgspec.msgpack.encode(fact))
