"""Pieces that many slots' patterns share, written `<<number>>` in them; the patterns themselves are in `builtin.toml` and the settings."""

from __future__ import annotations

import re

EXPECTED_GROUPS = ("value", "key", "unit", "no")

_WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|"
    "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|dozen"
)
_NUMBER = rf"(?:[0-9][0-9,]*(?:\.[0-9]+)?k?\b|a (?:hundred|dozen|thousand)|(?:(?:{_WORDS})\b[ -]?(?:and )?)+)"
_NUMBER_ZH = "(?:[0-9][0-9,]*(?:\\.[0-9]+)?(?: ?[万千百])?|[零〇一二两三四五六七八九十百千万]+)"
_CURRENCY = "euros?|eur|dollars?|bucks|usd|pounds?|gbp|rmb|cny|yuan|yen|gold(?: coins?)?|coins?"
_CURRENCY_ZH = "美元|美金|欧元|英镑|日元|人民币|块钱|元钱|元|块|金币"
_MONTH = "[a-z][a-z][a-z]+"
"""Which words are months is told by `dates`: spelled out three times they would make these patterns too large."""

_DAY = "[0-9]+(?:st|nd|rd|th)?"
_WEEKDAY = "[a-z]+day"
_TIME = r"(?:[0-9]+(?:[:.][0-9][0-9])? ?[ap]\.?m\b|[0-9]+:[0-9][0-9]|noon|midnight)"
_DAY_EN = (
    rf"(?:[0-9]+-[0-9]+-[0-9]+|[0-9]+/[0-9]+(?:/[0-9]+)?|{_MONTH}\.? (?:the )?{_DAY}(?:,? [0-9]{{4}})?|"
    rf"(?:the )?{_DAY} (?:of )?{_MONTH}(?: [0-9]{{4}})?|{_WEEKDAY}|(?:the )?(?:day after )?tomorrow|today|tonight)"
)
_TIME_ZH = "(?:上午|早上|早晨|凌晨|中午|下午|傍晚|晚上)?(?:[0-9]+:[0-9]+|[0-9一-四]+[点时](?:半|一刻|[0-9一-四]+分?|整|钟)?)"
# The range from 一 to 四 holds all numerals up to 十 (and more, which `dates` refuses): ten characters one by one would make the patterns too large.
# It holds 号 and 上 as well, so a day ends at the first 日 or 号.
_DAY_ZH = (
    "(?:(?:[0-9]+年)?[0-9一-四]+?月(?:[0-9一-四]+?[日号]|[0-9]+)|"
    "(?:下个?|这个?|本)?(?:周|星期|礼拜)[一二三四五六日天]|大?后天|[今明][天晚]|[0-9]+-[0-9]+-[0-9]+)"
)

_SURNAMES_ZH = (
    "[王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩冯邓曹彭曾肖田董潘袁蔡蒋余于杜叶程魏苏吕丁任卢姚沈钟姜崔谭陆范汪"
    "廖石金韦贾夏付方邹熊白孟秦邱侯江尹薛阎段雷龙史陶贺顾毛郝龚邵万钱严武戴莫孔向汤]"
)
"""The hundred or so that most people have: `我是` alone begins too many other sentences."""

