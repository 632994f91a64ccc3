"""What a text calls by name: quoted words, capitalised ones, codes and addresses, Chinese people; the other things two texts must agree on are `guards`."""

from __future__ import annotations

import re
import unicodedata

from agents.semantic.language import CJK, fold, is_chinese, stem

_QUOTED = re.compile(
    r'"([^"]{1,60})"|《([^》]{1,60})》|「([^」]{1,60})」|『([^』]{1,60})』|【([^】]{1,60})】|“([^”]{1,60})”|‘([^’]{1,60})’|(?<!\w)\'([^\']{2,60})\'(?!\w)'
)
_CODES = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<!\w)@\w+|(?<![\w.])(?=[a-z\d._-]*[a-z])(?=[a-z\d._-]*\d)[a-z\d]+(?:[._-][a-z\d]+)*")
_LATIN = re.compile(r"[a-z][a-z\d'&+.-]*")
_ENGLISH = re.compile(r"[^\W\d_][\w'&+-]*|[.!?:;\n]")
_UNNAMED = frozenset("i i'm i'd i've i'll id ok okay faq am pm a tv pc".split())
"""Written with capitals whatever they are part of."""

_MEASURES = re.compile(r"\d+(?:\.\d+)?(?:kg|km|cm|mm|ml|lbs?|oz|gb|mb|tb|kb|hrs?|mins?|secs?|usd|eur|rmb|k|g|m|h|s|am|pm|st|nd|rd|th)|t\d+:\d+|\d+%?")

_SHOUTED = 0.6
"""Share of capitalised words from which capitals say nothing: then every word counts as a name, which can cost a hit but never a wrong one."""

_SHOUTED_WORDS = 4

_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘蒋蔡余杜叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪范石"
    "廖贾夏韦傅方邹孟熊秦邱侯江尹薛阎段雷龙史陶贺顾毛郝龚邵万钱严武戴莫孔向汤"
)
_AFTER_NAME = "转发打写说买寄送付借还要的了吗在是去和跟给来到把拿发问过这那有不没汇存对讲一个先女老"
_PERSON = re.compile(
    rf"(?:给|找|叫|跟|和|与|让|请|问|联系|通知|告诉|姓|关注|添加|邀请|替|把|向|被|是)([{_SURNAMES}][{CJK}]{{1,2}})|([{_SURNAMES}](?:先生|女士|小姐|老师|医生|经理|总|师傅|阿姨|某))"
)


def find_names(text: str) -> frozenset[str]:
    """Everything in `text` (as it was written) that names one thing among others, folded."""
    written = unicodedata.normalize("NFKC", text)
    folded = fold(text)
    found = {fold(next(part for part in match if part)) for match in _QUOTED.findall(written)}
    found |= {code.strip(".,;:!?)") for code in _CODES.findall(folded) if not _MEASURES.fullmatch(code)}
    if is_chinese(text):
        found |= {word.strip(".-'") for word in _LATIN.findall(re.sub(r"(?<=\d)[a-z]+", " ", folded))} | set(_people(folded))
    else:
        found |= set(_capitalised(written))
    return frozenset(found - {""})


def _people(folded: str) -> list[str]:
    """Chinese people where a word before or a title behind makes them known; a third character that begins another word is no part of a name."""
    found = []
    for after, titled in _PERSON.findall(folded):
        name = after or titled
        found.append(name[:2] if after and len(name) > 2 and name[2] in _AFTER_NAME else name)  # noqa: PLR2004  # surname and one more
    return found


def _capitalised(written: str) -> list[str]:
    """Capitalised words that do not begin a sentence, and owners (`Anna's`) that do."""
    tokens: list[str] = _ENGLISH.findall(written.replace("’", "'"))
    words = [token for token in tokens if token[0].isalpha()]
    if len(words) >= _SHOUTED_WORDS and sum(word[0].isupper() for word in words) >= _SHOUTED * len(words):
        return [stem(word.lower()) for word in words if len(word) > 3]  # noqa: PLR2004  # short ones are grammar
    found, begins = [], True
    for token in tokens:
        if not token[0].isalpha():
            begins = True
            continue
        name = token.lower().removesuffix("'s")
        if (
            token[0].isupper()
            and name not in _UNNAMED
            and (
                not begins or (token.endswith("'s") and name not in {"it", "what", "that", "there", "where", "who", "how", "when", "he", "she", "let", "here"})
            )
        ):
            found.append(name)
        begins = False
    return found
