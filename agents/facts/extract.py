"""Facts that a person states in a text: by patterns and the moods of clauses, without a model; keeping them is `merge`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from agents.facts.clauses import Clause, cut, sentences
from agents.facts.corrections import correct
from agents.facts.finder import Finder, encode
from agents.facts.slots import Matcher, SlotSet
from agents.facts.values import MONEY, UNITS, read_value
from agents.rules.normalize import fold_width
from schemas.facts import Fact, Facts, Text, YesNo
from schemas.settings_facts import Slot

MAX_FOUND = 24
"""Facts of one message: a list of a hundred likes would push out everything else that is known."""

_MINUTE_MS = 60_000

_NOT = Finder(
    r"\b(?:not|never|no longer|cannot|isn't|aren't|wasn't|don't|doesn't|didn't|won't|can't|haven't|hasn't)\b",
    r"不是|没有|不再|并非|[不没未](?:[^知如过但仅错]|$)|(?:^|[^特分个级类区性识])别(?:[^的人]|$)",
)
_ADVERB_WORDS = r"\b(?:still|currently|already|actually|really|indeed|definitely|certainly|therefore) "
_ADVERBS = re.compile(_ADVERB_WORDS + "|仍然|依然|目前|现在|其实|的确|确实|一直", re.IGNORECASE)
_HAS_ADVERBS = Finder(_ADVERB_WORDS + "|仍然|依然|目前|现在|其实|的确|确实|一直")
"""Words that change nothing of what is stated, and would have to stand in every pattern."""

_IS_NOT = re.compile(r"\b(is|are|was|were)n't ", re.IGNORECASE)
_NOT_BUT = re.compile(r"\bnot (?:[^\s]+ ){1,3}but (?:rather )?", re.IGNORECASE)
_FROM_TO = re.compile(r"\bfrom (?:[^\s]+ ){1,4}to ", re.IGNORECASE)
_FROM_TO_ZH = re.compile("从[^改换到]{1,16}(?=改到|改成|改为|换成|换到|推迟到|提前到)")
_RATHER_ZH = re.compile("不是[^，,而]{1,16}而是")

_TAIL = re.compile(
    r"(?:\s+(?:very much|so much|a lot|too|please|instead|the most|the best|best|for now|any ?more|now|today|thanks|thank you|"
    r"as well|again|right now|actually|then|though|by the way|these days|with you|there|here|at all|most of all))+$"
    r"|\s+(?:because|when|while|since|and i|and my|so that|as it|as they|from you|than)\b.*$",
    re.IGNORECASE,
)
_TAIL_ZH = re.compile("(?:就(?:行|好|可以|是)了?|谢谢|好吗|(?<!银)行吗|哦|啊|呀|呢|吧|了|啦|哈|的话|，.*|。.*)+$")
_LIST = re.compile(r",? (?:and|or|nor) (?:the |to )?|[和与跟及、]|或者?", re.IGNORECASE)
_AND_ZH = re.compile("[和跟与、及]")
_ARTICLE = re.compile(r"^(?:a|an|the|some|any|my|your|our|all|that|to eat|to drink|eating|drinking)\s+", re.IGNORECASE)
_NO_NAME = frozenset(
    (
        "not sure sorry here there back fine good great ok okay happy sad interested looking calling writing afraid done ready "
        "new late in on at a an the trying going just still also very so from glad aware able unable dear sir madam all everyone "
        "again team customer user guest friend thanks thank yes no hello hi please later tomorrow today soon now this that it "
        "wrong right correct different what monday tuesday wednesday thursday friday saturday sunday great sure perfect "
        "understood done noted welcome absolutely certainly unfortunately however also "
        "nothing something anything everything someone nobody newbie student teacher owner mom dad "
    ).split()
)
_NO_NAME_ZH = re.compile(
    "^(?:什么|不|在|来|要|想|从|说|请|很|有|谁|的|外卖|快递|起床|车|救|醒|停|顾客|客户|用户|朋友|玩家|会员|您|你|我|他|她|们|各位|大家)|(?:什么|吗|哪|谁)$"
)
_VAGUE = frozenset(
    "it that this them those these him her you me know to be what how where when is one ones more less 这个 那个 它 你 您 他 她 这样 那样 这些 那些 的".split()
)


def extract(
    text: str, locale: str, slots: SlotSet, event_id: str, at_ms: int, *, offset: int = 0, scenario: str = "default", known: Facts | None = None
) -> tuple[Fact, ...]:
    """What the person states of themselves, in the order of the text, at most `MAX_FOUND`; pure.

    `known` is what corrections (`I meant 12, not 10`) are understood from. A question, a supposition and somebody else's words state nothing; only
    slots with `in_questions` are named by a question too. Facts of slots with `decision` are among them: see `split_decisions`.
    """
    settings = slots.settings
    if not settings.enabled:
        return ()
    text = text[: settings.text_chars]
    matchers = slots.possible(fold_width(text), scenario, answers=False)
    if not matchers and (known is None or not known.facts):  # most messages: nothing is stated and nothing is there to be corrected
        return ()
    reader = _Reader(slots, locale, event_id, at_ms, offset)
    clauses = cut(text)
    found = list(reader.read(text, clauses, slots, scenario, matchers))
    corrections = correct(clauses, found, known or Facts(), reader.at_local_ms, month_first=reader.month_first)
    replaced = {fact.identity for fact in corrections}
    found = [fact for fact in found if fact.identity not in replaced]
    return (*found, *(reader.stamp(fact) for fact in corrections))[:MAX_FOUND]


def read_answer(
    clauses: Sequence[Clause], locale: str, slots: SlotSet, scenario: str, names: Container[str], at_ms: int
) -> Iterator[tuple[Clause, Fact, str, bool]]:
    """The facts of the slots `names` that an answer's clauses speak of, with the piece of text that says the value and whether only an answer says it so."""
    reader = _Reader(slots, locale, "", at_ms, 0)
    for clause in clauses:
        for fact, raw, matcher in reader.read_clause(clause, slots.possible(clause.text, scenario, answers=True, names=names)):
            yield clause, fact, raw, matcher.for_answers


