"""`top`: figures from hand-made looks, the screen that shows them, and the command against a real status port."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.cli.main import main
from agents.cli.top import top
from agents.cli.top_figures import Figures, figures_of
from agents.cli.top_view import top_view
from schemas.errors import ConfigError, UsageError
from schemas.inference import Step
from streams.broker.probe import free_port
from streams.http import StatusServer
from streams.metrics import Metrics, parse_exposition
from streams.scrape import Down, Readiness, Scrape

ENGINE = {"name": "main", "replica": 0, "model": "smol", "version": "abc", "pid": 4711, "state": "ready", "restarts": 2}

BODY = {"ready": True, "engines": [ENGINE], "partitions": [0, 1], "recovery": "done"}

BOUND_S = 60.0
"""Generous: says only that something does not hang."""


def look(metrics: Metrics, at: float, url: str = "http://a:1", *, ready: bool = True) -> Scrape:
    """What a scrape of these metrics would be."""
    samples = parse_exposition(metrics.render().decode())
    values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    return Scrape(url, at, ready, Readiness((ENGINE,), (0, 1), "done"), values)


def busy(metrics: Metrics, events: int = 4) -> None:
    """Let a worker have answered some events."""
    for _ in range(events):
        metrics.events.labels("model", "none").inc()
        metrics.response.labels("model").observe(0.14)
        metrics.slack.observe(0.15)
        metrics.stage.labels("generate").observe(0.12)
        metrics.stage.labels("publish").observe(0.004)
        metrics.tokens.labels("smol", "prompt").inc(30)
        metrics.tokens.labels("smol", "cached").inc(10)
        metrics.tokens.labels("smol", "completion").inc(16)
        metrics.observe_step("smol", Step(0.012, 3, 0))
        metrics.promises.labels("smol", "true").inc()
        metrics.step_error.labels("smol").observe(0.04)
    metrics.events.labels("default", "overload").inc()
    metrics.dead_letters.labels("undecodable").inc()
    metrics.missed.inc()
    metrics.promises.labels("smol", "false").inc()
    metrics.engine_rss.labels("smol", "0").set(420e6)
    metrics.kv_cache.labels("smol", "0").set(512e6)
    metrics.reserve.set(0.018)
    metrics.running.set(3)
    metrics.waiting.set(1)


def two_looks() -> Figures:
    """An idle look, and one two seconds later with work between."""
    metrics = Metrics()
    busy(metrics)
    before = look(metrics, 10.0)
    busy(metrics, 6)
    return figures_of([before], [look(metrics, 12.0)])


def screen(figures: Figures, width: int = 80) -> str:
    """The view as text."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(top_view(figures))
    return console.export_text()


@contextmanager
def port(metrics: Metrics, *, ready: bool = True) -> Iterator[str]:
    """A real status port on a thread of its own, as `address:port`."""
    started, stopping = threading.Event(), threading.Event()
    found: list[int] = []

    async def serve() -> None:
        server = StatusServer("127.0.0.1", 0, metrics, health=dict, readiness=lambda: (ready, BODY))
        await server.start()
        found.append(server.port)
        started.set()
        await asyncio.to_thread(stopping.wait)
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(BOUND_S)
        yield f"127.0.0.1:{found[0]}"
    finally:
        stopping.set()
        thread.join(BOUND_S)


class TestFigures:
    """Arithmetic on two looks."""

    def test_rates_are_of_the_interval_and_totals_of_all(self) -> None:
        """Six events in two seconds are three a second, beside four from before."""
        figures = two_looks()
        model = figures.outcomes[0]
        assert (model.outcome, model.reason, model.count.total, model.count.per_s) == ("model", "none", 10, 3.0)
        assert (figures.events.total, figures.events.per_s) == (12, 3.5)
        assert figures.dead_letters["undecodable"].total == 2
        assert figures.missed.per_s == 0.5
        assert figures.tokens["completion"].per_s == 48

    def test_times_are_of_the_interval(self) -> None:
        """Stages in the order of an event's way, the publish after them; slack by its low end; gauges as they stand."""
        figures = two_looks()
        assert figures.window == "interval"
        assert [stage.name for stage in figures.stages] == ["generate", "publish"]
        assert figures.slack_p1_ms == pytest.approx(101, abs=1)
        assert (figures.reserve_ms, figures.running, figures.waiting, figures.batch_mean) == (18.0, 3, 1, 3.0)
        assert (figures.prefix_hit, figures.kv_cache_bytes) == (0.25, 512e6)
        assert figures.promises_kept == pytest.approx(6 / 7, abs=1e-4)
        assert figures.step_error_p50 is not None
        assert 0.02 <= figures.step_error_p50 <= 0.05

    def test_an_idle_interval_shows_what_was_before(self) -> None:
        """Nothing lately: times are those since the start, and that is said; rates are nothing."""
        metrics = Metrics()
        busy(metrics)
        figures = figures_of([look(metrics, 1.0)], [look(metrics, 2.0)])
        assert (figures.window, figures.events.per_s, figures.events.total) == ("start", 0.0, 5)
        assert figures.slack_p50_ms is not None
        assert "since the start" in screen(figures)

    def test_a_new_worker_has_nothing_to_divide_by(self) -> None:
        """Figures of a worker that has done nothing are unknown, not zero."""
        figures = figures_of([], [look(Metrics(), 1.0)])
        assert (figures.slack_p1_ms, figures.prefix_hit, figures.promises_kept, figures.batch_mean) == (None, None, None, None)
        assert "–" in screen(figures)

    def test_workers_are_added_up_and_their_engines_listed(self) -> None:
        """Two workers' events are one figure; each engine is its own line, with its memory."""
        one, two = Metrics(), Metrics()
        busy(one)
        busy(two, 1)
        figures = figures_of([], [look(one, 1.0, "http://a:1"), look(two, 1.0, "http://b:1", ready=False)])
        assert figures.events.total == 7
        assert [(row.worker, row.pid, row.restarts, row.rss_bytes) for row in figures.engines] == [
            ("http://a:1", 4711, 2, 420e6),
            ("http://b:1", 4711, 2, 420e6),
        ]
        assert [worker.state for worker in figures.workers] == ["ready", "not ready"]


