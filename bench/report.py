"""Tables and charts for `docs/performance.md`, made of one result file; what the figures mean is `results`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.plot import Chart, Series, draw
from bench.results import Point, Report, Spread

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
"""Between these two lines of the page stands what `report --write` puts there."""

NAMES = {"answerby": "answerby", "onefile": "one file", "server": "batching server", "scripted": "answerby, scripted engine"}

CEILING_GOAL = 0.6


def render(report: Report, images: str = "img") -> str:
    """Everything between the two markers; `images` is where the page finds the charts."""
    parts = [_machine(report)]
    for title, text in (
        ("Rates", _rates(report, images)),
        ("8 events/s by budget", _budgets(report, images)),
        ("One of four labels", _points_table(_of(report, "choice"))),
        ("200 events in 100 ms", _points_table(_of(report, "burst"))),
        ("The engine's own ceiling", _ceiling(report)),
        ("After an idle time, one event", _idle(report)),
        ("Around the model: 100 events/s, scripted engine", _points_table(_of(report, "fastpath"))),
        ("Engines killed under load", _kills(report)),
        ("Workers killed under load", _survival(report)),
        ("Forecasts", _forecasts(report)),
        ("Notes", "\n".join(f"- {note}" for note in report.notes)),
    ):
        if text:
            parts.append(f"### {title}\n\n{text}")
    return "\n\n".join(parts) + "\n"


def charts(report: Report) -> dict[str, str]:
    """File name to SVG, for what was measured."""
    made: dict[str, str] = {}
    for suffix, rates in _by_budget(_of(report, "rates")).items():
        label = f"events a second (Poisson), {rates[0].load.budget_ms:g} ms"
        made[f"rates-model{suffix}.svg"] = draw(_chart("Model answers in time", label, "% of events", rates, _rate, lambda p: p.model_share * 100, 100.0))
        answered = _chart("Answered in time, any outcome", label, "% of events", rates, _rate, lambda p: p.in_time_share * 100, 100.0)
        made[f"rates-answered{suffix}.svg"] = draw(answered)
        tokens = _chart("Tokens delivered in time", label, "tokens a second", rates, _rate, lambda p: p.tokens_per_s)
        top = _ceiling_tokens(report)
        if top:
            line = Series("engine's ceiling", (top,) * len(tokens.x), dashed=True)
            tokens = Chart(tokens.title, tokens.x_label, tokens.y_label, tokens.x, (*tokens.series, line))
        made[f"rates-tokens{suffix}.svg"] = draw(tokens)
    budgets = _of(report, "budgets")
    if budgets:
        label = "budget, ms, at 8 events/s"
        made["budgets-model.svg"] = draw(
            _chart("Model answers in time", label, "% of events", budgets, lambda p: p.load.budget_ms, lambda p: p.model_share * 100, 100.0)
        )
    return made


def write_page(report: Report, page: Path) -> None:
    """Put the figures between the page's markers and the charts beside it.

    Raises:
        ValueError: the page has no markers.
    """
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        text = f"{page.name} has no lines {BEGIN!r} and {END!r}: put them where the figures belong"
        raise ValueError(text)
    images = page.parent / "img"
    images.mkdir(exist_ok=True)
    for name, svg in charts(report).items():
        (images / name).write_text(svg)
    page.write_text(f"{head}{BEGIN}\n\n{render(report)}\n{END}{tail}")


def _machine(report: Report) -> str:
    machine = report.machine
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    settings = ", ".join(f"{name} {value}" for name, value in report.settings.items() if value and value != "None")
    return (
        f"Measured {machine.date[:10]} on {machine.cpu}, {machine.cores} cores, {machine.memory_gib:g} GiB, Linux {machine.kernel}; "
        f"Python {machine.python}, {libraries}. Run: {settings}; {report.took_s / 60:.0f} minutes, load average {machine.load_average:g} at its start."
    )


def _rates(report: Report, images: str) -> str:
    return "\n\n".join(_rates_at(points, suffix, images) for suffix, points in _by_budget(_of(report, "rates")).items())


def _by_budget(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Points of one budget together, by what their charts' names end in; the first budget's have the plain names."""
    budgets = list(dict.fromkeys(point.load.budget_ms for point in points))
    return {f"-{budget:g}ms" if index else "": [point for point in points if point.load.budget_ms == budget] for index, budget in enumerate(budgets)}


def _rates_at(points: Sequence[Point], suffix: str, images: str) -> str:
    shares = _across("events/s", points, _rate, lambda p: f"{p.model_share:.1%} ({p.model_per_s:.1f}/s)")
    pictures = "\n".join(
        f"![{text}]({images}/{name}{suffix}.svg)" for name, text in (("rates-model", "Model answers in time by rate"), ("rates-tokens", "Tokens by rate"))
    )
    return f"Model answers within {points[0].load.budget_ms:g} ms, of all events, and how many a second:\n\n{shares}\n\n{pictures}\n\n{_points_table(points)}"


def _budgets(report: Report, images: str) -> str:
    points = _of(report, "budgets")
    if not points:
        return ""
    shares = _across("budget, ms", points, lambda p: p.load.budget_ms, lambda p: f"{p.model_share:.1%}")
    return f"Model answers in time, of all events:\n\n{shares}\n\n![Model answers in time by budget]({images}/budgets-model.svg)\n\n{_points_table(points)}"


def _across(corner: str, points: Sequence[Point], x: Callable[[Point], float], cell: Callable[[Point], str]) -> str:
    """A row for each x, a column for each system."""
    systems = _systems(points)
    found = {(x(point), point.system): cell(point) for point in points}
    rows = [[f"{value:g}", *(found.get((value, system), "") for system in systems)] for value in _xs(points, x)]
    return _table([corner, *(NAMES.get(system, system) for system in systems)], rows)


