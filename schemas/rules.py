"""A rule as a settings or rule file writes it: what it looks for and what it says; matching is `agents.rules`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# Without the cyclic garbage collector (gc=False): rules hold no cycles, and thousands of them, read again, would lengthen its pauses.


class RuleMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a rule looks for; everything that is given must hold."""

    any: Annotated[tuple[str, ...], Meta(description="keywords, one of which is in the text; case and width do not matter")] = ()
    all: Annotated[tuple[str, ...], Meta(description="keywords that are all in the text")] = ()
    none: Annotated[tuple[str, ...], Meta(description="keywords that are not in the text")] = ()
    pattern: Annotated[Annotated[str, Meta(max_length=2000)] | None, Meta(description="an RE2 pattern; its named groups may stand in the answer")] = None
    scenarios: Annotated[tuple[str, ...], Meta(description="one of these scenarios; empty: every one")] = ()
    locales: Annotated[tuple[str, ...], Meta(description="one of these locales or their languages; empty: every one")] = ()
    state: Annotated[dict[str, Any], Meta(description="keys of the session's state (a.b: nested) with their value, a list of allowed ones, or {min, max}")] = {}


class RuleExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """What `answerby rules test` asks a rule."""

    text: Annotated[str, Meta(description="what the person says")]
    locale: Annotated[str, Meta(description="theirs")] = "en"
    scenario: Annotated[str, Meta(description="of the event")] = "default"
    state: Annotated[dict[str, Any], Meta(description="of the session")] = {}
    answer: Annotated[str | None, Meta(description="what is to be said; unset: that this rule answers is enough")] = None
    matches: Annotated[bool, Meta(description="false: this rule must not answer")] = True


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One `[[rules]]` entry."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}\Z", description="names it in `rungs`, metrics and messages")]
    match: RuleMatch
    answer: Annotated[dict[str, str], Meta(min_length=1, description="by locale; `en` serves the rest; {text}, {state.KEY}, {group} are filled in")]
    when: Annotated[Literal["always", "degraded"], Meta(description="`degraded`: only when no better rung answered, instead of the default")] = "always"
    priority: Annotated[int, Meta(ge=-1000, le=1000, description="the highest that matches answers; then the one written first")] = 0
    examples: tuple[RuleExample, ...] = ()
