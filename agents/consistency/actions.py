"""Confirmed decisions against what an answer says was done: the same action denied, its opposite, another amount or another recipient; facts are `check`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import msgspec

from agents.consistency.contradiction import Contradiction
from agents.facts.clauses import Clause
from agents.facts.finder import Finder, encode
from agents.facts.values import MONEY, read_value
from schemas.facts import Number
from schemas.session import Decision

MAX_DECISIONS = 32
"""Looked at for one answer, the newest: a session that confirms at every turn must not slow its answers."""

_ACTIONS = {
    "cancel": r"cancel(?:l?ed|ling|s|lation)?|call(?:ed)? off|取消|撤销|退订",
    "keep": r"keep(?:s|ing)?|kept|remains? (?:active|open|in place)|(?:is|are) still active|保留|继续有效|仍然有效|依然有效",
    "refund": r"refund(?:ed|s|ing)?|退款|退钱",
    "delete": r"delet(?:e|ed|es|ing)|remov(?:e|ed|ing)|eras(?:e|ed)|删除|注销",
    "book": r"book(?:ed|s|ing)?|reserv(?:e|ed|ing)|预订|预定|订好|订了",
    "buy": r"buy(?:ing)?|bought|purchas(?:e|ed|ing)|购买|买了|买下|买",
    "sell": r"sell(?:ing)?|sold|卖掉|卖出|卖了|出售|卖",
    "transfer": r"transfer(?:red|ring|s)?|wir(?:e|ed)|sent|send|转账|转了|转给|汇款|转",
    "enable": r"enabl(?:e|ed|ing)|turn(?:ed)? on|switch(?:ed)? on|activat(?:e|ed|ing)|subscrib(?:e|ed)|开启|开通|打开|订阅",
    "disable": r"disabl(?:e|ed|ing)|turn(?:ed)? off|switch(?:ed)? off|deactivat(?:e|ed)|unsubscrib(?:e|ed)|关闭|停用|关掉",
    "accept": r"accept(?:ed|s|ing)?|agree(?:d|s)?|approv(?:e|ed)|接受|同意|批准",
    "decline": r"declin(?:e|ed|es|ing)|refus(?:e|ed)|reject(?:ed|s)?|turn(?:ed)? down|拒绝|谢绝",
    "renew": r"renew(?:ed|al|s|ing)?|extend(?:ed)?|续费|续订|续约",
    "upgrade": r"upgrad(?:e|ed|es|ing)|升级",
    "attack": r"attack(?:ed|s|ing)?|攻击|进攻",
    "spare": r"spar(?:e|ed|es|ing)|放过|饶了|饶过",
    "join": r"join(?:ed|s|ing)?|加入",
    "leave": r"leav(?:e|es|ing)|quit|退出|离开",
}
_DEEDS = Finder("|".join(list(_ACTIONS.values())[:6]), "|".join(list(_ACTIONS.values())[6:12]), "|".join(list(_ACTIONS.values())[12:]))
_OPPOSITES = {
    ("cancel", "keep"),
    ("cancel", "renew"),
    ("delete", "keep"),
    ("enable", "disable"),
    ("accept", "decline"),
    ("attack", "spare"),
    ("join", "leave"),
    ("buy", "sell"),
}
_OPPOSITE = {one: frozenset({b for a, b in _OPPOSITES if a == one} | {a for a, b in _OPPOSITES if b == one}) for one in _ACTIONS}

_ANY = re.compile("|".join(f"(?P<{name}>(?<![a-z])(?:{words})(?![a-z]))" for name, words in _ACTIONS.items()), re.IGNORECASE)
_NO_BEFORE = re.compile(
    (
        r"(?:\bnot|n't|\bnever|\bno longer)(?: (?:been|be|yet|to|any|want|wish|choose|chose|decide|decided|going|actually))*\s*$|(?:没有|"
        r"没|未|不会|不再|不|并未|从未)(?:被|给[您你]|为[您你]|帮[您你]|选择|要|想)*\s*$"
    ),
    re.IGNORECASE,
)
_FAILS = Finder(
    r"\b(?:could ?not|couldn't|cannot|can't|unable|failed|will|would|can|could|may|might|yet|please|to confirm|once|after"
    r"|want to|wish to|how to|going to|able to|need to"
    r"|must|should)\b",
    "无法|不能|失败|尚未|还没|请|可以|将|会[^员]|如需|需要",
)
"""What could not be done, is to be done or may be done says nothing of what was decided."""

_CODE = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z]{1,6}-?\d{1,12}(?:-[A-Z0-9]{1,12}){0,3}|\d{5,20})(?![A-Za-z0-9])")
_AMOUNT = re.compile(
    (
        r"(?:(?P<sign>[$€£¥]) ?(?P<one>\d[\d,]{0,15}(?:\.\d{1,4})?))|(?P<two>\d[\d,]{0,15}(?:\.\d{1,4})?|"
        r"[零〇一二两三四五六七八九十百千万]{1,12}) ?(?P<unit>euros?|eur|dollars?|usd|pounds?|gbp|rmb|cny|yuan|yen|gold|coins?|€|\$|£|"
        r"块钱|块|元|美元|欧元|英镑|"
        r"金币)(?![a-z])"
    ),
    re.IGNORECASE,
)
_TO = re.compile(
    r"\bto ([A-ZÀ-Þ][A-Za-zÀ-ɏ'-]{1,30})\b|(?:转给|汇给|寄给|送给|给)([一-鿿]{2,4}?)(?=\d|[零〇一二两三四五六七八九十百千万]+[元块]|了|转|汇|寄|[^一-鿿]|$)"
)
_NOUN = re.compile(r"[a-z]{4,}|(?=([一-鿿]{2}))")
_DULL = frozenset(
    "order orders your with this that have been from will please the for and has was were which them they their also been into about "
    "订单 您的 已经 一下 我们 为您 给您 帮您 经为 已为 了您 您已 的订 单已".split()
)


class Deed(msgspec.Struct, frozen=True):
    """What a sentence says is or was done."""

    actions: frozenset[tuple[str, bool]]
    """Each with whether it is denied."""
    codes: frozenset[str]
    amounts: tuple[tuple[Number, int, int], ...]
    """With the place of each number."""
    target: str
    nouns: frozenset[str]


def check_decisions(clauses: Sequence[Clause], decisions: Sequence[Decision]) -> list[Contradiction]:
    """The clauses that say other than what was confirmed; at most one for each clause and decision."""
    found: list[Contradiction] = []
    if not decisions:
        return found
    whole = encode("\n".join(clause.text for clause in clauses))
    deeds, fails = _DEEDS.within(whole), _FAILS.within(whole)
    decided = [(decision, read_deed(decision.text)) for decision in decisions[-MAX_DECISIONS:]]
    for clause in clauses:
        raw = encode(clause.text)
        if not deeds.finds(raw) or fails.finds(raw):
            continue
        deed = read_deed(clause.text)
        for decision, meant in decided:
            contradiction = _compare(clause, deed, decision, meant)
            if contradiction is not None and not _undone(decision, meant, decided):
                found.append(contradiction)
    return found


@functools.lru_cache(maxsize=4096)
def read_deed(text: str) -> Deed:
    """Actions, codes, amounts and recipient of one sentence; cached, for a session's decisions stay the same."""
    actions: set[tuple[str, bool]] = set()
    plain = text.replace("’", "'")
    for match in _ANY.finditer(plain):
        actions.add((str(match.lastgroup), _NO_BEFORE.search(plain[: match.start()][-40:]) is not None))
    amounts = []
    for match in _AMOUNT.finditer(plain):
        name = "one" if match["one"] else "two"
        number = read_value("number", match[name], match["sign"] or match["unit"] or "", {}, yes=True, at_ms=-1, month_first=False)
        if isinstance(number, Number) and number.unit in MONEY:
            amounts.append((number, match.start(name), match.end(name)))
    target = _TO.search(plain)
    nouns = frozenset(_noun(match[1] or match[0]) for match in _NOUN.finditer(_ANY.sub(" ", _CODE.sub(" ", plain)).lower())) - _DULL
    codes = frozenset(code.replace("-", "").upper() for code in _CODE.findall(plain))
    return Deed(frozenset(actions), codes, tuple(amounts), (target[1] or target[2] or "") if target else "", nouns)


