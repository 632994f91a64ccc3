"""The plot of `calibrate --explore` as SVG, written by hand: shares in time by rate, step times by batch; the terminal's is `explore_view`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from agents.models.explore import Advice, Candidate
from schemas.cost import CostProfile

WIDTH, HEIGHT = 960, 420
LEFT, TOP, PLOT_W, PLOT_H = 60, 60, 360, 290
SECOND = 520
"""Where the right panel begins."""

BEST, NOW, OTHER = "#15803d", "#c2410c", "#cbd5e1"
PALETTE = ("#1d4ed8", "#15803d", "#c2410c", "#7e22ce", "#0e7490", "#a16207", "#be123c", "#334155")


def draw_svg(candidates: Sequence[Candidate], advice: Advice, profiles: Sequence[CostProfile], deadline_ms: float) -> str:
    """A whole SVG document, readable on white."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_shares(candidates, advice, deadline_ms),
        *_steps(profiles),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _shares(candidates: Sequence[Candidate], advice: Advice, deadline_ms: float) -> list[str]:
    rates = [point.rate for point in advice.best.points]
    x_of = _spread(LEFT, rates)
    parts = _frame(LEFT, f"events answered in time, {deadline_ms:g} ms", "events/s", [(x_of(rate), f"{rate:g}") for rate in rates])
    parts += [_text(LEFT - 8, _y(share), f"{share:.0%}", anchor="end") for share in (0, 0.25, 0.5, 0.75, 1)]
    others = [one for one in candidates if one is not advice.best and one is not advice.present]
    now = [] if advice.present is advice.best else [(advice.present, NOW, 2.0)]
    lines = [*((one, OTHER, 1.0) for one in others), *now, (advice.best, BEST, 2.5)]
    for one, colour, width in lines:
        parts.append(_line([(x_of(point.rate), _y(point.in_time)) for point in one.points], colour, width))
    if advice.best is advice.present:
        parts.append(_text(LEFT + 8, _y(0.12), f"what is set, and best: {_name(advice.best)}", colour=BEST))
    else:
        parts.append(_text(LEFT + 8, _y(0.12), f"best: {_name(advice.best)}", colour=BEST))
        parts.append(_text(LEFT + 8, _y(0.05), f"now: {_name(advice.present)}", colour=NOW))
    return parts


def _steps(profiles: Sequence[CostProfile]) -> list[str]:
    batches = sorted({step.batch for profile in profiles for step in profile.steps})
    longest = max((step.median for profile in profiles for step in profile.steps), default=0.0) * 1100 or 1.0
    x_of = _spread(SECOND, batches)
    parts = _frame(SECOND, "a decoding step, median", "batch", [(x_of(batch), str(batch)) for batch in batches])
    parts += [_text(SECOND - 8, _y(part), f"{part * longest:.0f} ms", anchor="end") for part in (0, 0.25, 0.5, 0.75, 1)]
    for number, profile in enumerate(profiles):
        colour = PALETTE[number % len(PALETTE)]
        parts.append(_line([(x_of(step.batch), _y(step.median * 1000 / longest)) for step in profile.steps], colour, 1.5))
        label = f"{profile.threads} thread{'s' * (profile.threads > 1)}, chunk {profile.prefill_chunk}: {profile.prefill_token_s * 1000:.2f} ms a prompt token"
        parts.append(_text(SECOND + 8, TOP + 16 + 15 * number, label, colour=colour))
    return parts


def _frame(left: int, title: str, axis: str, ticks: Sequence[tuple[float, str]]) -> list[str]:
    bottom = TOP + PLOT_H
    parts = [_text(left, TOP - 20, title, size=15), _text(left + PLOT_W / 2, bottom + 40, axis, anchor="middle")]
    parts += [f'<line x1="{left}" y1="{_y(at):.1f}" x2="{left + PLOT_W}" y2="{_y(at):.1f}" stroke="#e2e8f0"/>' for at in (0, 0.25, 0.5, 0.75, 1)]
    return parts + [_text(x, bottom + 20, label, anchor="middle") for x, label in ticks]


def _spread(left: int, values: Sequence[float]) -> Callable[[float], float]:
    """Values at even distances: rates and batch sizes double from one to the next."""
    places = {value: left + 20 + (PLOT_W - 40) * index / max(1, len(values) - 1) for index, value in enumerate(values)}
    return places.__getitem__


def _y(share: float) -> float:
    return TOP + PLOT_H * (1 - share)


def _line(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, text: str, *, colour: str = "#334155", anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y + 4:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _name(one: Candidate) -> str:
    setting = one.setting
    return f"{setting.threads} thread{'s' * (setting.threads > 1)}, chunk {setting.prefill_chunk}, batch {setting.max_batch}"
