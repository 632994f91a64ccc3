"""The rule that answers, among thousands, in microseconds: each is filed under its rarest condition; what one rule asks is `compiled`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from agents.rules.compiled import CompiledRule, View
from agents.rules.courteous import in_turns
from agents.rules.keywords import Keyword, KeywordFinder
from agents.rules.literals import Either, cost_of
from agents.rules.normalize import fold_case_apart, fold_width
from agents.rules.patterns import PatternFilter
from agents.rules.predicates import OneOf, as_scalar, widen_locale
from agents.templates import value_of

When: TypeAlias = Literal["always", "degraded"]

WORK_LIMIT = 1_000_000
"""Bytes of text times sizes of the patterns searched in one match. A match ends there, the rules below unasked: 25 ms if every pattern is at its
worst at once (25 ns a step, measured), 1 ms for ordinary ones. A text of 500 characters has room for 40 patterns of size 50."""

LOOP_WORK = 200_000
"""The part of it that may be done on the event loop: 5 ms at its worst. What needs more is matched in a thread; RE2 lets other threads run meanwhile."""

_RARER_WITH_EACH_BYTE = 0.8
_PATTERN_COST = 2.0
"""A guess at where a pattern's fixed piece stands among keywords: rarer than a common word, more common than a rare one."""

_NO_ANCHOR = 10**9

_SHORTEST_PIECE = 2
"""Bytes of a pattern's piece to file it under: a single Latin letter is in every text, and many times."""

MAX_LOOSE_PATTERNS = 50
"""Rules that nothing but a pattern without a fixed piece (`[0-9]{11}`) holds back: each is searched for in every message, at about 3 µs."""


class Matched(msgspec.Struct, frozen=True):
    """The rule that answers, and what it says."""

    rule: str
    text: str


class TooMuchWork(msgspec.Struct, frozen=True):
    """The patterns to search for need more than the match was given."""


class RuleSet:
    """Rules in force, best first; immutable, so that one set is swapped for another between two events."""

    def __init__(self, rules: Iterable[CompiledRule] = (), *, text_chars: int = 1000, in_pieces: bool = False) -> None:
        """`in_pieces` is for a loop that runs meanwhile: nothing is built that holds it up for longer than 5 ms, at the price of slower matches."""
        ordered = sorted(rules, key=lambda one: -one.rule.priority)
        self.text_chars = text_chars
        self.count = len(ordered)
        self._by_name = {one.rule.name: one for one in ordered}
        self._by_when = {when: _Index([one for one in ordered if one.rule.when == when], text_chars, in_pieces=in_pieces) for when in ("always", "degraded")}

    def match(
        self, text: str, *, scenario: str = "default", locale: str = "en", state: Mapping[str, Any] | None = None, when: When = "always"
    ) -> Matched | None:
        """The highest rule that matches, of those that answer `when`; among equals the one written first."""
        found = self.match_within(WORK_LIMIT, text, scenario=scenario, locale=locale, state=state or {}, when=when)
        return None if isinstance(found, TooMuchWork) else found

    def match_within(self, work: int, text: str, *, scenario: str, locale: str, state: Mapping[str, Any], when: When) -> Matched | TooMuchWork | None:
        """The same with a bound of its own (see LOOP_WORK)."""
        index = self._by_when[when]
        return None if index.empty else index.first(index.view(text, scenario, locale, state), work)

    def why_not(self, name: str, text: str, *, scenario: str, locale: str, state: Mapping[str, Any]) -> str:
        """Why the rule `name` does not answer, as words for who wrote it."""
        rule = self._by_name[name]
        view = self._by_when[rule.rule.when].view(text, scenario, locale, state)
        failing = rule.failing(view)
        if failing is not None:
            return f"match.{failing} does not hold"
        if rule.pattern is not None and rule.pattern.search(view.raw or b"") is None:
            return "match.pattern does not match"
        if rule.say(view) is None:
            return "a value that its answer speaks of is missing"
        winner = self.match(text, scenario=scenario, locale=locale, state=state, when=rule.rule.when)
        return f"rule {winner.rule} answers first" if winner is not None else "the patterns above it take too long for this text"

    def pieces(self) -> list[object]:
        """What the set is made of, for who lets it go bit by bit."""
        return [piece for index in self._by_when.values() for piece in index.pieces()] + list(self._by_name.values())