def _noun(word: str) -> str:
    return word.removesuffix("s") if word.isascii() else word


def _compare(clause: Clause, said: Deed, decision: Decision, meant: Deed) -> Contradiction | None:
    if said.codes and meant.codes and not said.codes & meant.codes:
        return None
    about_same = bool(said.codes & meant.codes) or bool(said.nouns & meant.nouns) or not (said.nouns or said.codes)
    names = dict(meant.actions)
    for name, no in sorted(said.actions):
        if name in names and no != names[name] and about_same:
            return _contradiction(clause, decision)
        if name not in names and any(name in _OPPOSITE[mine] and names[mine] == no for mine in names) and about_same and said.nouns | said.codes:
            return _contradiction(clause, decision)
    if not said.actions & meant.actions or len(said.amounts) != 1 or len(meant.amounts) != 1:
        return None
    (number, start, end), (right, _, _) = said.amounts[0], meant.amounts[0]
    same_target = not said.target or not meant.target or said.target.casefold() == meant.target.casefold()
    if number.unit == right.unit and number.number != right.number and same_target and (about_same or said.target):
        return Contradiction(
            "decision", "", clause.text[start:end], decision.text, decision.event_id, clause.start + start, clause.start + end, f"{right.number:.10g}"
        )
    if number == right and not same_target:
        at = clause.text.find(said.target)
        return Contradiction(
            "decision", "", said.target, decision.text, decision.event_id, clause.start + at, clause.start + at + len(said.target), meant.target
        )
    return None


def _contradiction(clause: Clause, decision: Decision) -> Contradiction:
    return Contradiction("decision", "", clause.text, decision.text, decision.event_id, clause.start, clause.start + len(clause.text))


def _undone(decision: Decision, meant: Deed, decided: Sequence[tuple[Decision, Deed]]) -> bool:
    """Whether a later decision on the same thing has changed it: then that one counts."""
    return any(
        later.confirmed_at_ms > decision.confirmed_at_ms
        and (deed.codes & meant.codes or (not deed.codes and not meant.codes and deed.nouns & meant.nouns))
        and any(mine == theirs or theirs in _OPPOSITE[mine] for mine, _ in meant.actions for theirs, _ in deed.actions)
        for later, deed in decided
    )
