"""Why a record could not be taken as an event: a value, not an exception; how it is written out is `streams.publish`."""

from __future__ import annotations

from typing import Literal

import msgspec

DeadLetterReason = Literal[
    "undecodable",
    "not_a_map",
    "missing_field",
    "invalid_field",
    "unsupported_version",
    "too_large",
    "conflict",
    "internal",
]

HEADER_PREFIX = "answerby."
"""Our headers on a dead letter start so; a producer's own headers stay as they came."""


class Undecodable(msgspec.Struct, frozen=True):
    """What is wrong with a record. `detail` is bounded and never holds a person's text."""

    reason: DeadLetterReason
    detail: str
