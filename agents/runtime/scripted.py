"""An engine that says a given text at a given pace, for users' tests and ours; same protocol and process as the real one in `openvino`.

What it obeys in the last user text: `[[delay=1000]]` waits that long (ms) before it begins, `[[tokens=8]]` says eight tokens,
`[[say=…]]` says that text instead, `[[raise]]` fails the request, `[[exit]]` ends the process, `[[hang]]` stops the step loop.
`finish_reason` is `length` when `max_tokens` ended the text, `stop` when it ended by itself (`say`, `tokens`, a choice, a stop string);
the plain text is endless, so it ends by `length`. A delay shows as prefill time. `regex` and `json_schema` are not enforced: use `say`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat

from agents.runtime.backend import Ended, Loaded, StepResult
from agents.runtime.stops import StopCutter
from schemas.inference import Delta, Failed, FinishReason, Generate, Progress
from schemas.settings import Model

CONTEXT_TOKENS = 1_000_000
"""Nothing is refused for its length: no memory grows with the prompt here."""

TOKENS_AT_ONCE = 64
"""With token_ms = 0 one step says up to this many tokens, so that an instant answer is one frame and not one a word; an endless one still yields to cancels."""

_COMMAND = re.compile(r"\[\[(?:(?P<bare>raise|exit|hang)|(?P<number>delay|tokens)=(?P<value>\d{1,9})|say=(?P<say>.*?))\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Script:
    """What a prompt asks for; None where it says nothing."""

    delay_s: float = 0.0
    tokens: int | None = None
    say: str | None = None
    act: str | None = None


def read_script(request: Generate) -> Script:
    """The commands in the last user text; the first of each kind counts."""
    text = next((message.text for message in reversed(request.messages) if message.role == "user"), "")
    found: dict[str, str] = {}
    for match in _COMMAND.finditer(text):
        if match["bare"]:
            found.setdefault("act", match["bare"])
        elif match["number"]:
            found.setdefault(match["number"], match["value"])
        else:
            found.setdefault("say", match["say"])
    tokens = found.get("tokens")
    return Script(int(found.get("delay", "0")) / 1000, None if tokens is None else int(tokens), found.get("say"), found.get("act"))


def split_tokens(text: str) -> list[str]:
    """Words with the space before them; joined they are `text` again."""
    return re.findall(r"\s*\S+(?:\s+$)?", text) or ([text] if text else [])


def endless_tokens(text: str) -> Iterator[str]:
    """The words of `text` again and again, a space between the rounds."""
    words = split_tokens(text.strip())
    again = [words[0] if words[0][0].isspace() else f" {words[0]}", *words[1:]] if words else [" "]
    return chain(words, chain.from_iterable(repeat(again)))


@dataclass(slots=True, eq=False)
class _Run:
    request: Generate
    script: Script
    starts_at: float
    prompt_tokens: int
    prefill_left: int
    words: Iterator[str]
    cutter: StopCutter
    said: int = 0
    delivered: int = 0


@dataclass(slots=True)
class _Plan:
    ends_at: float
    seconds: float
    tokens: int
    reading: list[tuple[_Run, int]]
    speaking: list[_Run]


class ScriptedBackend:
    """Speaks by the clock: a step lasts `token_ms` plus what it reads, and the process stays responsive meanwhile."""

    def __init__(self, model: Model, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._delayed: list[_Run] = []
        self._running: list[_Run] = []
        self._plan: _Plan | None = None

    def load(self) -> Loaded:
        """Nothing to read."""
        return Loaded(CONTEXT_TOKENS, 0.0, 0.0)

    @property
    def room(self) -> int:
        """Places left in the batch; those who wait for their delay take none until it is over."""
        now = self._clock()
        return self._model.max_batch - len(self._running) - sum(run.starts_at <= now for run in self._delayed)

    @property
    def step_at(self) -> float | None:
        """The end of the step that runs, else at once when there is work, else the nearest delay's end."""
        if self._plan is not None:
            return self._plan.ends_at
        if self._running:
            return 0.0
        return min((run.starts_at for run in self._delayed), default=None)

    def progress(self) -> tuple[Progress, ...]:
        """How far each request is, delayed ones included."""
        return tuple(Progress(run.request.id, run.prefill_left, run.said) for run in chain(self._running, self._delayed))

    def add(self, request: Generate) -> None:
        """Take a request; its commands act when it begins."""
        script = read_script(request)
        words = sum(len(message.text.split()) for message in request.messages)
        run = _Run(request, script, self._clock() + script.delay_s, words, words, self._words(request, script), StopCutter(request.stop))
        if script.delay_s:
            self._delayed.append(run)
        else:
            self._running.append(run)

    def end(self, request_id: int, reason: FinishReason) -> Ended:
        """Forget a request and tell how far it came."""
        run = next(run for run in chain(self._running, self._delayed) if run.request.id == request_id)
        return self._ended(run, reason, [])

    def step(self) -> StepResult | None:
        """Begin a step, or finish the one whose time has come."""
        now = self._clock()
        if self._plan is None:
            failed = self._let_in(now)
            self._plan = self._planned(now) if self._running else None
            if failed:
                return StepResult(0.0, 0, 0, failed=tuple(failed))
        if self._plan is None:
            return None
        if now < self._plan.ends_at:
            return None
        plan, self._plan = self._plan, None
        return self._finished(plan)

    def _words(self, request: Generate, script: Script) -> Iterator[str]:
        choice = request.constraint.choice if request.constraint else None
        fixed = script.say if script.say is not None else choice[0] if choice else None
        words = endless_tokens(self._model.text) if fixed is None else iter(split_tokens(fixed))
        return words if script.tokens is None else islice(words, script.tokens)

    def _let_in(self, now: float) -> list[Failed]:
        places = self._model.max_batch - len(self._running)
        for run in [run for run in self._delayed if run.starts_at <= now][:places]:
            self._delayed.remove(run)
            self._running.append(run)
        failed: list[Failed] = []
        for run in [run for run in self._running if run.script.act]:
            if run.script.act == "exit":
                os._exit(1)
            while run.script.act == "hang":
                time.sleep(3600)
            self._running.remove(run)
            failed.append(Failed(run.request.id, "raised by the script"))
        return failed

    def _planned(self, now: float) -> _Plan:
        budget = self._model.prefill_chunk if self._model.prefill_ms_per_token else sys.maxsize
        reading: list[tuple[_Run, int]] = []
        speaking: list[_Run] = []
        for run in self._running:
            size = min(budget, run.prefill_left)
            budget -= size
            reading.append((run, size))
            if size == run.prefill_left:
                speaking.append(run)
        tokens = sum(size for _, size in reading)
        seconds = (self._model.token_ms * bool(speaking) + self._model.prefill_ms_per_token * tokens) / 1000
        return _Plan(now + seconds, seconds, tokens, reading, speaking)

    def _finished(self, plan: _Plan) -> StepResult:
        deltas: list[Delta] = []
        first: list[int] = []
        ended: list[Ended] = []
        failed: list[Failed] = []
        for run, size in plan.reading:
            run.prefill_left -= size
        for run in plan.speaking:
            if run not in self._running:
                continue
            if run.said == 0:
                first.append(run.request.id)
            reason = self._said(run, deltas)
            if reason is None:
                continue
            if run.said == 0:
                self._running.remove(run)
                failed.append(Failed(run.request.id, "empty"))
            else:
                ended.append(self._ended(run, reason, deltas))
        return StepResult(plan.seconds, len(plan.speaking), plan.tokens, tuple(deltas), tuple(first), tuple(ended), tuple(failed))

    def _said(self, run: _Run, deltas: list[Delta]) -> FinishReason | None:
        for _ in range(1 if self._model.token_ms else TOKENS_AT_ONCE):
            word = next(run.words, None)
            if word is None:
                return "stop"
            run.said += 1
            out = run.cutter.feed(word)
            self._deliver(run, out.text, out.tokens, deltas)
            if out.stopped:
                return "stop"
            if run.said >= run.request.max_tokens:
                return self._at_limit(run)
        return None

    def _at_limit(self, run: _Run) -> FinishReason:
        return "stop" if next(run.words, None) is None else "length"

    def _deliver(self, run: _Run, text: str, tokens: int, deltas: list[Delta]) -> None:
        run.delivered += tokens
        if text:
            deltas.append(Delta(run.request.id, text, tokens))

    def _ended(self, run: _Run, reason: FinishReason, deltas: list[Delta]) -> Ended:
        (self._running if run in self._running else self._delayed).remove(run)
        rest = run.cutter.flush()
        run.delivered += rest.tokens
        tail = Delta(run.request.id, rest.text, rest.tokens) if rest.text else None
        return Ended(run.request.id, reason, run.prompt_tokens, 0, run.delivered, tail)
