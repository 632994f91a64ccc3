"""What one event at the head of its line is answered with: repeats, gates, kinds, then the ladder; nothing is written here."""

from __future__ import annotations

import time
import zlib
from typing import Any, assert_never

import msgspec

from agents.answers import Stamps
from agents.context import sessions
from agents.context.learning import event_time_ms, find_facts, known_facts, line_of_facts, with_facts
from agents.context.prompt import Prompt
from agents.context.state_schema import find_wrong
from agents.crowding import Crowding
from agents.feedback import FeedbackDesk
from agents.ladder import Given, Question, Walk
from agents.lines import Inflight
from agents.scenarios import Plan, Scenarios
from agents.store import SessionStore
from schemas.audit import AuditAction
from schemas.dead_letters import Undecodable
from schemas.deadline import Clock
from schemas.events import InteractionEvent
from schemas.facts import Fact, Facts, dump_facts, load_facts
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
    audit_reason: str | None = None
    """What the audit record says beside the act; None: the answer's own reason."""


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

    def __init__(self, settings: Settings, store: SessionStore, scenarios: Scenarios, feedback: FeedbackDesk, clock: Clock, crowding: Crowding) -> None:
        self._settings = settings
        self._store = store
        self._scenarios = scenarios
        self._feedback = feedback
        self._clock = clock
        self._crowding = crowding

    async def decide(self, inflight: Inflight, event: InteractionEvent) -> Decision:
        """The answer to `event`, in its budget."""
        before = self.repeated(inflight, event)
        if before is not None:
            return before
        stamps = Stamps(inflight)
        plan = self._scenarios.of(event.scenario)
        stamp = self._stamp(inflight, event)
        state = self._enter(inflight, event, stamp)
        merged = self._merge(state, event, plan, stamp)
        if isinstance(merged, Undecodable):
            return merged
        inflight.default_text = plan.defaults.render(self._locale(event), merged.state)
        stamps.short()
        refusal = self._gate(event, inflight)
        stamps.safety_in_ended = time.monotonic()
        if refusal is not None:
            stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
            return Reply(refusal, (), stamps, self._with_turn(merged, event, refusal), AUDITED.get(refusal.reason))
        if event.kind == "message":
            return await self._take_message(inflight, event, merged, stamps, plan, stamp)
        if event.kind == "feedback":
            return self._take_feedback(inflight, event, merged, stamps)
        return self._acknowledge(event, state, merged, stamps, stamp)

    def repeated(self, inflight: Inflight, event: InteractionEvent) -> Repeat | Undecodable | None:
        """A known id: the kept bytes for the same event, a conflict for another one."""
        kept = self._store.kept(inflight, event)
        if kept is None:
            return None
        if kept.digest != event.digest():
            return Undecodable("conflict", "another event was answered under this event_id")
        return Repeat(kept)

    def expired(self, inflight: Inflight, event: InteractionEvent) -> Decision:
        """The short lane: no prompt and no rung, the default at once; what the event says of state and person counts all the same."""
        before = self.repeated(inflight, event)
        if before is not None:
            return before
        stamps = Stamps(inflight)
        stamps.short()
        plan = self._scenarios.of(event.scenario)
        stamp = self._stamp(inflight, event)
        state = self._enter(inflight, event, stamp)
        merged = self._merge(state, event, plan, stamp)
        if isinstance(merged, Undecodable):
            return merged
        if event.consent.ai_reply:
            holds, _ = find_facts(merged, event, self._locale(event), self._scenarios.slots, stamp)
            merged = with_facts(merged, holds, self._scenarios.slots)
        text = plan.defaults.render(self._locale(event), merged.state)
        reason: Reason = "expired" if inflight.deadline.expired else "deadline"
        why = "expired on arrival" if reason == "expired" else "its time ran out while it waited in the worker"
        given = Given("default", text, reason=reason)
        return Reply(given, (Rung("default", "answered", 0.0, why),), stamps, self._with_turn(merged, event, given))

    def _stamp(self, inflight: Inflight, event: InteractionEvent) -> sessions.Stamp:
        """The event's time and place: what decides which of two writes is the later one."""
        sent = inflight.source.message.timestamp
        record_ms = -1 if sent is None else round(sent * 1000)
        return event_time_ms(event.occurred_at_ms, record_ms, inflight.deadline.arrived_at_ms), inflight.offset

    def _enter(self, inflight: Inflight, event: InteractionEvent, stamp: sessions.Stamp) -> SessionState:
        """The session as this event finds it: after a long silence in a new context, which `rungs` shows."""
        state, is_new = sessions.see_event(self._store.session(inflight), stamp[0], self._settings.session)
        if is_new:
            inflight.notes.append(Rung("session", "changed", 0.0, f"idle for more than {self._settings.session.idle_s:g} s: context {state.context}"))
        return state

    def _merge(self, state: SessionState, event: InteractionEvent, plan: Plan, stamp: sessions.Stamp) -> SessionState | Undecodable:
        """The session with the event's `state`; what must not become of it is a dead letter."""
        replaces = event.kind == "context" and event.metadata.get("state") == "replace"
        if not event.state and not replaces:
            return state
        merged = sessions.merge_state(state, event.state, self._settings.limits, stamp, replaces=replaces)
        if merged is None:
            limits = self._settings.limits
            why = f"above {limits.state_bytes} bytes (limits.state_bytes), or with its keys' times above what limits.session_bytes leaves for it"
            return Undecodable("invalid_field", f"state: merged into the session it is {why}")
        wrong = find_wrong(merged.state, plan.scenario.state_schema)
        if wrong is not None:
            return Undecodable("invalid_field", f"state: {wrong} (state_schema of the scenario)")
        return merged

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

    async def _take_message(self, inflight: Inflight, event: InteractionEvent, state: SessionState, stamps: Stamps, plan: Plan, stamp: sessions.Stamp) -> Reply:
        """Learn what the message states, then answer it; one that is a decision is not answered but asked back."""
        slots = self._scenarios.slots
        holds, waits = find_facts(state, event, self._locale(event), slots, stamp)
        if plan.is_decision(event.text or ""):
            stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
            return self._ask_back(event, state, stamps, (*holds, *waits))
        state = with_facts(state, holds, slots)
        if waits:
            stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
            return self._ask_back(event, state, stamps, waits)
        return await self._ask(inflight, event, state, stamps, plan, stamp)

    async def _ask(self, inflight: Inflight, event: InteractionEvent, state: SessionState, stamps: Stamps, plan: Plan, stamp: sessions.Stamp) -> Reply:
        walk = await plan.ladder.walk(self._question(event, state, plan, stamp), inflight, inflight.default_text)
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        given = walk.given
        stamps.model = given.times
        if inflight.cancelled:
            given = Given("refused", "", reason="cancelled", times=given.times)
            wasted = (*walk.wasted, *(((walk.given.model.name, walk.given.usage.completion_tokens),) if walk.given.model else ()))
            return Reply(given, walk.rungs, stamps, self._with_turn(state, event, given), "cancelled", wasted)
        if proposes_decision(given, plan.scenario.decision_field):
            return self._ask_back(event, state, stamps, (), proposed=given, walk=walk)
        self._feedback.note(event, given)
        return Reply(given, walk.rungs, stamps, self._with_turn(state, event, given), wasted=walk.wasted)

    def _question(self, event: InteractionEvent, state: SessionState, plan: Plan, stamp: sessions.Stamp) -> Question:
        options = event.answer
        shown, slots = sessions.undisputed(state), self._scenarios.slots
        facts = known_facts(state, self._store.person(event), slots)
        prompt = Prompt(event.text or "", shown, plan.session, line_of_facts(facts, self._locale(event), slots))
        constraint = None
        if options.choice is not None or options.regex is not None or options.json_schema is not None:
            schema = None if options.json_schema is None else msgspec.json.encode(options.json_schema).decode()
            constraint = Constraint(options.choice, options.regex, schema)
        return Question(
            event=event,
            state=shown,
            messages=prompt.messages(),
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            stop=options.stop,
            constraint=constraint,
            locale=self._locale(event),
            tenant=event.tenant,
            affinity=zlib.crc32(f"{event.tenant}/{event.session_id}".encode()),
            scenario=plan.scenario,
            facts=facts,
            at_ms=stamp[0],
            shorter=prompt.shorter,
            behind_s=self._crowding.behind_s,
        )

    def _ask_back(
        self,
        event: InteractionEvent,
        state: SessionState,
        stamps: Stamps,
        waiting: tuple[Fact, ...],
        *,
        proposed: Given | None = None,
        walk: Walk | None = None,
    ) -> Reply:
        """The decision waits for its confirm: the person's own words, or what the model proposes to do."""
        said = event.text or ""
        decided = said if proposed is None else proposed.text
        facts = dump_facts(Facts(waiting))
        asked, expires = sessions.ask_confirmation(state, event, now_ms=self._clock.wall_ms(), settings=self._settings.session, text=decided, facts=facts)
        text = text_for_locale(self._settings.session.confirm_text, self._locale(event)) + decided
        data: dict[str, Any] = {"expires_at_ms": expires}
        given = Given("confirm_request", text, data=data)
        if proposed is not None and isinstance(proposed.data, dict):
            given = msgspec.structs.replace(proposed, outcome="confirm_request", text=text, data={**proposed.data, **data}, reason=None)
        rungs, wasted = (walk.rungs, walk.wasted) if walk is not None else ((), ())
        return Reply(given, rungs, stamps, self._with_turn(asked, event, given), "confirm_requested", wasted)

    def _take_feedback(self, inflight: Inflight, event: InteractionEvent, state: SessionState, stamps: Stamps) -> Reply:
        kept = None if event.ref is None else self._store.kept_under(inflight, event.ref)
        effect = self._feedback.take(event, state, kept, now_ms=self._clock.wall_ms())
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        audit: AuditAction | None = "feedback" if effect.data["found"] else None
        return Reply(Given("ack", "", data=effect.data), (), stamps, effect.state, audit, audit_reason=effect.data.get("verdict"))

    def _acknowledge(self, event: InteractionEvent, before: SessionState, state: SessionState, stamps: Stamps, stamp: sessions.Stamp) -> Reply:
        """What is no message: `before` is the session without the event's own `state`."""
        stamps.ladder_ended = stamps.safety_out_ended = time.monotonic()
        kind = event.kind
        match kind:
            case "decision":
                holds, waits = find_facts(state, event, self._locale(event), self._scenarios.slots, stamp)
                return self._ask_back(event, state, stamps, (*holds, *waits))
            case "confirm":
                return self._take_confirm(event, state, stamps)
            case "context":
                data = {"version": state.state_version, "stale": list(sessions.stale_keys(before, event.state, stamp))}
                return Reply(Given("ack", "", data=data), (), stamps, state, "state_changed")
            case "reset":
                after = sessions.reset(state)
                return Reply(Given("ack", "", data={"reset": True, "context": after.context, "turns": len(state.turns)}), (), stamps, after, "session_reset")
            case "cancel":
                return self._take_cancel(event, state, stamps)
            case "message" | "feedback":
                msg = f"a {kind} is answered elsewhere"
                raise AssertionError(msg)
            case _:
                assert_never(kind)

    def _take_confirm(self, event: InteractionEvent, state: SessionState, stamps: Stamps) -> Reply:
        """Only the first confirm in time, of a decision of this session, changes anything; every other one is told why not."""
        after, came_to = sessions.confirm(state, event.ref, accept=event.accept, now_ms=self._clock.wall_ms())
        if came_to == "confirmed":
            waited = load_facts(state.waiting_facts.get(event.ref or "", {}))
            after = with_facts(after, waited.facts, self._scenarios.slots)
            return Reply(Given("ack", "", data={"confirmed": True}), (), stamps, after, "confirmed")
        audit: AuditAction = "declined" if came_to == "declined" else "confirm_ignored"
        return Reply(Given("ack", "", data={"confirmed": False, "why": came_to}), (), stamps, after, audit)

    def _take_cancel(self, event: InteractionEvent, state: SessionState, stamps: Stamps) -> Reply:
        """An event in flight was withdrawn on arrival; what is left is a decision that waits: nobody who cancelled it means it any more."""
        after, came_to = sessions.confirm(state, event.ref, accept=False, now_ms=self._clock.wall_ms())
        if came_to != "declined":
            return Reply(Given("ack", ""), (), stamps, None)
        return Reply(Given("ack", "", data={"declined": True}), (), stamps, after, "declined")

    def _locale(self, event: InteractionEvent) -> str:
        return event.locale or self._settings.session.locale

    def _with_turn(self, state: SessionState, event: InteractionEvent, given: Given) -> SessionState:
        reply = given.text if given.outcome in FROM_MODEL else ""
        said = (event.text or "") if event.consent.ai_reply else ""
        turn = Turn(event.event_id, self._clock.wall_ms(), said, reply, given.outcome)
        return sessions.remember_turn(state, turn, self._settings.session)


def proposes_decision(given: Given, field: str) -> bool:
    """Whether a model's answer in a given form proposes something that needs a confirm."""
    return bool(field) and given.outcome in FROM_MODEL and isinstance(given.data, dict) and bool(given.data.get(field))
