"""What `calibrate --explore` shows on a terminal: every setting with its predictions, and the lines to put into the settings; the drawing is `explore_svg`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agents.models.explore import Advice, Candidate
from schemas.settings import Model

BAR_CELLS = 3

SHOWN = 12
"""Settings in the table: the others are worse, and a screen has an end."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_GOOD, _FAIR = 0.95, 0.7


def explore_view(candidates: Sequence[Candidate], advice: Advice) -> Group:
    """The best settings, the present one among them: share of events answered in time at each rate."""
    ranked = sorted(candidates, key=lambda one: (one is not advice.best, one is not advice.present, -one.mean_share, one.worst_step_s))
    table = Table("", "threads", "chunk", "batch", "step ms", box=None, padding=(0, 1, 0, 0), header_style="bright_black")
    for point in advice.best.points:
        table.add_column(f"at {point.rate:g}/s", no_wrap=True)
    for one in ranked[:SHOWN]:
        mark = "best" if one is advice.best else "now" if one is advice.present else ""
        if one.setting.shares_core:
            mark = f"{mark} *".strip()
        setting = one.setting
        cells = [str(setting.threads), str(setting.prefill_chunk), str(setting.max_batch), f"{one.worst_step_s * 1000:.0f}"]
        table.add_row(mark, *cells, *(share_bar(point.in_time) for point in one.points), style="bold" if one is advice.best else None)
    parts: list[Table | Text] = [Text("events answered in time at each rate; step: the longest that is foreseen", style="bright_black"), table]
    if len(ranked) > SHOWN:
        parts.append(Text(f"and {len(ranked) - SHOWN} more settings that do worse", style="bright_black"))
    if any(one.setting.shares_core for one in ranked):
        parts.append(
            Text("* leaves worker and broker no core of their own: they are not in the prediction, so it is better than it would be", style="bright_black")
        )
    return Group(*parts)


def share_bar(share: float, cells: int = BAR_CELLS) -> Text:
    """A share as a bar of eighths and as a number."""
    eighths = round(min(1.0, max(0.0, share)) * cells * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    style = "green" if share >= _GOOD else "yellow" if share >= _FAIR else "red"
    return Text(f"{drawn:{cells}}", style=style).append(f" {share:4.0%}", "")


def toml_lines(model: Model, advice: Advice, cpus: tuple[int, ...] | None) -> list[str]:
    """What to put into the model's `[[models]]` entry; comments give the reason and what stays."""
    best, now = advice.best.setting, advice.present.setting
    lines = [f"# {advice.why}", f'# in the [[models]] entry with name = "{model.name}":']
    wanted = (("threads", best.threads, now.threads), ("prefill_chunk", best.prefill_chunk, now.prefill_chunk), ("max_batch", best.max_batch, now.max_batch))
    for key, value, before in wanted:
        lines.append(f"{key} = {value}" + ("" if value == before else f"  # now {before}"))
    if cpus is not None and cpus != model.cpus:
        lines.append(f"cpus = {list(cpus)}")
    return lines
