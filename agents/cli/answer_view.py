"""How answers and dead letters look on a terminal: one line each, with a bar of where the time went; which are shown is up to `send`, `watch`, `demo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

PARTS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    ("queue", ("queue",), "·", "bright_black"),
    ("prepare", ("decode", "session", "safety_in", "schedule"), "╶", "cyan"),
    ("model queue", ("model_queue",), "░", "yellow"),
    ("prefill", ("prefill",), "▒", "blue"),
    ("generate", ("generate",), "█", "green"),
    ("finish", ("safety_out", "finish"), "▪", "magenta"),
)
"""A bar's parts in order: name, the stages it stands for, its glyph (so that it reads without colour too) and its colour."""

LATE = "bold red"

_OUTCOMES = {
    "model": "green",
    "rule": "green",
    "cache": "green",
    "partial": "yellow",
    "fallback_model": "yellow",
    "semantic_cache": "yellow",
    "default": "red",
    "refused": "magenta",
    "ack": "bright_black",
}

BAR_CELLS = 20

_WIDE = 110
"""Columns from which a line has room for a whole bar and some text; on 80 both are short, below that lines wrap."""

_TEXT_CELLS = 12
"""The least of a text that says something."""


def stage_bar(response: Mapping[str, Any], cells: int = BAR_CELLS) -> Text:
    """Where the time of an answer went, `cells` wide: the whole width is the budget, or the time taken when that was longer, its excess in red."""
    latency, budget = response["latency_ms"], float(response["deadline"]["budget_ms"])
    total = float(latency["total"])
    scale = max(budget, total)
    bar = Text("▕", style="bright_black")
    drawn, spent = 0, 0.0
    for _name, stages, glyph, style in PARTS:
        spent += sum(float(latency.get(stage, 0.0)) for stage in stages)
        until = min(round(cells * spent / scale), cells) if scale > 0 else 0
        due = round(cells * budget / scale) if budget > 0 and scale > 0 else 0
        in_time = max(0, min(until, due) - drawn)
        bar.append(glyph * in_time, style)
        bar.append(glyph * max(0, until - drawn - in_time), LATE)
        drawn = max(drawn, until)
    bar.append("─" * (cells - drawn), "bright_black")
    return bar.append("▏", "bright_black")


def legend() -> Text:
    """What a bar's parts stand for."""
    text = Text()
    for name, _stages, glyph, style in PARTS:
        text.append(f"{glyph} ", style).append(f"{name}  ", "bright_black")
    return text.append("─ time left", "bright_black")


def stage_list(response: Mapping[str, Any]) -> str:
    """The parts that took time, as `queue 2 · prefill 60 · generate 340 ms`; with the rungs' own, where another than the one that answered took some."""
    latency = response["latency_ms"]
    spent = [(name, sum(float(latency.get(stage, 0.0)) for stage in stages)) for name, stages, _glyph, _style in PARTS]
    shown = [f"{name} {ms:.0f}" for name, ms in spent if ms >= 1] or [f"total {float(latency['total']):.1f}"]
    return f"{' · '.join(shown)} ms{_rung_list(response)}"


def _rung_list(response: Mapping[str, Any]) -> str:
    """`, of it main 412 (cut), fallback 80`: the stages alone would read as if the one that answered had taken all."""
    took = [step for step in response["rungs"] if float(step["ms"]) >= 1]
    if all(step["verdict"] == "answered" for step in took):
        return ""
    each = (f"{plain_line(str(step['rung']))} {float(step['ms']):.0f}{_ending(str(step['verdict']))}" for step in took)
    return f", of it {', '.join(each)}"


def _ending(verdict: str) -> str:
    return "" if verdict == "answered" else f" ({plain_line(verdict)})"


def outcome_text(response: Mapping[str, Any]) -> Text:
    """The outcome and its reason, coloured by how good it is."""
    outcome, reason = str(response["outcome"]), response["reason"]
    text = Text(outcome, style=_OUTCOMES.get(outcome, "cyan"))
    return text.append(f" {reason}", "bright_black") if reason else text


def time_text(response: Mapping[str, Any], form: str = "{:5.0f}/{:<5.0f} ms") -> Text:
    """Time taken and budget, in ms; red when the deadline was missed."""
    deadline = response["deadline"]
    return Text(form.format(float(response["latency_ms"]["total"]), float(deadline["budget_ms"])), style="" if deadline["met"] else LATE)


def answer_line(when: str, response: Mapping[str, Any], width: int) -> Text:
    """One answer in one line of `width` cells."""
    name, outcome, bar = (12, 19, BAR_CELLS) if width >= _WIDE else (8, 16, BAR_CELLS // 2)
    line = Text(f"{when} ", style="bright_black", no_wrap=True, overflow="ellipsis")
    line.append(_cell(str(response["session_id"]), name), "bold").append(" ")
    line.append_text(_padded(outcome_text(response), outcome)).append(" ")
    line.append_text(time_text(response)).append(" ").append_text(stage_bar(response, bar)).append(" ")
    text = str(response["text"]) or f"({response['kind']})"
    return line.append(_cell(plain_line(text), max(width - line.cell_len, _TEXT_CELLS)).rstrip(), "default")


def dead_letter_line(when: str, headers: Mapping[str, str], value: bytes | None, width: int) -> Text:
    """One dead letter in one line: why, and the first bytes as they came."""
    line = Text(f"{when} ", style="bright_black", no_wrap=True, overflow="ellipsis")
    line.append(_cell("dead letter", 12), "bold red").append(" ").append(_cell(headers.get("reason", "?"), 19), "red").append(" ")
    shown = "null" if value is None else plain_line(value[:200].decode("utf-8", "replace")) or "(empty)"
    line.append(_cell(headers.get("detail", ""), max(width - line.cell_len - _TEXT_CELLS - 2, 0)).rstrip(), "default").append("  ")
    return line.append(_cell(shown, max(width - line.cell_len, _TEXT_CELLS)).rstrip(), "bright_black")


def plain_line(text: str) -> str:
    """A person's or a model's text in one line, without what could steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def plain_text(text: str) -> str:
    """The same with its line breaks kept."""
    return "\n".join("".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in text.splitlines())


def reasons(headers: tuple[tuple[str, bytes], ...], prefix: str) -> dict[str, str]:
    """A dead letter's own headers, without their prefix."""
    return {name.removeprefix(prefix): value.decode("utf-8", "replace") for name, value in headers if name.startswith(prefix) and value is not None}


def _cell(text: str, cells: int) -> str:
    """Exactly `cells` wide, wide characters counted as two; cut with an ellipsis."""
    text = plain_line(text)
    if cells < 1:
        return ""
    return set_cell_size(text, cells) if cell_len(text) <= cells else f"{set_cell_size(text, cells - 1)}…"


def _padded(text: Text, cells: int) -> Text:
    text.truncate(cells, overflow="ellipsis", pad=True)
    return text
