"""What makes two questions the same: everything that can change the answer, in one digest; how texts are compared is `agents.cache.normal`."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agents.cache.normal import normalise_text
from agents.cache.personal import holds_personal
from agents.context.prompt import build_prompt
from agents.ladder import Question
from schemas.inference import Message
from schemas.responses import ModelRef
from schemas.session import SessionState
from schemas.settings import Session, Settings
from schemas.settings_ladder import Scenario

KEY_VERSION = 2
"""Of the parts below and of what is stored under them: a release that changes either counts it up and finds an empty cache, never a wrong one."""

MAX_QUESTION_CHARS = 1000
"""Nobody asks a longer text twice, and searching it for personal data would hold the loop: at this length that takes 0.2 ms, and 3 ms in the worst
text that was found, half-finished account numbers without end."""

MAX_ANSWER_CHARS = 4000
"""Longer answers are not searched, and so not kept: it is done once for each that is, on the loop."""

MAX_HIDDEN = 1000
"""Values of the state outside `context` that an answer is searched for; a state of more is not worth the loop's time, its answers are not kept."""

ModelOf = Callable[[str], ModelRef | None]
"""Name and version of what a `[[models]]` entry now runs; None when it runs nothing."""

_THOUSANDS = re.compile(r"(?<=\d)[,' ](?=\d{3}(?!\d))")

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_IN_LIST = "\0"
"""A step that no name in the settings can take."""

_MISSING = msgspec.msgpack.Ext(1, b"")
"""A key that the state lacks: null is a value of its own."""


class Identity(msgspec.Struct, frozen=True):
    """A question as the cache knows it."""

    key: bytes
    writer: ModelRef
    """Whose answers it may be given: the first model of the scenario's ladder."""
    ttl_s: float
    is_pure: bool
    """Whether the prompt shows nothing of the person beyond what the key holds, declared state aside: only then may others be given the answer."""


class _Shape(msgspec.Struct, frozen=True):
    """What the settings say of a scenario."""

    model: str | None
    policy: bytes
    session: Session


class Identifier:
    """Turns questions into identities; knows the settings and which model is in place."""

    def __init__(self, settings: Settings, model_of: ModelOf) -> None:
        self._default_ttl_s = settings.cache.ttl_s
        self._model_of = model_of
        self._named = {name: _shape_of(settings, scenario) for name, scenario in settings.scenarios.items()}
        self._others = _shape_of(settings, Scenario())

    def identify(self, question: Question) -> Identity | str:
        """The question's identity, or in a few words why it has none and is answered anew."""
        ttl_s = question.scenario.cache.ttl_s
        ttl_s = self._default_ttl_s if ttl_s is None else ttl_s
        text = question.event.text or ""
        shape = self._named.get(question.event.scenario, self._others)
        writer = self._model_of(shape.model) if shape.model is not None else None
        if ttl_s <= 0:
            return "not kept for this scenario"
        if question.temperature > 0:
            return "a temperature above 0"
        if len(text) > MAX_QUESTION_CHARS:
            return "too long a question"
        if writer is None:
            return "no model in place"
        if holds_personal(text):
            return "personal data in the question"
        asked = normalise_text(text)
        known, is_pure = _known(question, asked, shape.session)
        parts = (
            KEY_VERSION,
            question.tenant,
            question.event.scenario,
            (writer.name, writer.version),
            shape.policy,
            question.locale.replace("_", "-").lower(),
            asked,
            _options(question),
            known,
        )
        return Identity(hashlib.blake2b(_encoder.encode(parts), digest_size=32).digest(), writer, ttl_s, is_pure)


def repeats_hidden(question: Question, text: str) -> bool:
    """Whether an answer says something of the state that the key does not hold, and that the asking person did not say: it is theirs alone."""
    if not _is_partly_known(question.scenario):
        return False
    said, asked = _plain(text), _plain(question.event.text or "")
    for count, value in enumerate(_leaves(question.state.state, (), question.scenario.context)):
        if count >= MAX_HIDDEN:
            return True
        shown = _plain(str(value)).strip()
        if _is_telling(value, shown) and shown in said and shown not in asked:
            return True
    return False