class _Index:
    """The rules of one `when`, by rank."""

    def __init__(self, rules: Sequence[CompiledRule], text_chars: int, *, in_pieces: bool) -> None:
        self._text_chars = text_chars
        self.empty = not rules
        by_keyword: dict[Keyword, list[int]] = {}
        self._by_state: dict[str, dict[tuple[str, ...], dict[Any, list[int]]]] = {}
        """By the first key of the path, so that a state is asked only for what it has."""
        self._by_scenario: dict[str, list[int]] = {}
        self._always_asked: list[int] = []
        self._patterned: list[int] = []
        self._filed_by_piece: set[int] = set()
        counts: Counter[Hashable] = Counter(anchor for rule in rules for choice in _choices(rule) for anchor in choice.anchors)
        self._needed: list[tuple[Either, ...]] = []
        """Of each rule, pieces of text one of each of which must be there: most rules that come up are let go by these alone, at a third of the cost."""
        self._rules = [self._file(rank, rule, counts, by_keyword) for rank, rule in enumerate(in_turns(rules))]
        """With the conditions that are left when a rule comes up."""
        least_likely = [_least_likely(needed) for needed in self._needed]
        self._one = [_copied(one) for one, _ in least_likely]
        self._other = [other and _copied(other) for _, other in least_likely]
        """Of each rule two of them, one of which must be there: asked without a call, they let most rules go."""
        self._finder = KeywordFinder(list(by_keyword), in_pieces=in_pieces)
        self._by_keyword = [tuple(ranks) for ranks in by_keyword.values()]
        """By the number that the finder gives. Keywords under which no rule is filed are looked for only when their rule comes up."""
        self._filter = PatternFilter([pattern for rank in self._patterned if (pattern := rules[rank].pattern) is not None], in_pieces=in_pieces)

    def _file(self, rank: int, rule: CompiledRule, counts: Counter[Hashable], by_keyword: dict[Keyword, list[int]]) -> CompiledRule:
        """Put a rule where the fewest texts bring it up for nothing; gives back what is left to ask when it does come up."""
        cost, choice = min(((_cost(choice, counts), choice) for choice in _choices(rule)), key=lambda pair: pair[0], default=(_NO_ANCHOR, None))
        if rule.has_fixed_piece and cost > _PATTERN_COST and not any(True for _ in _pieces(rule)):
            self._patterned.append(rank)
            return self._ask(rule)
        if choice is None:
            self._always_asked.append(rank)
            return self._ask(rule)
        if choice.condition == "pattern":
            self._filed_by_piece.add(rank)
        for anchor in choice.anchors:
            match anchor:
                case Keyword():
                    by_keyword.setdefault(anchor, []).append(rank)
                case (tuple() as path, value):
                    self._by_state.setdefault(path[0], {}).setdefault(path, {}).setdefault(value, []).append(rank)
                case _:
                    self._by_scenario.setdefault(str(anchor), []).append(rank)
        return self._ask(_without(rule, choice.condition), known=choice.piece)

    def _ask(self, rule: CompiledRule, known: Either | None = None) -> CompiledRule:
        """Note what the next rule needs, but for what is `known` to be there when it comes up."""
        self._needed.append(_needed(rule, known))
        return rule

    def view(self, text: str, scenario: str, locale: str, state: Mapping[str, Any]) -> View:
        if len(text) > self._text_chars:
            return View(text, None, None, None, scenario, widen_locale(locale), state, locale)
        wide = fold_width(text)
        return View(text, *fold_case_apart(wide), wide.encode("utf-8", "replace"), scenario, widen_locale(locale), state, locale)

    def first(self, view: View, work: int) -> Matched | TooMuchWork | None:
        pieces = f" {view.folded} \n {view.apart} " if view.apart is not None else f" {view.folded or ''} "
        one, other = self._one, self._other
        for rank in sorted(self._candidates(view)):
            if one[rank] not in pieces and ((second := other[rank]) is None or second not in pieces):
                continue
            if _lacks(self._needed[rank], pieces):
                continue
            rule = self._rules[rank]
            if rule.failing(view) is not None:
                continue
            if rule.pattern is not None and view.raw is not None:
                work -= rule.pattern.size * len(view.raw)
                if work < 0:
                    return TooMuchWork()
            said = rule.say(view)
            if said is not None:
                return Matched(rule.rule.name, said)
        return None

    def pieces(self) -> list[object]:
        return [*self._rules, *self._needed, *self._by_keyword, *self._by_state.values(), *self._finder.pieces(), *self._filter.pieces()]

    def _candidates(self, view: View) -> set[int]:
        ranks = set(self._always_asked)
        ranks.update(self._by_scenario.get(view.scenario, ()))
        for first in self._by_state.keys() & view.state.keys():
            for path, by_value in self._by_state[first].items():
                scalar = as_scalar(value_of(view.state, path))
                if scalar is not None:
                    ranks.update(by_value.get(scalar, ()))
        if view.folded is None or view.raw is None:
            return ranks
        ranks.update(chain.from_iterable(map(self._by_keyword.__getitem__, self._finder.find(f" {view.folded} "))))
        if view.apart is not None:
            ranks.update(rank for number in self._finder.find(f" {view.apart} ") for rank in self._by_keyword[number] if rank in self._filed_by_piece)
        if self._patterned:
            ranks.update(self._patterned[place] for place in self._filter.possible(view.raw))
        return ranks