def split_decisions(slots: SlotSet, facts: Sequence[Fact]) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """Facts that hold at once, and those that wait for the person's confirm."""
    waits = {name for name, slot in slots.slots.items() if slot.decision}
    return tuple(fact for fact in facts if fact.slot not in waits), tuple(fact for fact in facts if fact.slot in waits)


class _Reader:
    """Reads clauses of one text: who said it, when and where stands in each fact."""

    def __init__(self, slots: SlotSet, locale: str, event_id: str, at_ms: int, offset: int) -> None:
        self._settings = slots.settings
        self._event_id = event_id
        self._at_ms = at_ms
        self._offset = offset
        self.at_local_ms = at_ms + slots.settings.utc_offset_minutes * _MINUTE_MS if at_ms >= 0 else -1
        self.month_first = locale.lower().startswith("zh") or locale.lower() in ("en-us", "en")

    def read(self, text: str, clauses: Sequence[Clause], slots: SlotSet, scenario: str, matchers: Sequence[Matcher]) -> Iterator[Fact]:
        """The facts of all clauses; `matchers` are those that may match in `text` at all."""
        if not matchers:
            return
        names = {matcher.slot.name for matcher in matchers}
        whole = [matcher for matcher in matchers if matcher.slot.whole_sentence]
        for clause in clauses:
            possible = slots.possible(clause.text, scenario, answers=False, names=names)
            yield from (fact for fact, _, _ in self.read_clause(clause, [matcher for matcher in possible if not matcher.slot.whole_sentence]))
        for sentence in sentences(text) if whole else ():
            yield from (fact for fact, _, _ in self.read_clause(sentence, whole))

    def read_clause(self, clause: Clause, matchers: Sequence[Matcher]) -> Iterator[tuple[Fact, str, Matcher]]:
        """At most one fact of an identity: the first pattern that fits counts."""
        if clause.mood in ("supposes", "quotes"):
            return
        if not matchers:
            return
        text = simplify(clause.text)
        raw_text = encode(text)
        done: set[tuple[str, str]] = set()
        for matcher in matchers:
            slot = matcher.slot
            if (slot.name, "") in done or (clause.mood == "asks" and not slot.in_questions):
                continue
            groups = matcher.pattern.search(raw_text)
            if groups is None or (clause.mood == "asks" and _asks_value(text, groups["value"])):
                continue
            if slot.name == "goal" and done:  # `I want to book a table for four` has been understood better already
                continue
            for fact, raw in self._facts(matcher, groups, text):
                if fact.identity not in done:
                    done.add(fact.identity)
                    yield fact, raw, matcher

    def stamp(self, fact: Fact) -> Fact:
        """The same fact, said now."""
        return Fact(fact.slot, fact.value, self._event_id, self._at_ms, self._offset, fact.confidence, fact.key, fact.denied, fact.pinned, fact.personal)

    def _facts(self, matcher: Matcher, groups: dict[str, str], clause: str) -> Iterator[tuple[Fact, str]]:
        """One fact, or one for each thing of a list: `I like tea and coffee`."""
        slot, raw = matcher.slot, groups.get("value", "").strip()
        no = "no" in groups or ("no" not in matcher.pattern.groups and _denied_before(clause, raw))
        parts = _LIST.split(raw) if slot.many and slot.type == "yes_no" else [raw]
        for part in parts:
            fact = self._fact(slot, groups, part.strip(), no=no)
            if fact is not None:
                yield fact, part.strip()

    def _fact(self, slot: Slot, groups: dict[str, str], raw: str, *, no: bool) -> Fact | None:
        if slot.type in ("text", "yes_no"):
            raw = trim(raw)[: self._settings.value_chars]
        if not raw or (slot.name == "name" and not _may_be_name(raw)):
            return None
        key = key_of(groups["key"]) if groups.get("key") else ""
        if slot.many and not key:
            key = key_of(raw) if slot.type == "yes_no" or "key" not in groups else ""
            if slot.type == "number":
                key = "people"
        if slot.many and (not key or key in _VAGUE or key.split(" ")[0] in _VAGUE or key.startswith("的")):
            return None
        if slot.type == "number" and slot.many and (UNITS.get(key) in MONEY or key in ("minute", "hour", "day", "week", "month", "year", "time", "thing")):
            return None
        value = read_value(slot.type, raw, groups.get("unit", ""), slot.choices, yes=not no, at_ms=self.at_local_ms, month_first=self.month_first)
        if value is None or (isinstance(value, Text) and value.text.lower() in _VAGUE):
            return None
        denied = no and not isinstance(value, YesNo)
        return Fact(
            slot.name, value, self._event_id, self._at_ms, self._offset, slot.confidence, key[: self._settings.value_chars], denied, slot.pinned, slot.personal
        )


