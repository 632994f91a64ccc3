"""How `top` looks: the figures as panels that fit an 80-column screen; the figures themselves are `top_figures`."""

from __future__ import annotations

import time

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agents.cli.answer_view import plain_text
from agents.cli.top_figures import Figures, Rate, Spread, WorkerRow

DIM, BAD, GOOD = "bright_black", "bold red", "green"

LINES = 9
"""Outcomes that are listed: beyond them are combinations of outcome and reason that hardly occur."""

BAR_CELLS = 16

_STATES = {"ready": GOOD, "not ready": "yellow", "down": BAD, "starting": "yellow", "restarting": BAD, "stopped": BAD}


def top_view(figures: Figures) -> Group:
    """The whole screen."""
    when = "the same" if figures.window == "interval" else "all since the start (idle now)"
    head = Text.assemble(("answerby ", "bold"), (time.strftime("%H:%M:%S"), DIM), (f"  rates over {figures.interval_s:.1f} s, times of {when}", DIM))
    parts: list[RenderableType] = [head, *(_worker_line(worker) for worker in figures.workers)]
    if any(worker.state != "down" for worker in figures.workers):
        parts += [
            Columns([_events(figures), _deadlines(figures)], padding=(0, 1)),
            Columns([_stages(figures), _engine_work(figures)], padding=(0, 1)),
            _engines(figures),
        ]
    return Group(*parts)


def _worker_line(worker: WorkerRow) -> Text:
    line = Text.assemble((f"{worker.state:9} ", _STATES.get(worker.state, "")), plain_text(worker.url))
    if worker.why:
        return line.append(f"  {plain_text(worker.why)}", DIM)
    numbers = ", ".join(map(str, worker.partitions)) or "none"
    return line.append(f"  partitions {numbers}", DIM).append("" if worker.recovery == "done" else f"  recovery {plain_text(worker.recovery)}", "yellow")


def _events(figures: Figures) -> Panel:
    table = _table("outcome", "/s", "total", "share")
    whole = figures.events.total
    for row in figures.outcomes[:LINES]:
        name = row.outcome if row.reason == "none" else f"{row.outcome} {row.reason}"
        table.add_row(Text(plain_text(name)), *_rate(row.count), f"{row.count.total / whole:.1%}" if whole else "")
    table.add_row("all", *_rate(figures.events), "", style="bold")
    for reason, count in figures.dead_letters.items():
        table.add_row(Text(f"dead letter {plain_text(reason)}", style="magenta"), *_rate(count), "")
    return Panel(table, title="events", title_align="left", border_style=DIM)


def _deadlines(figures: Figures) -> Panel:
    table = _table("response ms", "p50", "p99")
    for spread in figures.response[:LINES]:
        table.add_row(Text(plain_text(spread.name)), _number(spread.p50), _number(spread.p99))
    late = figures.slack_p1_ms is not None and figures.slack_p1_ms < 0
    facts = Table.grid(padding=(0, 2))
    facts.add_row("slack p1", Text(f"{_number(figures.slack_p1_ms)} ms", BAD if late else ""))
    facts.add_row("slack p50", f"{_number(figures.slack_p50_ms)} ms")
    facts.add_row("missed", Text(f"{figures.missed.total:.0f} ({figures.missed.per_s:.1f}/s)", BAD if figures.missed.per_s else ""))
    facts.add_row("reserve", f"{figures.reserve_ms:.1f} ms")
    return Panel(Group(table, Text(), facts), title="deadlines", title_align="left", border_style=DIM)


def _stages(figures: Figures) -> Panel:
    table = _table("stage ms", "p50", "p99", "")
    shown = [spread for spread in figures.stages if spread.p99 is not None]
    longest = max((spread.p99 or 0.0 for spread in shown), default=0.0)
    for spread in shown:
        table.add_row(Text(plain_text(spread.name)), _number(spread.p50), _number(spread.p99), _bar(spread, longest))
    return Panel(table, title="stages: █ p50, ─ p99", title_align="left", border_style=DIM)


def _engine_work(figures: Figures) -> Panel:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("running / waiting", f"{figures.running:.0f} / {figures.waiting:.0f}, in flight {figures.in_flight:.0f}")
    facts.add_row("batch", f"{_number(figures.batch_mean)} a step, step p50 {_number(figures.step_p50_ms)} ms")
    for kind, count in figures.tokens.items():
        facts.add_row(Text(f"{plain_text(kind)} tokens"), f"{count.per_s:.0f}/s, {count.total:.0f} in all")
    facts.add_row("prefix cache hits", _percent(figures.prefix_hit))
    kept = figures.promises_kept
    facts.add_row("promises kept", Text(_percent(kept), BAD if kept is not None and kept < 0.995 else ""))  # noqa: PLR2004  # one in 200
    facts.add_row("step error p50", _percent(figures.step_error_p50))
    facts.add_row("first token error p50", _percent(figures.first_token_error_p50))
    facts.add_row("loop lag p99", f"{_number(figures.loop_lag_p99_ms)} ms, worker {figures.worker_bytes / 1e6:.0f} MB")
    if figures.kv_cache_bytes:
        facts.add_row("KV cache", f"{figures.kv_cache_bytes / 1e6:.0f} MB reserved")
    return Panel(facts, title="engine work", title_align="left", border_style=DIM)


def _engines(figures: Figures) -> Panel:
    table = _table("engine", "state", "pid", "restarts", "memory")
    for row in figures.engines:
        name = Text(f"{plain_text(row.model)} {plain_text(row.version)} /{row.replica}")
        restarts = Text(str(row.restarts), "yellow" if row.restarts else "")
        table.add_row(name, Text(row.state, _STATES.get(row.state, "")), str(row.pid or ""), restarts, f"{row.rss_bytes / 1e6:.0f} MB")
    return Panel(table, title="engines", title_align="left", border_style=DIM)


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=None, pad_edge=False, header_style=DIM)
    for name in others:
        table.add_column(name, justify="right" if name else "left")
    return table


def _rate(rate: Rate) -> tuple[str, str]:
    return f"{rate.per_s:.1f}", f"{rate.total:.0f}"


def _bar(spread: Spread, longest: float) -> Text:
    if longest <= 0:
        return Text("")
    full = round(BAR_CELLS * (spread.p50 or 0.0) / longest)
    return Text("█" * full, GOOD).append("─" * max(0, round(BAR_CELLS * (spread.p99 or 0.0) / longest) - full), "yellow")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
