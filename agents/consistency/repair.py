"""An answer mended by rule: wrong names, codes and numbers replaced by the known ones; whether there is anything to mend is `check`."""

from __future__ import annotations

from collections.abc import Sequence

from agents.consistency.contradiction import Contradiction


def repair(answer: str, contradictions: Sequence[Contradiction]) -> str | None:
    """`answer` with every contradiction replaced; None unless each one can be, for half a repair is a new contradiction.

    The caller checks the result again: a second `check` that finds nothing is the proof.
    """
    if not contradictions:
        return answer
    mended = answer
    before = len(answer) + 1
    for contradiction in sorted(contradictions, key=lambda contradiction: contradiction.start, reverse=True):
        if contradiction.replacement is None or contradiction.end > before:
            return None
        mended = mended[: contradiction.start] + contradiction.replacement + mended[contradiction.end :]
        before = contradiction.start
    return mended