def simplify(text: str) -> str:
    """Without the half of a contrast that does not hold: `not Ann but Eve` is `Eve`, `from 3 to 5` is `to 5`."""
    if _HAS_ADVERBS.finds(encode(text)):
        text = _ADVERBS.sub("", text)
    if "n't " in text:
        text = _IS_NOT.sub(r"\1 not ", text)
    if " but " in text:
        text = _NOT_BUT.sub("", text)
    if " to " in text:
        text = _FROM_TO.sub("to ", text)
    if "从" in text:
        text = _FROM_TO_ZH.sub("", text)
    return _RATHER_ZH.sub("是", text) if "而是" in text else text


def trim(text: str) -> str:
    """A phrase without what follows it in speech: `green tea very much` is `green tea`."""
    text = _TAIL.sub("", text.strip(" .,;:'\"")).strip()
    return text if text.isascii() else _TAIL_ZH.sub("", text).strip()


def key_of(text: str) -> str:
    """One form for what a fact is about: `The mugs` and `a mug` are one."""
    text = _AND_ZH.split(text.lower().replace("-", " ").strip(), maxsplit=1)[0]
    for _ in range(2):
        text = _ARTICLE.sub("", text)
    text = {
        "persons": "people",
        "person": "people",
        "guests": "people",
        "adults": "people",
        "人": "人",
        "位": "人",
        "名": "人",
        "客人": "人",
        "大人": "人",
        "成人": "人",
        "gift wrap": "gift wrapping",
    }.get(text, text)
    if text.endswith(("sses", "xes", "ches", "shes", "oes")):
        return text[:-2]
    return text[:-1] if len(text) > 3 and text.endswith("s") and not text.endswith(("ss", "us", "is")) else text  # noqa: PLR2004  # `gas` is no plural


def _denied_before(clause: str, raw: str) -> bool:
    """Whether a word before the value denies it, for patterns without a group `no` of their own."""
    at = clause.find(raw) if raw else -1
    return at > 0 and _NOT.finds(encode(clause[:at]))


def _may_be_name(raw: str) -> bool:
    first = raw.split(" ", maxsplit=1)[0].lower().strip("'")
    if not raw.isascii() and _NO_NAME_ZH.search(raw):
        return False
    return first not in _NO_NAME and not first.endswith("ing") and len(raw) <= 40  # noqa: PLR2004  # longer ones are sentences


def _asks_value(clause: str, raw: str) -> bool:
    """Whether a question doubts the very value (`is my order number A-12?`) instead of naming it (`is order A-12 sent?`)."""
    ends = clause.rstrip(" ?？吗").endswith(raw.strip())
    return ends and re.search(r"^(?:(?:and|so) )?(?:is|was|isn't|wasn't) |是", clause, re.IGNORECASE) is not None
