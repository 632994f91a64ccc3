"""How a cost profile looks on a terminal: a table and bars of its steps; measuring one is `calibrate`."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from schemas.cost import CostProfile, StepCost

BAR_CELLS = 40


def profile_tree(profile: CostProfile) -> dict[str, Any]:
    """For programs: times in milliseconds, rates a second."""
    return {
        "model": profile.model,
        "version": profile.version,
        "threads": profile.threads,
        "prefill_chunk": profile.prefill_chunk,
        "cpu": profile.cpu,
        "measured_at": profile.measured_at,
        "prefill_token_ms": round(profile.prefill_token_s * 1000, 3),
        "prefill_spread": round(profile.prefill_spread, 2),
        "chars_per_token": round(profile.chars_per_token, 2),
        "steps": [
            {"batch": step.batch, "median_ms": round(step.median * 1000, 2), "p99_ms": round(step.p99 * 1000, 2), "tokens_s": round(tokens_s(step), 1)}
            for step in profile.steps
        ],
    }


def tokens_s(step: StepCost) -> float:
    """Tokens a second of a batch that decodes; 0 for a scripted engine that takes no time."""
    return step.batch / step.median if step.median > 0 else 0.0


def profile_view(profile: CostProfile) -> Group:
    """Everything a profile says: first for whom, then decoding by batch size, then reading."""
    head = Text(f"{profile.model} {profile.version}, {profile.threads} thread{'s' * (profile.threads > 1)}, chunk {profile.prefill_chunk}, on {profile.cpu}")
    longest = max((step.p99 for step in profile.steps), default=0.0)
    table = Table("batch", "step ms", "p99 ms", "tokens/s", "step time: █ median, ─ p99", box=None, pad_edge=False, header_style="bright_black")
    for column in table.columns[:4]:
        column.justify = "right"
    for step in profile.steps:
        figures = (f"{step.median * 1000:.1f}", f"{step.p99 * 1000:.1f}", f"{tokens_s(step):.0f}")
        table.add_row(str(step.batch), *figures, bar(step.median, step.p99, longest))
    reading = (
        f"reading: {profile.prefill_token_s * 1000:.2f} ms a prompt token (spread {profile.prefill_spread:.1f}), {profile.chars_per_token:.1f} chars a token"
    )
    return Group(head, table, Text(reading))


def bar(median: float, p99: float, longest: float, cells: int = BAR_CELLS) -> Text:
    """A median as a full bar and its tail behind it, `longest` being the whole width."""
    if longest <= 0:
        return Text("")
    full, until = round(cells * median / longest), round(cells * p99 / longest)
    return Text("█" * full, style="green").append("─" * max(0, until - full), "yellow")
