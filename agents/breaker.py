"""When a model is left alone for a while and how it comes back: a circuit breaker, pure, moments are handed in; who asks the model is `model_rung`.

What opens it says something about the model: answers that failed because its engine was lost or silent, and answers that it
was admitted for and could not give in time. What a person can cause with one event (an input that is refused, an error on
one prompt, a cancel, a due that is pulled forward) says nothing about the model: otherwise one person's events could take it
from all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from schemas.settings_ladder import Breaker as BreakerSettings

RECENT_S = 60.0
"""Older answers do not count: what a quiet night's few were like must not shut a model out in the morning."""

BreakerState = Literal["closed", "open", "half_open"]
"""What the state is called outside."""

Verdict = Literal["served", "failed", "late", "mute"]
"""What an attempt said about the model: it answered; its engine was lost or silent; it was admitted and its time ran out for
nothing; or nothing at all."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Everybody may ask."""

    failures: int = 0
    """In a row."""


@dataclass(frozen=True, slots=True)
class Open:
    """Nobody may ask before `until` (monotonic seconds; infinite while there is no engine)."""

    until: float
    pause_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """Leave to ask the model; to be handed back with `leave`, whatever happens."""

    began: float


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """One at a time may try: `probe`, when it is doing so. `pause_s` is how long it was open before."""

    pause_s: float
    probe: Pass | None = None


State = Closed | Open | HalfOpen


@dataclass(frozen=True, slots=True)
class Shut:
    """No leave. `wait_s` until somebody may try again: 0 while one is trying, infinite while there is no engine."""

    wait_s: float


def _ignore(_: BreakerState) -> None:
    """Nobody looks."""


class Breaker:
    """One a model, shared by all ladders that use it. Memory: `breaker.window` entries."""

    def __init__(self, settings: BreakerSettings, on_state: Callable[[BreakerState], None] = _ignore) -> None:
        self._settings = settings
        self._on_state = on_state
        self._state: State = Closed()
        self._recent: deque[tuple[float, bool]] = deque(maxlen=settings.window)
        """When an admitted answer ended, and whether it came to nothing."""
        self._failed_at = float("-inf")
        self._generation = 0

    @property
    def state(self) -> BreakerState:
        """For figures; an open one whose time is over is still `open` until somebody tries."""
        match self._state:
            case Closed():
                return "closed"
            case Open():
                return "open"
            case HalfOpen():
                return "half_open"
            case _:
                assert_never(self._state)

    def wait_s(self, now: float) -> float | None:
        """As `Shut.wait_s`, or None when one who asked now would be let through; changes nothing."""
        match self._state:
            case Closed():
                return None
            case Open(until=until):
                return until - now if until > now else None
            case HalfOpen(probe=probe):
                return None if probe is None else 0.0
            case _:
                assert_never(self._state)

    def enter(self, now: float) -> Pass | Shut:
        """Leave to ask the model, or how long there is none."""
        wait = self.wait_s(now)
        if wait is not None:
            return Shut(wait)
        if isinstance(self._state, Closed):
            return Pass(now)
        probe = Pass(now)
        self._become(HalfOpen(self._state.pause_s, probe))
        return probe

    def leave(self, leave: Pass, verdict: Verdict, now: float) -> None:
        """An attempt is over. Of those that began before it opened nothing is learnt once it is open: what decides then is the probe."""
        state = self._state
        match state:
            case Closed():
                self._count(state, leave, verdict, now)
            case HalfOpen(probe=probe) if leave is probe:
                self._judge_probe(state, verdict, now)
            case Open() | HalfOpen():
                return
            case _:
                assert_never(state)

    def see_engine(self, generation: int | None) -> None:
        """Which engine serves the model now, by the number of its restarts; None: there is none, and it is open until there is.

        What the old engine did says nothing about a new one, so that one is tried at once.
        """
        state = self._state
        if generation is None:
            if not (isinstance(state, Open) and state.until == float("inf")):
                self._become(Open(float("inf"), self._pause_s()))
            return
        is_new = generation != self._generation
        self._generation = generation
        if isinstance(state, Open) and (is_new or state.until == float("inf")):
            self._become(HalfOpen(state.pause_s))

    def _count(self, state: Closed, leave: Pass, verdict: Verdict, now: float) -> None:
        if verdict == "mute":
            return
        if verdict == "failed":
            if leave.began < self._failed_at:
                return  # everything in a batch fails with its engine: one incident, not eight in a row
            self._failed_at = now
        while self._recent and self._recent[0][0] < now - RECENT_S:
            self._recent.popleft()
        self._recent.append((now, verdict != "served"))
        failures = {"served": 0, "failed": state.failures + 1, "late": state.failures}[verdict]
        if failures >= self._settings.failures or self._too_many_in_vain():
            self._become(Open(now + self._pause_s(), self._pause_s()))
        else:
            self._state = replace(state, failures=failures)

    def _too_many_in_vain(self) -> bool:
        """Half a window is needed: a share of two or three answers is no share."""
        vain = sum(in_vain for _, in_vain in self._recent)
        return 2 * len(self._recent) >= self._settings.window and vain >= self._settings.late_share * len(self._recent)

    def _judge_probe(self, state: HalfOpen, verdict: Verdict, now: float) -> None:
        match verdict:
            case "served":
                self._become(Closed())
            case "failed" | "late":
                pause = min(2 * state.pause_s, self._longest_s())
                self._become(Open(now + pause, pause))
            case "mute":
                self._state = HalfOpen(state.pause_s)  # it was no test of the model: the next event is
            case _:
                assert_never(verdict)

    def _pause_s(self) -> float:
        """How long this opening lasts: the first one's time, or what the vain tries have made of it."""
        return min(self._settings.cooldown_ms / 1000, self._longest_s()) if isinstance(self._state, Closed) else self._state.pause_s

    def _longest_s(self) -> float:
        return self._settings.max_cooldown_ms / 1000

    def _become(self, state: State) -> None:
        before = self.state
        self._state = state
        if isinstance(state, Closed | Open):
            self._recent.clear()
        if self.state != before:
            self._on_state(self.state)
