"""Line charts as SVG text, readable on light and on dark pages; which charts there are is `report`'s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 130, 40, 48

COLOURS = ("#2a78d6", "#d1600f", "#6b7a86", "#8a4fbf")
"""Told apart without red against green, and on white as on black."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Series:
    """One line; `y` is None where there is no measurement. A dashed one is a reference, not a measurement at each point."""

    name: str
    y: tuple[float | None, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """`x` values stand at even distances, in their order, as rates that double do. `y_max` None: as high as needed."""

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    series: tuple[Series, ...]
    y_max: float | None = None


def draw(chart: Chart) -> str:
    """The chart as one SVG document."""
    values = [value for one in chart.series for value in one.y if value is not None]
    top = chart.y_max or round_up(max(values, default=1.0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#808890">',
        f"<title>{escape(chart.title)}</title>",
        f'<text x="{_LEFT}" y="22" font-size="14" font-weight="600">{escape(chart.title)}</text>',
        *_axes(chart, top),
    ]
    ends = _label_places([_last(chart, one, top) for one in chart.series])
    for index, (one, end) in enumerate(zip(chart.series, ends, strict=True)):
        parts += _line(chart, one, top, COLOURS[index % len(COLOURS)], end)
    return "\n".join([*parts, "</svg>"]) + "\n"


def round_up(value: float) -> float:
    """The next round number, so that an axis ends on one."""
    if value <= 0:
        return 1.0
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    while scale >= value:
        scale /= 10
    return next(step * scale for step in _STEPS if step * scale >= value)


def _x(chart: Chart, index: int) -> float:
    room = WIDTH - _LEFT - _RIGHT
    return _LEFT + room * (index / (len(chart.x) - 1) if len(chart.x) > 1 else 0.5)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(value, top) / top


def _axes(chart: Chart, top: float) -> list[str]:
    parts: list[str] = []
    for part in range(5):
        value = top * part / 4
        y = _y(value, top)
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#808890" stroke-opacity="0.25"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for index, value in enumerate(chart.x):
        parts.append(f'<text x="{_x(chart, index):.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>')
    side = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(f'<text transform="translate(14 {side:.0f}) rotate(-90)" text-anchor="middle">{escape(chart.y_label)}</text>')
    return parts


def _last(chart: Chart, one: Series, top: float) -> float:
    known = [value for value in one.y[: len(chart.x)] if value is not None]
    return _y(known[-1], top) if known else float(HEIGHT - _BOTTOM)


def _label_places(wanted: Sequence[float], gap: float = 15.0) -> list[float]:
    """Heights near the wanted ones at which labels do not touch."""
    places = [0.0] * len(wanted)
    lowest = -gap
    for index in sorted(range(len(wanted)), key=lambda index: wanted[index]):
        lowest = max(wanted[index], lowest + gap)
        places[index] = lowest
    over = max(0.0, lowest - (HEIGHT - _BOTTOM))
    return [place - over for place in places]


def _line(chart: Chart, one: Series, top: float, colour: str, label_y: float) -> list[str]:
    points = [(_x(chart, index), _y(value, top)) for index, value in enumerate(one.y) if value is not None]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if one.dashed else ""
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    if not one.dashed:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    parts.append(f'<text x="{WIDTH - _RIGHT + 10}" y="{label_y + 4:.1f}" fill="{colour}">{escape(one.name)}</text>')
    return parts
