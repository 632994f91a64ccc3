"""Tables, charts and the page they are put into."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.machine import CpuUse, Machine
from bench.plot import Chart, Series, draw, round_up
from bench.report import BEGIN, END, charts, render, write_page
from bench.results import CeilingPoint, Load, Point, Report, spread

MACHINE = Machine("a processor", 2, 8.0, "6.1", "3.11.9", {"aiokafka": "0.14.0"}, "2026-01-01T00:00:00Z", 0.1)


def point(system: str, rate: float, in_time: int) -> Point:
    """100 events at `rate`, of which a model answered `in_time` in time."""
    load = Load("rates", f"rates-{rate:g}", rate, 300, 10.0)
    return Point(
        load, system, 100, 100, 0, 0, 0, 99, in_time, in_time, in_time * 16, spread([12.0]), spread([5.0]), 0.1, {"model": in_time}, 40.0, 0.0, CpuUse(0.5, 0.0)
    )


REPORT = Report(
    MACHINE,
    {"scenarios": "rates"},
    tuple(point(system, rate, count) for rate, count in ((2, 90), (4, 80)) for system in ("answerby", "onefile")),
    (CeilingPoint(4, 10.0, 50, 2560, spread([1.0])),),
)


def test_a_row_a_rate_and_a_column_a_system() -> None:
    """The share table sets systems side by side."""
    text = render(REPORT)
    assert "| events/s | answerby | one file |" in text
    assert "| 2 | 90.0% (9.0/s) | 90.0% (9.0/s) |" in text
    assert "2/s, 300 ms: 56%, 4/s, 300 ms: 50%" in text


def test_what_was_not_measured_has_no_heading() -> None:
    """A report of rates alone says nothing of idling, kills and survival."""
    text = render(REPORT)
    assert "killed" not in text
    assert "idle" not in text


def test_charts_are_whole_svg() -> None:
    """Each parses, has a title, and a line for every system; the ceiling is dashed."""
    made = charts(REPORT)
    assert set(made) == {"rates-model.svg", "rates-answered.svg", "rates-tokens.svg"}
    lines = [len(ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}polyline")) for svg in made.values()]
    assert lines == [2, 2, 3]
    assert "stroke-dasharray" in made["rates-tokens.svg"]


def test_missing_values_are_left_out() -> None:
    """A gap is no zero, and a name with markup stays text."""
    svg = draw(Chart("a < b", "x", "y", (1.0, 2.0, 3.0), (Series("<s>", (1.0, None, 3.0)),)))
    root = ElementTree.fromstring(svg)
    assert len(root.findall("{http://www.w3.org/2000/svg}circle")) == 2
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "a < b"


@pytest.mark.parametrize(("value", "top"), [(0.0, 1.0), (0.03, 0.05), (1.0, 1.0), (7.0, 10.0), (126.0, 200.0), (535.0, 1000.0)])
def test_axes_end_on_round_numbers(value: float, top: float) -> None:
    """Never below the value."""
    assert round_up(value) == pytest.approx(top)


def test_figures_go_between_the_markers(tmp_path: Path) -> None:
    """The rest of the page stays as it was, and writing twice changes nothing more."""
    page = tmp_path / "performance.md"
    page.write_text(f"# Performance\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    write_page(REPORT, page)
    text = page.read_text()
    assert text.startswith("# Performance\n")
    assert text.endswith("\n\nAfter.\n")
    assert "old" not in text
    assert (tmp_path / "img" / "rates-model.svg").exists()
    write_page(REPORT, page)
    assert page.read_text() == text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    """Nothing is written over a page that did not ask for it."""
    page = tmp_path / "performance.md"
    page.write_text("# Performance\n")
    with pytest.raises(ValueError, match="has no lines"):
        write_page(REPORT, page)
    assert page.read_text() == "# Performance\n"
