"""When two texts are the same question: width, blanks and a first word's capital do not count, all else does; the whole key is `agents.cache.key`."""

from __future__ import annotations

import unicodedata

_WIDTHS = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (0x00A0, 0x2007, 0x202F, *range(0xFF01, 0xFFEF))
    if unicodedata.decomposition(chr(code)).startswith(("<wide>", "<narrow>", "<noBreak>"))
}
"""Full and half width, and blanks that do not break. The rest of NFKC is left out: it makes 10⁵ the number 105, and 2½ the number 21⁄2."""

_WIDTHS[0x3000] = " "

_PLAIN_FIRST_WORDS = frozenset(
    "an and are can could did do does give hello hey hi how i if in is my of on or please should tell thank thanks that the there this to was we were what "
    "when where which who whose why with would you your".split()
)
"""Words whose capital at the start of a text says only that the text begins there. Names and words that a capital turns into one
(Polish, May, US, Will) are not among them: those texts stay apart, which costs a hit and never gives a wrong one."""


def normalise_text(text: str) -> str:
    """The form in which texts are compared; never shown to a model or a person.

    A text of one line loses doubled blanks. In one of several lines blanks may carry meaning (code, tables): only the ends
    of lines and of the text are trimmed.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", text.translate(_WIDTHS))
    lines = text.strip().splitlines()
    text = " ".join(text.split()) if len(lines) <= 1 else "\n".join(line.rstrip() for line in lines)
    first, blank, rest = text.partition(" ")
    if first[:1].isupper() and first.lower() in _PLAIN_FIRST_WORDS and first[1:].islower() == (len(first) > 1):
        return first.lower() + blank + rest
    return text