def _plain(text: str) -> str:
    """Width and case aside, and numbers without marks between their thousands: an answer says 48,213 of what the state has as 48213."""
    return _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _shape_of(settings: Settings, scenario: Scenario) -> _Shape:
    session = settings.session
    if scenario.instructions is not None:
        session = msgspec.structs.replace(session, instructions=scenario.instructions)
    return _Shape(_first_model(settings, scenario), _policy_version(settings, scenario, session), session)


def _first_model(settings: Settings, scenario: Scenario) -> str | None:
    models = {model.name for model in settings.models}
    rungs = settings.ladder.rungs if scenario.ladder.rungs is None else scenario.ladder.rungs
    return next((rung for rung in rungs if rung in models), None)


def _policy_version(settings: Settings, scenario: Scenario, session: Session) -> bytes:
    """Of the settings that shape an answer. What only tells how fast it comes, or what is said around it, is left out."""
    tree = msgspec.to_builtins(settings)
    rungs = settings.ladder.rungs if scenario.ladder.rungs is None else scenario.ladder.rungs
    models = [(model.name, model.engine, model.path, model.max_tokens, model.text) for model in settings.models if model.name in rungs]
    policy = {key: value for key, value in tree.get("policy", {}).items() if key != "disclosure"}
    shape = (
        session.instructions,
        (session.turns, session.turn_chars, session.prompt_chars, session.prompt_tokens),
        rungs,
        models,
        (scenario.context, scenario.cache.standalone),
        policy,
        tree.get("safety", {}),
    )
    return hashlib.blake2b(_encoder.encode(shape), digest_size=16).digest()


def _options(question: Question) -> Any:
    constraint = question.constraint
    form = None if constraint is None else (constraint.choice, constraint.regex, constraint.json_schema)
    return (question.max_tokens, question.stop, form)


def _known(question: Question, asked: str, session: Session) -> tuple[Any, bool]:
    """What else the answer depends on, and whether the prompt shows no more of the person than that."""
    scenario = question.scenario
    past = tuple((message.role, message.text) for message in question.messages[:-1] if message.role != "system")
    said = () if scenario.cache.standalone or _only_asks(past, asked) else past
    shown = _system(question.messages)
    if not _is_partly_known(scenario):
        return (said, shown), said == past
    plain = _system(build_prompt(question.event.text or "", SessionState(state=question.state.state), session))
    state = [(name, _lookup(question.state.state, name)) for name in scenario.context]
    return (said, state), said == past and shown == plain


def _system(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages if message.role == "system"]


def _is_partly_known(scenario: Scenario) -> bool:
    """Whether the settings say which part of the state matters; else all that the prompt shows of it does."""
    return bool(scenario.context) or scenario.cache.standalone


def _only_asks(past: tuple[tuple[str, str], ...], asked: str) -> bool:
    """Whether the conversation so far is this question, asked before: then it gives the words no other meaning."""
    before = "assistant"
    for role, text in past:
        if role == "user" and normalise_text(text) != asked:
            return False
        if role == "assistant" and before != "user":
            return False
        before = role
    return True


def _lookup(state: Any, name: str) -> Any:
    """What stands under a name. Keys may hold dots themselves: `a.b` is the key `b` of `a`, the key `a.b`, or both."""
    found = list(_values_at(state, name))
    if len(found) == 1:
        return found[0]
    return msgspec.msgpack.Ext(2, _encoder.encode(found)) if found else _MISSING


def _values_at(state: Any, name: str) -> Iterator[Any]:
    if not isinstance(state, dict):
        return
    if name in state:
        yield state[name]
    steps = name.split(".")
    for count in range(1, len(steps)):
        yield from _values_at(state.get(".".join(steps[:count])), ".".join(steps[count:]))


def _leaves(value: Any, path: tuple[str, ...], known: tuple[str, ...]) -> Iterator[Any]:
    """The values below, without those that `known` names; a name leads into no list."""
    if path and ".".join(path) in known:
        return
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, (*path, str(key)), known)
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _leaves(below, (*path, _IN_LIST), known)
    else:
        yield value


def _is_telling(value: Any, shown: str) -> bool:
    """Short words and small numbers stand in any answer by chance."""
    if isinstance(value, bool) or value is None:
        return False
    return len(shown) >= (3 if shown.isascii() else 2)
