"""Lines and bars on a terminal: always as wide as asked for, readable without colour, and unable to steer the terminal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from agents.cli.answer_view import LATE, PARTS, answer_line, dead_letter_line, plain_line, plain_text, reasons, stage_bar, stage_list, time_text
from schemas.dead_letters import HEADER_PREFIX
from schemas.responses import STAGES, DeadlineReport, Latency, ModelRef, Response, Usage


def response(text: str = "Hello!", budget: float = 1000.0, met: bool = True, outcome: Any = "model", session: str = "s-1", **stages: float) -> dict[str, Any]:
    """A response as a consumer sees it."""
    full = Response(
        response_id="r",
        event_id="e",
        session_id=session,
        tenant="default",
        kind="message",
        metadata={},
        outcome=outcome,
        degraded=False,
        reason=None,
        text=text,
        data=None,
        finish_reason="stop",
        model=ModelRef("m", "1"),
        usage=Usage(),
        deadline=DeadlineReport(budget, 0, 0, met),
        latency_ms=Latency(**stages, total=sum(stages.values())),
        rungs=(),
        disclosure="",
    )
    tree: dict[str, Any] = msgspec.to_builtins(full)
    return tree


def glyphs(bar: Text) -> str:
    """What is between the bar's ends."""
    return bar.plain[1:-1]


def test_every_stage_is_in_exactly_one_part() -> None:
    """A bar leaves no stage out and counts none twice."""
    assert sorted(stage for _name, stages, _glyph, _style in PARTS for stage in stages) == sorted(STAGES)


def test_a_bar_shows_where_the_time_went() -> None:
    """Parts are drawn in order, each as long as its share of the budget; the rest is free."""
    bar = glyphs(stage_bar(response(queue=100, prefill=200, generate=400), cells=20))
    assert bar == "··▒▒▒▒████████──────"


def test_what_came_after_the_due_is_red() -> None:
    """A late answer fills the bar, and the part beyond its budget is marked."""
    bar = stage_bar(response(budget=500, met=False, queue=250, generate=750), cells=20)
    assert glyphs(bar) == "·" * 5 + "█" * 15
    late = [bar.plain[span.start : span.end] for span in bar.spans if span.style == LATE]
    assert late == ["█" * 10]


@given(st.lists(st.floats(0, 1e6), min_size=len(STAGES), max_size=len(STAGES)), st.floats(-1e4, 1e6), st.integers(1, 60), st.booleans())
def test_a_bar_is_as_wide_as_asked_for(times: list[float], budget: float, cells: int, met: bool) -> None:
    """Whatever the times and the budget, also none or less than none, a bar keeps its width."""
    bar = stage_bar(response(budget=budget, met=met, **dict(zip(STAGES, times, strict=True))), cells)  # type: ignore[arg-type]
    assert len(bar.plain) == cells + 2


HOSTILE = ["\x1b[2J\x1b]0;owned\x07text", "line\r\nbreak\x00", "[red]markup[/red]", "好" * 80, "e\u0301" * 40, "\u202eabc\u200b", "🦊" * 50, ""]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("width", [80, 140])
def test_a_line_stays_one_line(text: str, width: int) -> None:
    """A person's or a model's text neither breaks the line, nor its width, nor reaches the terminal as a command."""
    line = answer_line("12:00:00", response(text, session=text or "s", generate=5), width)
    assert line.cell_len <= width
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(line, soft_wrap=True)
    shown = capture.get()
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    assert "\x07" not in shown
    dead = dead_letter_line("12:00:00", {"reason": "undecodable", "detail": text}, text.encode("utf-8", "replace"), width)
    assert dead.cell_len <= width
    assert "\n" not in dead.plain
    assert "\x1b" not in dead.plain


def test_an_answer_without_text_says_what_it_answers() -> None:
    """An acknowledgement has no text; the kind of its event stands there."""
    assert answer_line("now", response("", outcome="ack"), 120).plain.endswith("(message)")


def test_a_null_value_is_told_from_an_empty_one() -> None:
    """A dead letter's line says which it was."""
    assert dead_letter_line("now", {"reason": "undecodable"}, None, 120).plain.endswith("null")
    assert dead_letter_line("now", {"reason": "undecodable"}, b"", 120).plain.endswith("(empty)")


def test_only_parts_that_took_time_are_listed() -> None:
    """The list under a bar names what is worth a look, and the total when nothing is."""
    assert stage_list(response(queue=2.4, decode=0.1, generate=340)) == "queue 2 · generate 340 ms"
    assert stage_list(response(decode=0.2)) == "total 0.2 ms"


def test_time_of_a_rung_that_did_not_answer_is_told_as_its_own() -> None:
    """Behind a fallback's name the main model's time does not read as the fallback's; one rung that answered needs no list."""
    cut = {"rung": "main", "verdict": "cut", "ms": 412.2, "why": "silent"}
    skipped = {"rung": "cache", "verdict": "skipped", "ms": 0.1, "why": "a miss"}
    answered = {"rung": "fallback", "verdict": "answered", "ms": 80.0, "why": "stop"}
    told = response(prefill=60, generate=430)
    assert stage_list({**told, "rungs": [skipped, cut, answered]}) == "prefill 60 · generate 430 ms, of it main 412 (cut), fallback 80"
    assert stage_list({**told, "rungs": [skipped, answered]}) == "prefill 60 · generate 430 ms"


def test_a_missed_deadline_is_red() -> None:
    """The time of an answer that was late is marked."""
    assert time_text(response(met=False)).style == LATE
    assert time_text(response()).style == ""


def test_texts_keep_their_line_breaks_where_there_is_room() -> None:
    """A whole answer keeps its lines, an excerpt has one; both lose control characters."""
    assert plain_text("one\x1b[31m\ntwo\x07 \n") == "one [31m\ntwo"
    assert plain_line("one\n\ttwo\x00") == "one two"


def test_a_dead_letter_s_own_headers_are_read_without_trust() -> None:
    """Headers may be anything: other names are left out, odd bytes replaced, null skipped."""
    headers: Any = (("answerby.reason", b"undecodable"), ("answerby.detail", b"\xff"), ("answerby.size", None), ("other", b"x"))
    assert reasons(headers, HEADER_PREFIX) == {"reason": "undecodable", "detail": "\ufffd"}
