"""What one event at the head of its line is answered with: repeats, gates, kinds, then the ladder; nothing is written here."""

from __future__ import annotations

import time
import zlib
from typing import assert_never

import msgspec

from agents.answers import Stamps
from agents.context import sessions
from agents.context.prompt import build_prompt
from agents.feedback import FeedbackDesk
from agents.ladder import Given, Question
from agents.lines import Inflight
from agents.scenarios import Plan, Scenarios
from agents.store import SessionStore
from schemas.audit import AuditAction
from schemas.dead_letters import Undecodable
from schemas.deadline import Clock
from schemas.events import InteractionEvent
from schemas.inference import Constraint
from schemas.responses import Reason, Rung
from schemas.session import KeptAnswer, SessionState, Turn
from schemas.settings import Settings, text_for_locale


class Reply(msgspec.Struct, frozen=True):
    """A new answer and what it changes."""

    given: Given
    rungs: tuple[Rung, ...]
    stamps: Stamps
    state: SessionState | None
    """The session afterwards; None leaves it as it is."""
    audit: AuditAction | None = None
    wasted: tuple[tuple[str, int], ...] = ()
    """Tokens made and not delivered, by model."""


class Repeat(msgspec.Struct, frozen=True):
    """The event was answered before: the same bytes again."""

    answer: KeptAnswer


Decision = Reply | Repeat | Undecodable

FROM_MODEL = frozenset({"model", "partial", "fallback_model", "cache", "semantic_cache", "rule"})
"""Outcomes whose text a later prompt may show as our own words: a default's apology would teach the model to apologise."""

AUDITED: dict[Reason | None, AuditAction] = {"no_consent": "refused", "cancelled": "cancelled"}
"""Refusals that somebody may have to account for."""


