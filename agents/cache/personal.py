"""Personal data that can be told by its form, in English and Chinese texts: what must not be kept or repeated to others; it masks nothing."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Literal

import msgspec

PersonalKind = Literal["email", "phone", "card", "national_id", "iban"]


class Personal(msgspec.Struct, frozen=True):
    """One find: characters `start` to `end` of the text that was searched."""

    kind: PersonalKind
    start: int
    end: int


MIN_DIGITS = 7
"""Nothing below but e-mail addresses has fewer: texts without them are passed over at once."""

MOST_IBAN_STARTS = 100
"""Beginnings of account numbers that are looked at, 20 µs each. A text of more is taken for one that holds a number: not to be kept is the safe side,
and an event loop does not wait 40 ms for an answer that is nothing but beginnings."""

_DIGIT_ROWS = (0x0660, 0x06F0, 0x0966, 0xFF10)
"""Arabic, Persian, Devanagari and full-width digits, each of which may spell a number."""

_PLAIN = {row + digit: str(digit) for row in _DIGIT_ROWS for digit in range(10)}
_PLAIN |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code not in _PLAIN}
_PLAIN |= dict.fromkeys((0x00A0, 0x2007, 0x202F, 0x3000), " ") | dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2212), "-")
"""One character for one, so that the places found are places in the text as it came."""

# Every repeat is bounded and starts at a character that its predecessor cannot take, so a search takes time in proportion to the text.
_EMAIL = re.compile(r"(?:[A-Za-z0-9._%+'-]{1,64}|(?<=[^\W\d_]))@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}")
"""Hosts in any writing (RFC 5890); of a person's part in another writing only the last letter is asked for, since words may stand before it unspaced."""

_DIGITS = re.compile(r"(?<![0-9])[0-9]{3,19}(?:[ -][0-9]{2,8}){0,6}(?![0-9])")
_CHINESE_ID = re.compile(r"(?<![0-9A-Za-z])[1-9][0-9]{5}((?:18|19|20)[0-9]{6})[0-9]{3}[0-9Xx](?![0-9A-Za-z])")
_US_SSN = re.compile(r"(?<![0-9-])(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![0-9-])")
_IBAN_START = re.compile(r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}(?= ?[0-9A-Za-z])")
_IBAN = re.compile(r"[A-Za-z]{2}[0-9]{2}(?: ?[0-9A-Za-z]){11,30}")
_PHONES = (
    re.compile(r"(?<![0-9A-Za-z])(?:\+|00(?=[1-9]))[0-9](?:[ ().-]{0,2}[0-9]){6,14}(?![0-9])"),
    re.compile(r"(?<![0-9])(?:86[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}(?![0-9])"),
    re.compile(r"(?<![0-9])0[0-9]{2,3}[ -]?[0-9]{7,8}(?![0-9])"),
    re.compile(r"(?<![0-9.])(?<![0-9][ -])(?:\([0-9]{2,5}\)[ .-]?|[0-9]{2,5}[ .-])[0-9]{3,4}[ .-][0-9]{4}(?![ .-]?[0-9])"),
    re.compile(
        r"(?i)(?:(?<![a-z])(?:phone|mobile|cell|tel|call|fax|whatsapp|wechat)|电话|手机|致电|拨打|座机|联系方式|微信)"
        r"[^0-9\n]{0,16}[0-9](?:[ ().-]{0,2}[0-9]){6,14}(?![0-9])"
    ),
)
"""International; mainland mobiles; mainland landlines; national ones written in groups; any number that the words before it call one."""

_CARD_LENGTHS = range(13, 20)
_CARD_STARTS = "23456"
"""First digits that banks' cards have: without them and the check digit every long order number would be a card."""


def find_personal(text: str) -> tuple[Personal, ...]:
    """Everything in `text` that looks like personal data, in the order of its place; one place may be found as two kinds."""
    return tuple(sorted(_search(text), key=lambda found: (found.start, found.end)))


def holds_personal(text: str) -> bool:
    """Whether there is any; stops at the first."""
    return next(_search(text), None) is not None


def _search(text: str) -> Iterator[Personal]:
    plain = text if text.isascii() else text.translate(_PLAIN)
    if "@" in plain:
        yield from (Personal("email", *found.span()) for found in _EMAIL.finditer(plain))
    if sum(map(plain.count, "0123456789")) < MIN_DIGITS:
        return
    for pattern in _PHONES:
        yield from (Personal("phone", *found.span()) for found in pattern.finditer(plain))
    yield from (Personal("national_id", *found.span()) for found in _CHINESE_ID.finditer(plain) if _is_date(found[1]))
    yield from (Personal("national_id", *found.span()) for found in _US_SSN.finditer(plain))
    for found in _DIGITS.finditer(plain):
        yield from _cards(found)
    for count, start in enumerate(_IBAN_START.finditer(plain)):
        if count == MOST_IBAN_STARTS:
            yield Personal("iban", *start.span())
            return
        if found_there := _IBAN.match(plain, start.start()):
            yield from _ibans(found_there)


def _is_date(digits: str) -> bool:
    try:
        datetime.date(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
    except ValueError:
        return False
    return True


def _cards(run: re.Match[str]) -> Iterator[Personal]:
    """Cards in a run of digits: it may go on with an expiry date or a check code, so each group may be the first or the last."""
    if len(run[0]) < _CARD_LENGTHS.start:
        return
    groups = [(group.start() + run.start(), group[0]) for group in re.finditer("[0-9]+", run[0])]
    for index, (start, _digits) in enumerate(groups):
        number = ""
        for place, digits in groups[index:]:
            number += digits
            if len(number) >= _CARD_LENGTHS.stop:
                break
            if len(number) in _CARD_LENGTHS and number[0] in _CARD_STARTS and _luhn(number):
                yield Personal("card", start, place + len(digits))


_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")
"""Each digit doubled, and the two digits of a double added up."""


def _luhn(number: str) -> bool:
    """ISO/IEC 7812-1, annex B. Over bytes: a text may hold hundreds of such runs, and an event loop waits for them."""
    digits = number.encode()
    return (sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED)) - ord("0") * len(digits)) % 10 == 0


_SHORTEST_IBAN = 15
_IBAN_DIVISOR = 97
_IBAN_SIGNS = {sign: (10 if int(sign, 36) < 10 else 100, int(sign, 36)) for sign in "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"}  # noqa: PLR2004  # letters are two digits
"""What a sign moves the number by, and what it adds."""


def _ibans(run: re.Match[str]) -> Iterator[Personal]:
    """An IBAN ends where a group ends; words may follow it, so the longest ending whose check digits are right counts (ISO 13616).

    The remainder is carried along, so that its endings cost nothing.
    """
    text = run[0]
    head = int("".join(str(int(sign, 36)) for sign in text[:4]))  # always six digits: two letters and two digits
    rest, count, found = 0, 4, 0
    for index, sign in enumerate(text[4:] + " ", 4):
        if sign == " ":
            if count >= _SHORTEST_IBAN and (rest * 1_000_000 + head) % _IBAN_DIVISOR == 1:
                found = index
            continue
        shift, value = _IBAN_SIGNS[sign]
        rest = (rest * shift + value) % _IBAN_DIVISOR
        count += 1
    if found:
        yield Personal("iban", run.start(), run.start() + found)
