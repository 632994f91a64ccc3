"""Long work in a thread beside the event loop, such that the loop gets the interpreter whenever it wants it; starting such a thread is `apart`."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

SWITCH_S = 0.0005
"""How long Python code here may keep the interpreter while the loop wants it. Python's own 5 ms would meet every single turn of the loop. Shorter costs
more switches and gains nothing: the system's own scheduling is as coarse."""

_NEVER = 10**9
"""Of collections of the youngest objects before one of the older: with 100,000 objects in the making that is a pause of 5 to 20 ms. The youngest are
collected as ever, which takes tuples of plain values off the collector's list, so that no long pause is left for later."""

_AT_ONCE = 50
"""Things after which others are let in without being asked for; it takes a microsecond."""

Item = TypeVar("Item")


@contextmanager
def courtesy() -> Iterator[None]:
    """Turns of `SWITCH_S`, and no long pauses of the cyclic collector; what the loop leaves behind in older rings is collected a few seconds later."""
    switch_s, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(switch_s, SWITCH_S))
    gc.set_threshold(thresholds[0], _NEVER, _NEVER)
    mine = sys.getswitchinterval(), gc.get_threshold()
    try:
        yield
    finally:  # what somebody else has set since stays
        if sys.getswitchinterval() == mine[0]:
            sys.setswitchinterval(switch_s)
        if gc.get_threshold() == mine[1]:
            gc.set_threshold(*thresholds)


def let_others_in() -> None:
    """In a thread this gives the loop its turn now and not when it has waited for one."""
    time.sleep(0)


def in_turns(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, others let in between: for a library that holds the interpreter from the first of thousands to the last."""
    for count, item in enumerate(items):
        if count % _AT_ONCE == 0:
            let_others_in()
        yield item


def let_go(pieces: list[Any]) -> None:
    """Empty the list bit by bit: freed at once, the pieces of 5,000 rules hold the interpreter for 40 ms."""
    while pieces:
        pieces.pop()
        if len(pieces) % _AT_ONCE == 0:
            let_others_in()
