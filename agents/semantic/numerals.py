"""Numbers that a text names, in digits, English words or Chinese numerals, all in one form; whether two texts agree on them is `guards`."""

from __future__ import annotations

import functools
import re

from agents.semantic.lexicon import idioms

_SMALL = dict(
    zip(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(),
        range(20),
        strict=True,
    )
)  # one row reads best
_TENS = dict(zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True))
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000, "k": 1000, "grand": 1000}
_ALONE = {"half": "0.5", "quarter": "0.25", "double": "x2", "twice": "x2", "triple": "x3", "dozen": "12", "couple": "2", "once": "x1", "thrice": "x3"}
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()

_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2, "仨": 3}
_POWERS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_CHINESE_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千万亿俩仨]+(?:点[零〇一二三四五六七八九]+(?![十百分]))?")
_SCALED = re.compile(r"(\d+(?:\.\d+)?) ?([百千万亿])")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SUFFIXED = re.compile(
    r"(?<![a-z\d.-])(\d+(?:\.\d+)?)(kg|km|cm|mm|ml|lbs|lb|oz|gb|mb|tb|kb|hrs|hr|mins|min|secs|sec|usd|eur|rmb|k|g|m|h|s|am|pm|st|nd|rd|th)(?![a-z\d])"
)
_FULL = {"g": "gram", "m": "meter", "h": "hour", "hrs": "hour", "s": "seconds", "secs": "seconds", "sec": "seconds", "mins": "minute", "lbs": "lb"}
_TIME = re.compile(r"(?<![t\d:])(\d{1,2})(?::(\d\d))? ?(a\.?m\b\.?|p\.?m\b\.?)|(?<![t\d:])(\d{1,2}):(\d\d)(?![\d:])")
_CHINESE_TIME = re.compile(r"(上午|早上|早晨|凌晨|中午|下午|傍晚|晚上|夜里)?(\d{1,2})(?:点钟?|时)(?:(半)|(\d{1,2})分?|整)?(?![小候间])")
_TOKEN = re.compile(r"t\d+:\d\d|(?<![a-z\d.])#?\d+(?:\.\d+)?%?(?:st|nd|rd|th)?|[a-z]+(?:-[a-z]+)*")
_NOT_ONE = re.compile(r"\b(?:this|that|which|the|any|no|each|every|some|another|new|other|right|wrong|old) one\b|\bone (?:of|another|day)\b")
_ONE = re.compile(r"\bone\b|1(?=[个位张件条款种份家只台部])")
"""A lone `one` is an article: `a party`, `one party`, `一个队伍`."""

_HOURS_OF_HALF_DAY = 12


def spell_digits(folded: str) -> str:
    """A folded text with Chinese numerals, grouped digits, suffixes and times of day in plain digits."""
    text = folded
    text = _sayings().sub(" ", text)
    text = _GROUPED.sub("", text)
    text = re.sub(r"(?<!\d )\bsecond\b", "2nd", text)  # not the unit, which comes in numbers
    text = re.sub(r"百分之([零〇一二两三四五六七八九十百\d.]+)", r"\1%", text)
    text = _SUFFIXED.sub(lambda match: f"{match[1]}{_spaced(match[2])}", text)
    text = _SCALED.sub(lambda match: _plain(float(match[1]) * _POWERS[match[2]]), text)
    text = _CHINESE_NUMBER.sub(lambda match: _read_chinese(match[0]), text)
    text = re.sub(r"(\d)个半", r"\1.5个", text).replace("半个", "0.5个").replace("半小时", "0.5小时").replace("半年", "0.5年")
    text = _CHINESE_TIME.sub(_as_time, text)
    text = re.sub(r"(\d) ?percent\b", r"\1%", text)
    return _TIME.sub(_as_english_time, text)


