"""The settings of what is remembered for how long: sessions, kept answers, and facts of persons across sessions; of one conversation it is `session`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.settings_ladder import Section


class Memory(Section, frozen=True, forbid_unknown_fields=True):
    """How long things are remembered, and how much at most. Age counts from the last write, by the clock of the worker that wrote; events' own times do not."""

    session_ttl_s: Annotated[
        float, Meta(gt=0, description="a session without an event for so long is erased, with its kept answers; events keep their worth as long, not longer")
    ] = 2_592_000.0
    max_sessions: Annotated[int, Meta(ge=16, description="sessions of one worker; the one used longest ago is erased first")] = 1_000_000
    max_bytes: Annotated[int, Meta(ge=1_048_576, description="of a worker's sessions and kept answers together; the same goes first")] = 4_294_967_296
    person_ttl_s: Annotated[float, Meta(gt=0, description="facts of a person (`subject`) that got nothing new for so long are erased")] = 31_536_000.0
    person_bytes: Annotated[
        int, Meta(ge=1_048_576, description="of all persons' facts in one worker; the person heard of longest ago is not remembered there any more")
    ] = 268_435_456
    load_s: Annotated[float, Meta(gt=0, le=600, description="a start waits so long for the persons' facts to be read; the rest comes while it answers")] = 30.0