PIECES = {
    "number": _NUMBER,
    "number_zh": _NUMBER_ZH,
    "money": rf"(?P<value>[$€£¥]? ?{_NUMBER}) ?(?P<unit>{_CURRENCY}|[€$£])?",
    "money_zh": f"(?P<value>[$€£¥]?{_NUMBER_ZH}) ?(?P<unit>{_CURRENCY_ZH})?",
    "date": rf"(?:(?:next|this|the|coming) )?(?:{_DAY_EN}(?: (?:morning|afternoon|evening))?(?:,? (?:at )?{_TIME})?|{_TIME}(?: on {_WEEKDAY})?)",
    "date_zh": f"(?:{_DAY_ZH}的?(?:{_TIME_ZH})?|{_TIME_ZH})",
    "code": r"(?:[A-Z]+-?[0-9]+[A-Z]*(?:-[A-Z0-9]+)*|[0-9]{4,18}[A-Z]*(?:-[A-Z0-9]+)*|(?:[A-Z]+[0-9]+[A-Z]+|[0-9]+[A-Z][A-Z]+)[0-9][A-Z0-9]*)\b",
    "name": r"(?-i:[A-ZÀ-Þ][A-Za-zÀ-ɏ'-]+(?: [A-ZÀ-Þ][A-Za-zÀ-ɏ'-]+){0,2})",
    "name_zh": "(?:[一-鿿·]+|(?-i:[A-Z][A-Za-z]+(?: [A-Z][A-Za-z]+)?))",
    "surname_zh": _SURNAMES_ZH,
    "things": "(?:(?:[a-z-]+ )?[a-z-]+s|people)\\b",
    "event": "appointment|meeting|booking|reservation|flight|delivery|interview|check-?in|check-?out|birthday|train|lesson|wedding|viewing|table|visit",
    "event_zh": "预约|会议|会面|预订|航班|送货|配送|面试|入住|退房|生日|火车|课程|婚礼|看房|体检|约会",
    "extra": (
        "gift[ -]?wrap(?:ping)?|(?:travel )?insurance|invoice|receipt|newsletter|auto(?:matic)?[ -]?renewal|express (?:delivery|"
        "shipping)|breakfast|window seat|aisle seat|late check-?out|parking|notifications|reminders|sms alerts|extended warranty|"
        "airport (?:transfer|pick-?up)|extra bed|baby cot|child seat|half board|full board|checked bag(?:gage)?|delivery note"
    ),
    "extra_zh": "发票|礼品包装|礼盒包装|包装|保险|早餐|自动续费|加急|短信提醒|通知|靠窗座位|停车位|延保|接机|加床|儿童座椅|托运行李",
    "currency_zh": _CURRENCY_ZH,
    "measure_zh": "[个张本件条只台部份套盒瓶双间杯支箱把块匹头辆颗盏桶袋包罐碗盘幅枚束朵根卷顶副对片粒棵串款斤]",
    "allergen_zh": "海鲜|虾|蟹|鱼|花生|坚果|牛奶|乳糖|鸡蛋|小麦|麸质|大豆|芒果|青霉素|头孢|酒精|花粉|尘螨|灰尘|猫毛|狗毛|乳胶",
    "language": "english|chinese|mandarin|french|german|spanish|japanese|korean|italian|portuguese|russian|arabic",
    "language_zh": "英语|英文|中文|汉语|普通话|法语|法文|德语|德文|西班牙语|日语|日文|韩语|意大利语|葡萄牙语|俄语|阿拉伯语",
}
"""What `<<name>>` stands for. `money` brings its own groups; around the others a pattern writes `(?P<value>…)` itself."""

_PIECE = re.compile(r"<<([a-z_]+)>>")


_NUMERALS = (r"[0-9]", rf"\b(?:{_WORDS}|a (?:hundred|dozen|thousand))\b", "[零〇一二两三四五六七八九十百千万]")
SIGNS = {
    "(?P<value><<number>>)": _NUMERALS,
    "(?P<value><<number_zh>>)": _NUMERALS,
    "<<money>>": _NUMERALS,
    "<<money_zh>>": _NUMERALS,
    "(?P<value><<date>>)": ("[0-9]|day|tonight|noon|midnight|tomorrow",),
}
"""By how a pattern writes its value, what stands in every text that has one. These pieces hold no fixed text of their own that a filter could look for,
so that without their signs half of all messages would be read clause by clause for nothing."""


def expand(source: str) -> str:
    """The pattern with its pieces written out."""
    return _PIECE.sub(lambda match: f"(?:{PIECES[match[1]]})" if match[1] in PIECES else match[0], source)


def unknown_pieces(source: str) -> list[str]:
    """Names between `<<` and `>>` that stand for nothing."""
    return [name for name in _PIECE.findall(source) if name not in PIECES]
