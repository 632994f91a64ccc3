"""Work beside the loop: the interpreter is shared as it should be, and is as before afterwards."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

from agents.rules.courteous import SWITCH_S, courtesy, in_turns, let_go


class Piece:
    """Something that can be watched."""


def test_courtesy_ends() -> None:
    """Turns are short and long collections off within; after it, also after an error, all is as it was."""
    before = sys.getswitchinterval(), gc.get_threshold()
    try:
        with courtesy():
            assert sys.getswitchinterval() <= SWITCH_S * 1.01
            assert gc.isenabled()
            assert gc.get_threshold()[0] == before[1][0]
            assert min(gc.get_threshold()[1:]) > 10**6
            raise LookupError
    except LookupError:
        pass
    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_courtesy_leaves_what_others_set() -> None:
    """Who chooses another interval or other thresholds meanwhile keeps them."""
    before = sys.getswitchinterval(), gc.get_threshold()
    try:
        with courtesy():
            sys.setswitchinterval(0.002)
            gc.set_threshold(500, 20, 30)
        assert abs(sys.getswitchinterval() - 0.002) < 1e-6
        assert gc.get_threshold() == (500, 20, 30)
    finally:
        sys.setswitchinterval(before[0])
        gc.set_threshold(*before[1])


def test_others_get_a_turn_within_one_call() -> None:
    """A call that reads its items from `in_turns` does not keep the interpreter: another thread runs before it ends."""
    before = sys.getswitchinterval()
    go, ran = threading.Event(), threading.Event()

    def run() -> None:
        go.wait()
        ran.set()

    other = threading.Thread(target=run)
    other.start()
    sys.setswitchinterval(1000)  # nobody is let in who is not let in here
    try:
        go.set()
        assert any(ran.is_set() for _ in in_turns(range(5_000_000)))
    finally:
        sys.setswitchinterval(before)
        other.join()


def test_turns_change_nothing() -> None:
    """Every item, in order."""
    assert list(in_turns(range(120))) == list(range(120))


def test_pieces_are_let_go() -> None:
    """Nothing of the list is kept."""
    pieces = [Piece() for _ in range(120)]
    gone = [weakref.ref(piece) for piece in pieces]
    let_go(pieces)
    assert pieces == []
    assert all(one() is None for one in gone)
