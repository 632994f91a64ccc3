"""The benchmark's command line: `run` a plan, or `report` a result file; what there is to run is `scenarios`."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.machine import read_machine
from bench.report import render, write_page
from bench.results import join_reports, load_report
from bench.scenarios import FULL_NAMES, SYSTEMS, build_plan, estimate_s
from schemas.errors import AnswerbyError

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 done, 1 the work failed, 2 wrong usage."""
    if arguments[:1] == ["report"]:
        return report(arguments[1:])
    return run(arguments)


def run(arguments: Sequence[str]) -> int:
    """Run scenarios and say where the result is."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure answerby and its baselines; `python -m bench report FILE` makes tables.")
    parser.add_argument("names", nargs="*", default=["quick"], metavar="NAME", help=f"quick (default, under 6 minutes), full, or: {', '.join(FULL_NAMES)}")
    parser.add_argument("--seconds", type=float, help="length of each point")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--idle", type=float, help="seconds to be idle before the one event")
    parser.add_argument(
        "--budget-ms", help="for all scenarios that do not vary it, several for `rates` such as 300,600; default 300, which a slow machine may not reach at all"
    )
    parser.add_argument("--broker-cpus", help="cores for the broker, such as 0; default: all, as a broker that is not ours")
    parser.add_argument("--out", type=Path, help="result file; default one under bench/results/")
    asked = parser.parse_args(arguments)
    systems = [name for name in asked.systems.split(",") if name]
    if not systems or not set(systems) <= set(SYSTEMS):
        parser.error(f"--systems: choose from {', '.join(SYSTEMS)}")
    try:
        budgets = tuple(float(text) for text in asked.budget_ms.split(",")) if asked.budget_ms else ()
        tasks = build_plan(asked.names, asked.seconds, asked.idle, budgets)
        cpus = tuple(int(text) for text in asked.broker_cpus.split(",")) if asked.broker_cpus else None
    except ValueError as error:
        parser.error(str(error))
    from bench.run import run_plan  # noqa: PLC0415 -- `--help` and `report` need none of it
    from streams.broker.process import BrokerOptions  # noqa: PLC0415 -- as above

    out = asked.out or RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{'-'.join(asked.names)}.json"
    settings = {
        "revision": revision(),
        "scenarios": " ".join(asked.names),
        "systems": " ".join(systems),
        "seconds": asked.seconds,
        "budget_ms": asked.budget_ms,
        "broker_cpus": asked.broker_cpus,
        "environment": " ".join(sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith("ANSWERBY__") and "PASSWORD" not in key)),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=out.with_suffix(".log"), level=logging.WARNING)  # clients that retry would write between the lines of progress
    say(f"about {estimate_s(tasks, systems) / 60:.0f} minutes, results in {out}")
    try:
        done = run_plan(tasks, systems, out, read_machine(), settings, say, BrokerOptions(cpus=cpus))
    except AnswerbyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; what there is so far: {out}")
        return 1
    say(f"done in {done.took_s / 60:.1f} minutes: {out}")
    return 0


def report(arguments: Sequence[str]) -> int:
    """Print the tables of a result file, or put them into the page with its charts."""
    parser = argparse.ArgumentParser(prog="python -m bench report")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="several runs of one machine become one report")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a page with markers, such as docs/performance.md; charts go into img/ beside it")
    asked = parser.parse_args(arguments)
    try:
        found = join_reports([load_report(file) for file in asked.files])
        if asked.write is None:
            print(render(found), end="")
        else:
            write_page(found, asked.write)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def revision() -> str:
    """Of the code that is measured; empty outside a clone."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def say(text: str) -> None:
    """Progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
