"""How a kept answer stands in the shared store: marked with version and key, so that foreign or damaged bytes are never given to a person."""

from __future__ import annotations

from typing import Literal

import msgspec

SHARED_VERSION = 1
"""Of the envelope; what it holds is versioned by the key (`agents.cache.key`)."""

LONGEST_MS = 31_536_000_000
"""The longest that `cache.ttl_s` allows. What claims to live longer comes from a clock that is wrong or from a stranger: a store refuses such times,
and a mark that it refuses would be tried again for ever, with everything that waits behind it."""

Sort = Literal["answer", "closed", "note"]


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One value of the store."""

    v: int
    key: bytes
    """Under which it was put: a reply that belongs to another question is seen at once."""
    sort: Sort
    """An answer; the mark that a person called it wrong; or, under an event's digest, the key of the answer it was given."""
    until_ms: int
    """Unix ms after which it is not to be used."""
    value: bytes


def seal(sort: Sort, key: bytes, value: bytes, until_ms: int) -> bytes:
    """The bytes to put under `key`."""
    return msgspec.msgpack.encode(Envelope(SHARED_VERSION, key, sort, until_ms, value))


def unseal(raw: bytes, key: bytes, now_ms: int) -> Envelope | None:
    """What was sealed for this very key and is not over, its end no further off than `LONGEST_MS`; None for anything else."""
    try:
        envelope = msgspec.msgpack.decode(raw, type=Envelope)
    except msgspec.MsgspecError:
        return None
    if envelope.v != SHARED_VERSION or envelope.key != key or envelope.until_ms <= now_ms:
        return None
    return msgspec.structs.replace(envelope, until_ms=min(envelope.until_ms, now_ms + LONGEST_MS))
