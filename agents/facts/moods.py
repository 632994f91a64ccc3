"""Whether a clause states, asks, supposes or tells what somebody else said, by its words; cutting a text into clauses is `clauses`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from agents.facts.finder import Finder, encode

Mood = Literal["states", "asks", "supposes", "quotes"]

_LEAD = r"^(?:(?:and|so|but|hi|hello|hey|well|ok|okay|please|sorry|also|then|just|oh|um)\b[ ,]*)*"
_ASKS = Finder(
    _LEAD + r"(?:is|are|am|was|were|do|does|did|has|have|had|can|could|will|would|should|shall|may|might|isn't|aren't|don't|doesn't|didn't|won't|can't)"
    r" (?:i|my|we|our|you|your|he|she|it|they|the|this|that|there|these|those|anyone|anybody|somebody|order)\b",
    _LEAD + r"(?:what|who|whose|where|when|why|how|which)\b",
    r"\b(?:wonder(?:ing)? (?:if|whether)|(?:tell|remind|ask) me (?:if|whether|what|who|where|when|how)|do you (?:know|remember|think)"
    r"|not sure (?:if|whether|what)|whether)\b",
    "[吗么]$|吗|呢$|是不是|是否|有没有|能不能|可不可以|对不对|会不会|什么|哪[里儿个天些]?|谁|怎么|为何|多少|几(?:个|点|号|天|张|件|位)|请问.*(?:是|叫)",
)
_WHAT_I_NEED = re.compile(r"^(?:what|all) (?:i|we) (?:really )?(?:want|need|mean|meant|like)\b", re.IGNORECASE)
"""Begins as a question does, and states: `what I need is 12 mugs`."""

_REQUEST = Finder(
    r"^(?:(?:and|so|hi|hello|hey|ok|okay|please|then|well)\b[ ,]*)*(?:can|could|would|will) (?:you|we)(?: please| kindly| just)?"
    r" (?:call|ship|send|deliver|speak|answer|reply|respond|talk|move|change|make|use|set|switch|write|address|update|book|push|shift|postpone|reschedule)\b",
    "^(?:那)?(?:您|你)?(?:能不能|可不可以|能否|可否|能|可以|麻烦|请)(?:请|帮我|您|你)*(?:把|用|叫|改|送|寄|称呼|换)",
    "(?:能不能|可不可以|能否|可否)(?:帮我|给我|请)*(?:改|换|推迟|提前|挪|调|延)(?:到|成|为|在)",
)
"""Asked for form's sake: what it says is meant (`could you call me Ann?`)."""

_TAG = re.compile(
    r"^(?:right|correct|yes|no|isn't it|is it|is that right|is that correct|okay|ok|don't i|am i|isn't that so|eh|huh"
    r"|对吗|对吧|是吗|是吧|对不对|没错吧|好吗|不是吗)$",
    re.IGNORECASE,
)
_IF = Finder(
    r"\b(?:if|suppose|supposing|imagine|assuming|assume|pretend|what if|let's say|hypothetically)\b",
    "如果|假如|要是|假设|假装|万一|倘若",
)
"""What is supposed holds for the rest of its sentence: `if I bought two, my budget would be 50`."""

_MAYBE = Finder(
    r"\b(?:say i|for example|for instance|e\.g\.|i wish|in case|unless|would have|could have|might|maybe|nobody|no one|perhaps|used to"
    r"|don't think|do not think|doubt|not sure|not certain)\b",
    "比如|例如|举例|要不是|也许|可能|或许|好像|以前|曾经|不认为|不觉得|不确定|不知道|没人|没有人",
)
_POLITE_IF = re.compile(r"\bif (?:possible|needed|necessary|required|you don't mind|you please|i may|need be|you can|you could)\b", re.IGNORECASE)

_WHO = (
    "he|she|they|it|who|someone|somebody|everyone|people|friend|brother|sister|wife|husband|boss|colleague|agent|mother|father|mom|dad|son|daughter"
    "|email|letter|message|sign|card|website|page|box|label|bot|system|neighbou?r|manager"
)
_REPORTS = Finder(
    rf"\b(?:{_WHO})s? (?:just |always |also )?(?:said|says|say|told|tells|wrote|writes|asked|asks|claims?|claimed|thinks?|thought|reads?|calls?|called|shows?"
    r"|insists?|believes?)\b",
    "(?:他|她|他们|她们|朋友|同事|老板|客服|妈妈|爸爸|妻子|丈夫|老婆|老公|有人|别人|邮件|短信|网站|页面|系统|经理|邻居|店员)"
    "(?:刚才|刚刚|总|都|也|曾|却)?(?:说|写|问|告诉|认为|以为|显示|觉得)",
)


class Moods:
    """Tells the moods of one text's clauses: only by the words that stand in it at all, which are few."""

    __slots__ = ("_any", "_asks", "_if", "_maybe", "_reports", "_request")

    def __init__(self, clauses: Sequence[str]) -> None:
        raw = encode("\n".join(clauses))
        self._asks, self._if, self._maybe = _ASKS.within(raw), _IF.within(raw), _MAYBE.within(raw)
        self._reports, self._request = _REPORTS.within(raw), _REQUEST.within(raw)
        self._any = any((self._asks, self._if, self._maybe, self._reports, self._request))

    def of(self, clause: str, *, asked: bool) -> Mood:
        """The mood of one clause; `asked`: a question mark follows it."""
        if not self._any:
            return "asks" if asked else "states"
        raw = encode(clause)
        if self._reports.finds(raw):
            return "quotes"
        if self._if.finds(raw) and self._if.finds(encode(_POLITE_IF.sub(" ", clause))):
            return "supposes"
        if self._maybe.finds(raw):
            return "supposes"
        if self._request.finds(raw):
            return "states"
        if asked or (self._asks.finds(raw) and _WHAT_I_NEED.match(clause) is None):
            return "asks"
        return "states"

    def supposes_on(self, clause: str) -> bool:
        """Whether what follows in the sentence is supposed as well."""
        return self._if.finds(encode(clause))


def is_tag(clause: str) -> bool:
    """Whether it only asks for a yes to what stands before it: `right?`, `对吧？`."""
    return _TAG.match(clause) is not None