class TestScreen:
    """What is shown."""

    def test_fits_80_columns_and_says_it_all(self) -> None:
        """Every part of the view is there, and no line is cut."""
        shown = screen(two_looks())
        for word in (
            "model",
            "default overload",
            "dead letter undecodable",
            "slack p1",
            "missed",
            "reserve",
            "generate",
            "prefix cache hits",
            "promises kept",
            "4711",
        ):
            assert word in shown
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= 80

    def test_a_worker_that_is_down_is_a_line(self) -> None:
        """Down with the reason, the others' figures beside it; all down is a short page."""
        metrics = Metrics()
        busy(metrics)
        down = Down("http://b:1", "All connection attempts failed")
        shown = screen(figures_of([], [look(metrics, 1.0), down]))
        assert "down      http://b:1  All connection attempts failed" in shown
        assert "generate" in shown
        assert len(screen(figures_of([], [down])).splitlines()) == 2

    def test_names_from_the_wire_are_text(self) -> None:
        """A label or an engine's name is no markup and no control sequence."""
        metrics = Metrics()
        metrics.events.labels("[red]x[/red]\x1b[2J", "none").inc()
        shown = screen(figures_of([], [look(metrics, 1.0)]), 120)
        assert "[red]x[/red]" in shown
        assert "\x1b" not in shown


class TestCommand:
    """`answerby top` itself."""

    def test_once_prints_one_snapshot(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Exit 0 with what a live worker says, a dead one beside it."""
        metrics = Metrics()
        busy(metrics)
        with port(metrics) as address:
            assert top(url=(address, f"127.0.0.1:{free_port()}"), once=True, interval=0.1) == 0
        shown = capsys.readouterr().out
        assert f"ready     http://{address}  partitions 0, 1" in shown
        assert "down " in shown

    def test_once_for_programs_is_one_line_of_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The figures by name."""
        metrics = Metrics()
        busy(metrics)
        with port(metrics, ready=False) as address:
            assert top(url=(address,), once=True, interval=0.1, json=True) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert found["workers"][0]["state"] == "not ready"
        assert found["events"]["total"] == 5
        assert found["engines"][0]["pid"] == 4711

    def test_no_worker_is_one_line_and_exit_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Nobody there: what to do, without a traceback."""
        with pytest.raises(SystemExit) as caught:
            main(["top", "--once", "--url", f"127.0.0.1:{free_port()}"])
        out, err = capsys.readouterr()
        assert (caught.value.code, out, err.count("\n")) == (1, "", 1)
        assert "answerby worker" in err

    def test_the_settings_say_where_the_worker_is(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Without an address the settings' own port is asked; one that listens on every address is asked on this machine."""
        with port(Metrics()) as address:
            file = tmp_path / "answerby.toml"
            file.write_text(f'[worker]\nmetrics_host = "0.0.0.0"\nmetrics_port = {address.rpartition(":")[2]}\n', encoding="utf-8")
            assert top(once=True, interval=0.1, json=True, config=file) == 0
        assert json.loads(capsys.readouterr().out)["workers"][0]["url"] == f"http://{address}"

    def test_a_port_that_nobody_can_know_is_refused(self, tmp_path: Path) -> None:
        """`metrics_port = 0` is the worker's choice: it has to be named."""
        file = tmp_path / "answerby.toml"
        file.write_text("worker.metrics_port = 0\n", encoding="utf-8")
        with pytest.raises(ConfigError, match="--url"):
            top(once=True, config=file)

    @pytest.mark.parametrize(
        ("options", "told"), [({"url": ("ftp://x",)}, "--url"), ({"interval": 0.0}, "--interval"), ({"interval": float("nan")}, "--interval")]
    )
    def test_wrong_usage_is_told(self, options: dict[str, Any], told: str) -> None:
        """By the option's name."""
        with pytest.raises(UsageError, match=told):
            top(**options)

    def test_a_worker_that_dies_is_shown_as_down_until_ctrl_c(self) -> None:
        """The live view goes on when its worker goes, and Ctrl-C ends it with 0."""
        with port(Metrics()) as address:
            command = [sys.executable, "-m", "agents.cli", "top", "--json", "--interval", "0.1", "--url", address]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
        try:
            states = {first["workers"][0]["state"]}
            while "down" not in states:
                states.add(json.loads(process.stdout.readline())["workers"][0]["state"])
            process.send_signal(signal.SIGINT)
            _out, err = process.communicate(timeout=BOUND_S)
        finally:
            process.kill()
            process.communicate()
        assert states == {"ready", "down"}
        assert (process.returncode, err) == (0, "")

    def test_help_needs_nobody(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Asking for help asks no worker."""
        with pytest.raises(SystemExit) as caught:
            main(["top", "--help"])
        assert caught.value.code == 0
        assert "--interval" in capsys.readouterr().out
