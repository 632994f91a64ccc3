"""The rung that gives an answer again to a question that means the same; the one for the very same question is `agents.cache.rung`."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

import msgspec

from agents.cache.key import MAX_ANSWER_CHARS, Identifier, Identity, ModelOf, repeats_hidden
from agents.cache.personal import holds_personal
from agents.ladder import Budget, Declined, Given, Question
from agents.semantic.encoder import Encoder, open_encoder
from agents.semantic.encoder_thread import Encoded, EncoderThread
from agents.semantic.index import Answer, Asked, Closed, EventKey, Hit, Indexes, Miss
from agents.semantic.language import is_chinese
from schemas.deadline import Clock
from schemas.settings import Settings

SemanticEvent = Literal["hit", "miss", "guarded", "skipped", "busy", "stored", "refused", "evicted"]
"""What happened, for the figures; `guarded` is a miss that only a guard kept from being a hit, `refused` an answer not kept."""

MAX_CHARS = 300
"""Longer texts are stories: no two mean the same. At this length guards take 2 ms, and 8 ms for a text made to be slow; the loop may run in between."""

FLOOR_S = 0.002
"""With less than this left the default is all that fits; what encoding takes beyond is measured by the ladder."""

MAX_OPEN = 10_000
"""Questions whose answer is awaited; more events than that are never in flight. The oldest is let go, and its answer not kept."""


class _Open(msgspec.Struct, frozen=True):
    question: Question
    """Held, so that no other question can have its identity meanwhile."""
    asked: Asked
    identity: Identity
    found: Hit | Closed | Miss


def count_nothing(_event: SemanticEvent) -> None:
    """For those who want no figures."""


def time_nothing(_seconds: float) -> None:
    """The same for encoding times."""


class SemanticCacheRung:
    """The semantic cache as a rung: off unless a scenario has a threshold."""

    name = label = "semantic_cache"
    floor_s = FLOOR_S

    def __init__(
        self,
        settings: Settings,
        model_of: ModelOf,
        clock: Clock,
        *,
        opens: Callable[[], Encoder] | None = None,
        count: Callable[[SemanticEvent], None] = count_nothing,
        observe: Callable[[float], None] = time_nothing,
    ) -> None:
        """`model_of` says what a `[[models]]` entry runs; `opens` stands in for the settings' encoder; `observe` is told encoding times in seconds."""
        own = self._settings = settings.semantic_cache
        self._identifier = Identifier(settings, model_of)
        self._clock = clock
        self._count = count
        self._observe = observe
        self._thread = EncoderThread(opens or (lambda: open_encoder(own.encoder)))
        self._indexes: Indexes | None = None
        self._open: OrderedDict[int, _Open] = OrderedDict()

    @property
    def entries(self) -> int:
        """Questions kept."""
        return 0 if self._indexes is None else len(self._indexes)

    @property
    def size_bytes(self) -> int:
        """Of them together, at most `semantic_cache.max_bytes`."""
        return 0 if self._indexes is None else self._indexes.size_bytes

    async def start(self) -> None:
        """Load the encoder.

        Raises:
            SetupError: it is not here or cannot be loaded.
        """
        await self._thread.start()
        encoder = self._thread.encoder
        if encoder is not None:
            self._indexes = self._new_indexes(encoder)

    def _new_indexes(self, encoder: Encoder) -> Indexes:
        own = self._settings
        return Indexes(encoder.size, entries=own.entries, indexes=own.indexes, max_bytes=own.max_bytes, same_words=encoder.same_words)

    async def stop(self) -> None:
        """Let go of the encoder; at most two seconds."""
        self._open.clear()
        await self._thread.stop()

    async def answer(self, question: Question, budget: Budget) -> Given | Declined:
        """A kept answer to a question that means the same; never waits longer than `semantic_cache.wait_ms`, nor for `budget.stop`."""
        threshold = question.scenario.semantic_cache.threshold
        ground = self._ground(question) if threshold is not None else "off for this scenario"
        if threshold is None or isinstance(ground, str) or self._indexes is None:
            self._count("skipped")
            return Declined("skipped", ground if isinstance(ground, str) else "not started", None)
        encoded = await self._encode(question.event.text or "", budget)
        if encoded is None:
            self._count("busy")
            return Declined("skipped", "the encoder is busy", None)
        text_language = "zh" if is_chinese(question.event.text or "") else ""
        place = (question.tenant, question.event.scenario, f"{_language(question.locale)}/{text_language}")
        asked = Asked(place, ground.key, encoded.signature, encoded.vector)
        found = self._indexes.search(asked, threshold, self._clock.monotonic() - self._settings.ttl_s)
        self._remember(question, _Open(question, asked, ground, found))
        return self._tell(found)

    def ended(self, question: Question, given: Given | None) -> None:
        """Keep what the model said, undegraded; note who was given what was kept."""
        opened = self._open.pop(id(question), None)
        if opened is None or opened.question is not question or given is None or self._indexes is None:
            return
        event = _event_key(question)
        writer = opened.identity.writer
        if given.outcome == "semantic_cache" and isinstance(opened.found, Hit):
            self._indexes.note_given(opened.found.entry, event)
        elif given.outcome == "model" and given.reason is None and not given.shortened and given.model == writer and isinstance(opened.found, Miss):
            if not opened.identity.is_pure or not _may_keep(question, given):
                self._count("refused")
                return
            now = self._clock.monotonic()
            answer = Answer(given.text, copy.deepcopy(given.data), given.finish_reason, writer)
            threshold = question.scenario.semantic_cache.threshold or 1.0
            kept = self._indexes.put(opened.asked, answer, event, now, threshold=threshold, since=now - self._settings.ttl_s)
            self._count("stored" if kept else "refused")

    def forget(self) -> None:
        """Drop every question and answer, marks of wrong ones included: what is asked next is answered by the model."""
        encoder = self._thread.encoder
        if self._indexes is not None and encoder is not None:
            self._indexes = self._new_indexes(encoder)

    def evict(self, event_id: str, tenant: str, session_id: str | None = None) -> int:
        """A person called the answer to this event wrong: forget it, whether it came from this event or was given to it; how many there were."""
        count = 0 if self._indexes is None else self._indexes.evict(tenant, event_id, session_id)
        for _ in range(count):
            self._count("evicted")
        return count

    def _ground(self, question: Question) -> Identity | str:
        """Digest of everything but the words; or in a few words why the question is not looked up.

        It is the exact cache's key of an empty text: tenant, scenario, model, policy, locale, options and context, by the same rules.
        """
        text = question.event.text or ""
        if not text.strip():
            return "no text"
        if len(text) > MAX_CHARS:
            return "too long a question"
        if holds_personal(text):
            return "personal data in the question"
        scenario = msgspec.structs.replace(question.scenario, cache=msgspec.structs.replace(question.scenario.cache, ttl_s=1.0))
        event = msgspec.structs.replace(question.event, text="")
        return self._identifier.identify(msgspec.structs.replace(question, event=event, scenario=scenario))

    async def _encode(self, text: str, budget: Budget) -> Encoded | None:
        job = self._thread.encode(text)
        if job is None:
            return None
        wait_s = min(self._settings.wait_ms / 1000, budget.stop_at - time.monotonic())
        try:
            await asyncio.wait((job, budget.stop), timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not job.done():
                job.cancel()
        if job.cancelled() or job.exception() is not None:
            return None
        encoded = job.result()
        self._observe(encoded.seconds)
        return encoded

    def _remember(self, question: Question, opened: _Open) -> None:
        self._open[id(question)] = opened
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def _tell(self, found: Hit | Closed | Miss) -> Given | Declined:
        if isinstance(found, Closed):
            self._count("skipped")
            return Declined("skipped", "a kept answer was called wrong", None)
        if isinstance(found, Miss):
            self._count("miss" if found.guard is None else "guarded")
            near = f", the nearest at {found.similarity:.2f}" if found.similarity > 0 else ""
            return Declined("skipped", f"a miss{near}" if found.guard is None else f"a miss, {found.guard} differ", None)
        self._count("hit")
        answer = found.answer
        age = max(0.0, self._clock.monotonic() - found.entry.at)
        return Given(
            "semantic_cache",
            answer.text,
            copy.deepcopy(answer.data),
            answer.finish_reason,
            answer.model,
            why=f"similarity {found.similarity:.2f}, {age:.0f} s old",
        )


def _may_keep(question: Question, given: Given) -> bool:
    return len(given.text) <= MAX_ANSWER_CHARS and not holds_personal(given.text) and not repeats_hidden(question, given.text)


def _event_key(question: Question) -> EventKey:
    return (question.tenant, question.event.event_id, question.event.session_id)


def _language(locale: str) -> str:
    return locale.replace("_", "-").partition("-")[0].lower()