class Decider:
    """Decides; the caller settles."""

    def __init__(self, settings: Settings, store: SessionStore, scenarios: Scenarios, feedback: FeedbackDesk, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._scenarios = scenarios
        self._feedback = feedback
        self._clock = clock

    async def decide(self, inflight: Inflight, event: InteractionEvent) -> Decision:
        """The answer to `event`, in its budget."""
        before = self.repeated(inflight, event)
        if before is not None:
            return before
        stamps = Stamps(inflight)
        state = self._store.session(inflight)
        merged = sessions.merge_state(state, event.state, self._settings.limits)
        if merged is None:
            return Undecodable("invalid_field", f"state: merged into the session it is above {self._settings.limits.state_bytes} bytes (limits.state_bytes)")
        plan = self._scenarios.of(event.scenario)
        inflight.default_text = plan.defaults.render(self._locale(event), merged.state)
        stamps.short()
        refusal = self._gate(event, inflight)
        stamps.safety_in_ended = time.monotonic()
        if refusal is not None:
            stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
            return Reply(refusal, (), stamps, self._with_turn(merged, event, refusal), AUDITED.get(refusal.reason))
        if event.kind == "message":
            return await self._ask(inflight, event, merged, stamps, plan)
        if event.kind == "feedback":
            return self._take_feedback(inflight, event, merged, stamps)
        return self._acknowledge(event, merged, stamps)

    def repeated(self, inflight: Inflight, event: InteractionEvent) -> Repeat | Undecodable | None:
        """A known id: the kept bytes for the same event, a conflict for another one."""
        kept = self._store.kept(inflight, event)
        if kept is None:
            return None
        if kept.digest != event.digest():
            return Undecodable("conflict", "another event was answered under this event_id")
        return Repeat(kept)

    def expired(self, inflight: Inflight, event: InteractionEvent) -> Decision:
        """The short lane: no gates, no prompt, the default at once."""
        before = self.repeated(inflight, event)
        if before is not None:
            return before
        stamps = Stamps(inflight)
        stamps.short()
        state = self._store.session(inflight)
        merged = sessions.merge_state(state, event.state, self._settings.limits) or state
        text = self._scenarios.of(event.scenario).defaults.render(self._locale(event), merged.state)
        given = Given("default", text, reason="expired")
        return Reply(given, (Rung("default", "answered", 0.0, "expired on arrival"),), stamps, self._with_turn(merged, event, given))

    def _gate(self, event: InteractionEvent, inflight: Inflight) -> Given | None:
        if inflight.cancelled:
            return Given("refused", "", reason="cancelled")
        if event.kind not in ("message", "decision"):
            return None
        if not event.consent.ai_reply:
            return Given("refused", "", reason="no_consent")
        if not (event.text or "").strip():
            return Given("default", inflight.default_text, reason="empty_input")
        return None

    async def _ask(self, inflight: Inflight, event: InteractionEvent, state: SessionState, stamps: Stamps, plan: Plan) -> Reply:
        walk = await plan.ladder.walk(self._question(event, state, plan), inflight, inflight.default_text)
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        given = walk.given
        stamps.model = given.times
        if inflight.cancelled:
            given = Given("refused", "", reason="cancelled", times=given.times)
            wasted = (*walk.wasted, *(((walk.given.model.name, walk.given.usage.completion_tokens),) if walk.given.model else ()))
            return Reply(given, walk.rungs, stamps, self._with_turn(state, event, given), "cancelled", wasted)
        self._feedback.note(event, given)
        return Reply(given, walk.rungs, stamps, self._with_turn(state, event, given), wasted=walk.wasted)

    def _question(self, event: InteractionEvent, state: SessionState, plan: Plan) -> Question:
        options = event.answer
        shown = sessions.undisputed(state)
        constraint = None
        if options.choice is not None or options.regex is not None or options.json_schema is not None:
            schema = None if options.json_schema is None else msgspec.json.encode(options.json_schema).decode()
            constraint = Constraint(options.choice, options.regex, schema)
        return Question(
            event=event,
            state=shown,
            messages=build_prompt(event.text or "", shown, plan.session),
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            stop=options.stop,
            constraint=constraint,
            locale=self._locale(event),
            tenant=event.tenant,
            affinity=zlib.crc32(f"{event.tenant}/{event.session_id}".encode()),
            scenario=plan.scenario,
        )

    def _take_feedback(self, inflight: Inflight, event: InteractionEvent, state: SessionState, stamps: Stamps) -> Reply:
        kept = None if event.ref is None else self._store.kept_under(inflight, event.ref)
        effect = self._feedback.take(event, state, kept, now_ms=self._clock.wall_ms())
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        return Reply(Given("ack", "", data=effect.data), (), stamps, effect.state, "feedback" if effect.data["found"] else None)

    def _acknowledge(self, event: InteractionEvent, state: SessionState, stamps: Stamps) -> Reply:
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        now_ms = self._clock.wall_ms()
        kind = event.kind
        match kind:
            case "decision":
                asked, expires = sessions.ask_confirmation(state, event, now_ms=now_ms, settings=self._settings.session)
                text = text_for_locale(self._settings.session.confirm_text, self._locale(event))
                given = Given("confirm_request", text + (event.text or ""), data={"expires_at_ms": expires})
                return Reply(given, (), stamps, self._with_turn(asked, event, given), "confirm_requested")
            case "confirm":
                after, met = sessions.confirm(state, event.ref, accept=event.accept, now_ms=now_ms)
                audit: AuditAction | None = None if not met else ("confirmed" if event.accept else "declined")
                return Reply(Given("ack", "", data={"confirmed": met and event.accept}), (), stamps, after, audit)
            case "context":
                return Reply(Given("ack", ""), (), stamps, state, "state_changed")
            case "reset":
                return Reply(Given("ack", ""), (), stamps, sessions.reset(state), "session_reset")
            case "cancel":
                return Reply(Given("ack", ""), (), stamps, None)
            case "message" | "feedback":
                msg = f"a {kind} is answered elsewhere"
                raise AssertionError(msg)
            case _:
                assert_never(kind)

    def _locale(self, event: InteractionEvent) -> str:
        return event.locale or self._settings.session.locale

    def _with_turn(self, state: SessionState, event: InteractionEvent, given: Given) -> SessionState:
        reply = given.text if given.outcome in FROM_MODEL else ""
        said = (event.text or "") if event.consent.ai_reply else ""
        turn = Turn(event.event_id, self._clock.wall_ms(), said, reply, given.outcome)
        return sessions.remember_turn(state, turn, self._settings.session)
