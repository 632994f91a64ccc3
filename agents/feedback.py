"""What becomes of an answer that a person called wrong: out of every cache, out of later prompts, and to people; the mark is `agents.context.sessions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import structlog

from agents.context import sessions
from agents.same_answers import SameAnswers
from schemas.responses import ModelRef, response_id
from schemas.reviews import Review, Verdict

if TYPE_CHECKING:
    from agents.ladder import Given
    from schemas.events import InteractionEvent
    from schemas.session import KeptAnswer, SessionState

log = structlog.get_logger(__name__)


class Evictor(Protocol):
    """A cache that may hold the answer."""

    name: str

    def evict(self, tenant: str, session_id: str, event_id: str) -> bool:
        """Forget the answer that came from this event or was given to it, at once; whether there was one."""


class Effect(msgspec.Struct, frozen=True):
    """What a feedback event does."""

    state: SessionState | None
    """The session afterwards; None leaves it as it is."""
    data: dict[str, Any]
    """Told in the acknowledgement."""


KEPT = frozenset({"model", "cache", "semantic_cache"})
"""Outcomes whose answer a cache may hold."""

UNKNOWN = Effect(None, {"found": False})
"""Nothing of that id was answered in this session, or too long ago: nothing is changed."""


class FeedbackDesk:
    """Takes complaints, one at a time and in the session's order."""

    def __init__(self, evictors: tuple[Evictor, ...], offer: Callable[[Review], bool]) -> None:
        """`offer` takes a review for people at once, and says whether it did."""
        self._evictors = evictors
        self._offer = offer
        self._same = SameAnswers()

    def note(self, event: InteractionEvent, given: Given) -> None:
        """This event was given this answer: when it is called wrong, so is the same one in every cache."""
        if self._evictors and given.outcome in KEPT:
            self._same.note((event.tenant, event.session_id, event.event_id), event.text or "", given.text)

    def take(self, event: InteractionEvent, state: SessionState, kept: KeptAnswer | None, *, now_ms: int) -> Effect:
        """Do what `event` asks for; `kept` is the answer to the event it means, while that is still known."""
        if event.ref is None or (kept is None and all(turn.event_id != event.ref for turn in state.turns)):
            return UNKNOWN
        verdict = verdict_of(event)
        marked, is_marked = sessions.dispute_turn(state, event.ref, verdict)
        evicted = self._evict(event, state, event.ref, kept)
        handed = self._offer(_review(event, event.ref, verdict, state, kept, now_ms))
        return Effect(marked if is_marked else None, {"found": True, "verdict": verdict, "marked": is_marked, "evicted": evicted, "handed": handed})

    def _evict(self, event: InteractionEvent, state: SessionState, ref: str, kept: KeptAnswer | None) -> int:
        """How many caches had the answer."""
        turn = next((turn for turn in state.turns if turn.event_id == ref), None)
        answer = str(_read_response(kept.value).get("text", "")) if kept is not None else (turn.reply if turn is not None else "")
        events = self._same.of((event.tenant, event.session_id, ref), turn.user if turn is not None else "", answer)
        evicted = 0
        for cache in self._evictors:
            try:
                evicted += sum(cache.evict(*one) for one in events) > 0
            except Exception:  # the edge of one cache: the others must let go of the answer all the same
                log.exception("a cache could not let go of an answer", cache=cache.name)
        return evicted


def verdict_of(event: InteractionEvent) -> Verdict:
    """`unsafe` when the text or the metadata's `verdict` says so; everything else a person complains of is `wrong`."""
    said = {(event.text or "").strip().casefold(), event.metadata.get("verdict", "").strip().casefold()}
    return "unsafe" if "unsafe" in said else "wrong"


def _review(event: InteractionEvent, ref: str, verdict: Verdict, state: SessionState, kept: KeptAnswer | None, now_ms: int) -> Review:
    """With texts only where this feedback consents to history being kept: a review topic is a history."""
    turn = next((turn for turn in state.turns if turn.event_id == ref), None)
    response = {} if kept is None else _read_response(kept.value)
    may_tell = event.consent.store_history
    answered = response.get("text") or (turn.reply if turn is not None else None)
    outcome = kept.outcome if kept is not None else (turn.outcome if turn is not None else "unknown")
    return Review(
        at_ms=now_ms,
        tenant=event.tenant,
        session_id=event.session_id,
        event_id=event.event_id,
        ref=ref,
        verdict=verdict,
        outcome=outcome,
        reason=None if kept is None else kept.reason,
        model=_model_of(response),
        response_id=response_id(event.tenant, event.session_id, ref),
        said=turn.user if turn is not None and may_tell else None,
        answered=answered if may_tell else None,
    )


def _read_response(value: bytes) -> dict[str, Any]:
    """The kept bytes as a map; a release long past may have written what no longer reads, and the complaint counts all the same."""
    try:
        response: dict[str, Any] = (msgspec.json if value[:1] == b"{" else msgspec.msgpack).decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return response


def _model_of(response: dict[str, Any]) -> ModelRef | None:
    model = response.get("model")
    if not isinstance(model, dict):
        return None
    return ModelRef(str(model.get("name", "")), str(model.get("version", "")))