def _points_table(points: Sequence[Point]) -> str:
    if not points:
        return ""
    head = (
        "load",
        "system",
        "sent",
        "answered in time",
        "model in time",
        "whole answers",
        "tokens/s in time",
        "p50 / p99 / p99.9, ms",
        "lateness of the rest, ms",
        "cpu",
    )
    return _table(head, [_row(point) for point in points])


def _row(point: Point) -> list[str]:
    load, latency = point.load, point.latency_ms
    what = "200 at once" if load.scenario == "burst" else f"{load.rate:g}/s"
    return [
        f"{what}, {load.budget_ms:g} ms",
        NAMES.get(point.system, point.system),
        str(point.sent),
        f"{point.in_time_share:.2%}" + (f", {point.lost} lost" if point.lost else "") + (f", {point.repeats} repeated" if point.repeats else ""),
        f"{point.model_share:.1%}",
        f"{point.whole_in_time / point.sent:.1%}" if point.sent else "",
        f"{point.tokens_per_s:.0f}",
        " / ".join(_ms(value) for value in (latency.p50, latency.p99, latency.p999)),
        _late(point.lateness_ms),
        f"{point.cpu.busy:.0%}" + (f", {point.cpu.stolen:.0%} stolen" if point.cpu.stolen >= 0.01 else ""),
    ]


def _ceiling(report: Report) -> str:
    if not report.ceiling:
        return ""
    rows = [
        [str(point.open_requests), f"{point.tokens_per_s:.0f}", f"{point.requests / point.seconds:.1f}", _ms(point.latency_ms.p50), _ms(point.latency_ms.p99)]
        for point in report.ceiling
    ]
    text = _table(("kept open", "tokens/s", "requests/s", "p50, ms", "p99, ms"), rows)
    top = _ceiling_tokens(report)
    ours = [point for point in _of(report, "rates") if point.system == "answerby" and top]
    shares = [f"{point.load.rate:g}/s, {point.load.budget_ms:g} ms: {point.tokens_per_s / top:.0%}" for point in ours]
    return f"{text}\n\nTokens in time of the best of these (goal at 16/s and 32/s: {CEILING_GOAL:.0%}): {', '.join(shares)}." if shares else text


def _idle(report: Report) -> str:
    points = _of(report, "idle")
    rows = [[NAMES[p.system], p.load.label.removeprefix("idle-"), _ms(p.latency_ms.p50), ", ".join(p.outcomes), "yes" if p.in_time else "no"] for p in points]
    return _table(("system", "idle", "latency, ms", "outcome", "in time"), rows) if rows else ""


def _kills(report: Report) -> str:
    lines: list[str] = []
    for kill in report.kills:
        back, point = kill.ready_again_s, kill.point
        lines.append(
            f"{kill.kills} kills in {point.load.seconds:g} s at {point.load.rate:g}/s: {point.sent} sent, {point.sent - point.in_time} late or lost, "
            f"{point.lost} lost, {point.repeats} twice, {kill.restarts} restarts, ready again after {back.p50} s (median), {back.max} s (longest)."
        )
        lines.append(_points_table([point]))
    return "\n\n".join(lines)


def _survival(report: Report) -> str:
    rows = [
        [str(one.workers), str(one.kills), *(str(one.seen[key]) for key in ("sent", "lost", "contradictory", "repeats", "out_of_order", "p50_ms", "max_ms"))]
        for one in report.survival
    ]
    head = ("workers", "kills", "sent", "lost", "contradictory", "repeated, same bytes", "out of order", "p50, ms", "longest, ms")
    return _table(head, rows) if rows else ""


def _forecasts(report: Report) -> str:
    seen = report.forecasts
    if seen is None:
        return ""
    step, first = (f"{error:.1%}" if error is not None else "unknown" for error in (seen.step_error_p50, seen.first_token_error_p50))
    promised = seen.promises_kept + seen.promises_broken
    return (
        f"Median error of a step's time, foreseen from its batch and prompt tokens: {step} of {seen.steps} steps. Of the time to the first token, foreseen at "
        f"admission: {first} of {seen.first_tokens}. Admitted requests that had their minimum only after their due: {seen.promises_broken} of {promised}."
    )


def _ceiling_tokens(report: Report) -> float:
    return max((point.tokens_per_s for point in report.ceiling), default=0.0)


def _chart(
    title: str, x_label: str, y_label: str, points: Sequence[Point], x: Callable[[Point], float], y: Callable[[Point], float], y_max: float | None = None
) -> Chart:
    xs = _xs(points, x)
    found = {(x(point), point.system): y(point) for point in points}
    series = tuple(Series(NAMES.get(system, system), tuple(found.get((value, system)) for value in xs)) for system in _systems(points))
    return Chart(title, x_label, y_label, xs, series, y_max)


def _rate(point: Point) -> float:
    return point.load.rate


def _xs(points: Sequence[Point], x: Callable[[Point], float]) -> tuple[float, ...]:
    return tuple(sorted({x(point) for point in points}))


def _systems(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.system for point in points))


def _of(report: Report, scenario: str) -> list[Point]:
    return [point for point in report.points if point.load.scenario == scenario]


def _late(late: Spread) -> str:
    return f"{late.count}: {_ms(late.p50)} / {_ms(late.p99)}, at most {_ms(late.max)}" if late.count else "none"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        for row in rows:
            yield "| " + " | ".join(row) + " |"

    return "\n".join(lines())