def find_numbers(spelled: str) -> tuple[str, ...]:
    """The numbers of a text that `spell_digits` has been over, in its order: `2 adults, 3 children` is not `3 adults, 2 children`.

    `5` and `five`, `2k` and `two thousand`, `一百` and `100` are alike; percentages, ordinals (`第3` as `3rd`), times of day and factors are their own kinds.
    """
    text = re.sub(r"第 ?(\d+)", r" \1th ", _NOT_ONE.sub(" ", spelled))
    found: list[str] = []
    run: list[str] = []
    for token in _TOKEN.findall(text):
        parts = token.split("-")
        if token[0].isalpha() and all(part in _SMALL or part in _TENS or part in _SCALES for part in parts):
            run += parts
            continue
        if run and token == "and" and run[-1] in _SCALES:
            continue
        if run and token == "percent":
            found += [f"{number}%" for number in _close(run)]
            run = []
            continue
        if run and re.fullmatch(r"\d+(\.\d+)?", token) is None:
            found += _close(run)
            run = []
        if token[0].isalpha() and not re.match(r"t\d", token):
            found += [_ALONE[token]] if token in _ALONE else [f"{_ORDINALS.index(token) + 1}th"] if token in _ORDINALS else []
        elif re.fullmatch(r"\d+(\.\d+)?", token):
            found += _close(run)
            run = [token]
        else:
            found.append(re.sub(r"(st|nd|rd|th)$", "th", token.lstrip("#")))
    found += _close(run)
    return () if found == ["1"] and _ONE.search(text) else tuple(found)


@functools.cache
def _sayings() -> re.Pattern[str]:
    """Chinese sayings; one that begins or ends with a numeral is none inside a longer numeral (`八万一千` holds no `万一`)."""
    numeral = f"[{''.join((*_DIGITS, *_POWERS))}\\d]"
    found = sorted((saying for saying in idioms() if not saying.isascii()), key=len, reverse=True)
    return re.compile("|".join(_outside_numerals(saying, numeral) for saying in found))


def _outside_numerals(saying: str, numeral: str) -> str:
    before = f"(?<!{numeral})" if re.match(numeral, saying) else ""
    behind = f"(?!{numeral}|钟)" if re.match(numeral, saying[-1]) or saying == "十分" else ""
    return before + saying + behind


def _close(run: list[str]) -> list[str]:
    """The value of a run of English number words, digits perhaps first."""
    if not run:
        return []
    total, current = 0.0, 0.0
    for word in run:
        if word in _SCALES:
            current = (current or 1) * _SCALES[word]
            if _SCALES[word] > 100:  # noqa: PLR2004  # a hundred stays within its thousand
                total, current = total + current, 0.0
        else:
            current += _SMALL.get(word, _TENS.get(word, 0)) if word.isalpha() else float(word)
    return [_plain(total + current)]


def _read_chinese(text: str) -> str:
    whole, _, fraction = text.partition("点")
    if not any(char in _POWERS for char in whole):
        value = float("".join(str(_DIGITS[char]) for char in whole) or 0)
    else:
        value = _read_powers(whole)
    return _plain(value) if not fraction else f"{_plain(value)}.{''.join(str(_DIGITS[char]) for char in fraction)}"


def _read_powers(text: str) -> float:
    """`三千五` is 3500: a digit behind a power stands for tenths of it, unless a zero is between."""
    total, section, digit, last = 0.0, 0.0, 0.0, 10.0
    for char in text:
        if char in _DIGITS:
            digit = _DIGITS[char]
            last = 10.0 if digit == 0 else last
        elif _POWERS[char] >= 10_000:  # noqa: PLR2004  # 万 and 亿 close a section
            total = (total + section + digit or 1) * _POWERS[char]
            section, digit, last = 0.0, 0.0, float(_POWERS[char])
        else:
            section += (digit or 1) * _POWERS[char]
            digit, last = 0.0, float(_POWERS[char])
    return total + section + digit * (last / 10 if last > 10 else 1)  # noqa: PLR2004  # behind ten come ones


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _spaced(suffix: str) -> str:
    return suffix if suffix in ("st", "nd", "rd", "th") else f" {'thousand' if suffix == 'k' else _FULL.get(suffix, suffix)} "


def _as_time(match: re.Match[str]) -> str:
    part, hour, half, minutes = match[1], int(match[2]), match[3], match[4]
    if part in ("下午", "傍晚", "晚上", "夜里") and hour < _HOURS_OF_HALF_DAY:
        hour += _HOURS_OF_HALF_DAY
    return f" t{hour}:{30 if half else int(minutes or 0):02d} {part or ''} "


def _as_english_time(match: re.Match[str]) -> str:
    if match[4]:
        return f" t{int(match[4])}:{match[5]} "
    hour = int(match[1]) % _HOURS_OF_HALF_DAY + (_HOURS_OF_HALF_DAY if match[3].startswith("p") else 0)
    return f" t{hour}:{match[2] or '00'} "