def _needed(rule: CompiledRule, known: Either | None) -> tuple[Either, ...]:
    """Single pieces before choices, long ones first: what is least likely is asked first."""
    either = (tuple(keyword.text for keyword in rule.any),) if rule.any else ()
    pieces = [piece for piece in (rule.pattern.needed or ()) if piece != known] if rule.pattern else []
    return tuple(sorted((*((keyword.text,) for keyword in rule.all), *either, *pieces), key=cost_of))


def _least_likely(needed: tuple[Either, ...]) -> tuple[str, str | None]:
    """The least likely choice of at most two pieces; where there is none, a piece that is in every text."""
    for either in needed:
        match either:
            case (one,):
                return one, None
            case (one, other):
                return one, other
    return "", None


def _copied(piece: str) -> str:
    """The same in memory beside those copied before and after it: fifty of them are looked at for one message, and each miss of the cache costs."""
    return f" {piece}"[1:]


def _lacks(needed: tuple[Either, ...], folded: str) -> bool:
    for either in needed:
        for piece in either:
            if piece in folded:
                break
        else:
            return True
    return False


class _Choice(msgspec.Struct, frozen=True, gc=False):
    """One way to file a rule: it can match only where one of the anchors is."""

    anchors: tuple[Hashable, ...]
    condition: Keyword | OneOf | Literal["any", "scenarios", "pattern"]
    """What the anchors stand for, and need not be asked again when one of them has brought the rule up; a pattern must be."""
    piece: Either | None = None
    """Of the pattern's pieces the one that the anchors are."""


def _choices(rule: CompiledRule) -> Iterator[_Choice]:
    for keyword in rule.all:
        yield _Choice((keyword,), keyword)
    if rule.any:
        yield _Choice(rule.any, "any")
    for predicate in rule.predicates:
        if isinstance(predicate, OneOf):
            yield _Choice(tuple((predicate.path, value) for value in predicate.values), predicate)
    if rule.scenarios:
        yield _Choice(tuple(rule.scenarios), "scenarios")
    yield from _pieces(rule)


def _pieces(rule: CompiledRule) -> Iterator[_Choice]:
    for either in (rule.pattern.needed or ()) if rule.pattern else ():
        if all(len(piece.encode()) >= _SHORTEST_PIECE for piece in either):
            yield _Choice(tuple(Keyword(piece, whole_start=False, whole_end=False) for piece in either), "pattern", either)


def _without(rule: CompiledRule, condition: Keyword | OneOf | Literal["any", "scenarios", "pattern"]) -> CompiledRule:
    match condition:
        case Keyword():
            return replace(rule, all=tuple(one for one in rule.all if one != condition))
        case OneOf():
            return replace(rule, predicates=tuple(one for one in rule.predicates if one is not condition))
        case "any":
            return replace(rule, any=())
        case "scenarios":
            return replace(rule, scenarios=frozenset())
        case "pattern":
            return rule
        case _:
            assert_never(condition)


def _cost(choice: _Choice, counts: Counter[Hashable]) -> float:
    """How often the choice will bring its rule up, by guess: what many rules ask for is common, what is long is rare."""
    return sum(counts[anchor] * (_RARER_WITH_EACH_BYTE ** len(anchor.text.encode()) if isinstance(anchor, Keyword) else 1.0) for anchor in choice.anchors)


def is_loose(rule: CompiledRule) -> bool:
    """Whether only a search for its pattern tells that a rule does not match."""
    return rule.pattern is not None and not rule.has_fixed_piece and not any(True for _ in _choices(rule))
