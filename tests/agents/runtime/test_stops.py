"""Stop strings never leak and never swallow harmless text, however the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.runtime.stops import StopCutter


def _through(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, int, bool, list[str]]:
    cutter = StopCutter(stops)
    out: list[str] = []
    tokens = 0
    for piece in pieces:
        released = cutter.feed(piece)
        out.append(released.text)
        tokens += released.tokens
        if released.stopped:
            return "".join(out), tokens, True, out
    rest = cutter.flush()
    return "".join([*out, rest.text]), tokens + rest.tokens, False, out


def test_stop_across_three_pieces_ends_before_it() -> None:
    """What began as the stop string is never shown."""
    text, tokens, stopped, out = _through(("\nUser:",), ["Hi\nUs", "er", ": x"])
    assert (text, tokens, stopped) == ("Hi", 1, True)
    assert out == ["Hi", "", ""]


def test_harmless_beginning_of_a_stop_is_released() -> None:
    """Held-back text that turns out to be something else comes out whole."""
    assert _through(("\nUser:",), ["Hi", "\nUs", "ual"])[:3] == ("Hi\nUsual", 3, False)


def test_held_back_text_comes_out_at_the_end() -> None:
    """A text that ends in half a stop string keeps that half."""
    assert _through(("\nUser:",), ["Hi", "\nUser"])[:3] == ("Hi\nUser", 2, False)


def test_stop_inside_one_token_ends_there() -> None:
    """A token that holds the stop string gives what came before it."""
    assert _through(("END",), ["a bENDc"])[:3] == ("a b", 1, True)


def test_overlapping_stops_end_at_the_first() -> None:
    """The earliest stop string wins."""
    assert _through(("bc", "abcd"), ["xabcd"])[0] == "x"


def test_empty_stops_are_ignored() -> None:
    """An empty string would stop everything."""
    assert _through(("",), ["a", "b"])[:3] == ("ab", 2, False)


@given(st.lists(st.text("ab\n", max_size=3), max_size=20), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_streamed_text_is_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    """For any cut and any stops no stop string is in the output, and nothing but a stop is missing from it."""
    text, _, stopped, _ = _through(tuple(stops), pieces)
    whole = "".join(pieces)
    assert whole.startswith(text)
    assert not any(stop in text for stop in stops)
    assert stopped == any(stop in whole for stop in stops)
    if not stopped:
        assert text == whole
