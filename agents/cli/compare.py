"""`answerby models compare`: ask each model the same prompts, one after the other and alone, and set the figures side by side."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from agents.cli.config import Loaded, load_with_origins
from schemas.errors import SetupError, UsageError
from schemas.settings import Model, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, Group

    from agents.models.comparison import Answer, Prompt, PromptFile, Recommendation, Row
    from agents.runtime.ask import Ask
    from agents.runtime.supervisor import Engine

LONGEST_ANSWER_S = 120.0
"""For one whole answer: a model that takes longer is shown with what it said by then."""

FIGURES_S = 0.5
"""For the engine's own memory figure, which it sends five times a second."""


def compare(
    *,
    prompts: Annotated[Path, Parameter(help="the questions with what is right, .toml or .jsonl; see examples/prompts.toml")],
    models: Annotated[str | None, Parameter(help="names of [[models]] entries, pulled models or paths, by commas [default: all that are here]")] = None,
    deadline_ms: Annotated[float | None, Parameter(help="what counts as in time [default: deadline.default_ms]")] = None,
    json: Annotated[bool, Parameter(negative="", help="print JSON; all else goes to standard error")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Set models side by side: size, memory, speed at the deadline, right answers on your own prompts, and which to take.

    Each model is started alone, on the cores that the worker would give it, and asked every prompt once. Stop workers here first: they take its time.

    Example: answerby models compare --prompts examples/prompts.toml --deadline-ms 300
    """
    from agents.cli.engine_alone import measuring_console, warn_when_busy
    from agents.deadlines import reserve_for
    from agents.models.comparison import read_prompts, recommend

    loaded = load_with_origins(config)
    settings = loaded.settings
    budget_ms = settings.deadline.default_ms if deadline_ms is None else deadline_ms
    in_time_s = budget_ms / 1000 - reserve_for(settings.deadline).seconds()
    if not 0 < in_time_s < 1e6:  # noqa: PLR2004  # also refuses NaN
        msg = f"--deadline-ms {budget_ms:g} is wrong: use more than the {reserve_for(settings.deadline).seconds() * 1000:.0f} ms that are kept for publishing"
        raise UsageError(msg)
    file = read_prompts(prompts)
    wanted = _choose(models, loaded)
    console = measuring_console(stderr=json)
    warn_when_busy()
    rows = [_measure(entry, settings, file, in_time_s, console) for entry in wanted]
    advice = recommend(rows, deadline_ms=budget_ms, min_tokens=min(entry.model.min_tokens for entry in wanted))
    if json:
        sys.stdout.write(f"{msgspec.json.encode({'deadline_ms': budget_ms, 'models': rows, 'recommended': advice.name, 'why': advice.why}).decode()}\n")
    else:
        console.print(_view(rows, advice, budget_ms))
    return 0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One model to measure, under the name it is shown by."""

    label: str
    model: Model


def _choose(models: str | None, loaded: Loaded) -> list[_Wanted]:
    """The models that are named; else the settings' own, when there are any, and every pulled one that they do not use."""
    from agents.models.registry import list_language_models, models_folder

    entries = {model.name: _Wanted(model.name, model) for model in loaded.settings.models}
    if models is not None:
        names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
        chosen = [entries.get(name) or _Wanted(name, _as_entry(name)) for name in names]
    else:
        own = list(entries.values()) if any(key.startswith("models") for key in loaded.origins) else []
        chosen = own + [
            _Wanted(name, _as_entry(name)) for name in list_language_models() if name not in {one.model.path for one in own if one.model.engine != "scripted"}
        ]
    if not chosen:
        msg = f"no models in {models_folder()}: run `answerby models pull smollm2-135m`"
        raise SetupError(msg)
    return chosen


def _as_entry(name: str) -> Model:
    """A model with the settings' defaults. Its entry's own name is not shown, so that a path may be given."""
    return Model(name="compared", path=name)


def _measure(wanted: _Wanted, settings: Settings, file: PromptFile, in_time_s: float, console: Console) -> Row:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from agents.cli.engine_alone import beside_engine, worker_cpus

    if not console.is_terminal:
        console.print(f"{wanted.label}: {len(file.prompts)} prompts", markup=False)
    with (
        beside_engine(worker_cpus([wanted.model], settings)),
        Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
        ) as bar,
    ):
        task = bar.add_task(f"{wanted.label}: loading", total=len(file.prompts))

        def tell(number: int) -> None:
            bar.update(task, completed=number, description=f"{wanted.label}: {number}/{len(file.prompts)}")

        return asyncio.run(_run(wanted, settings, file, in_time_s, tell))


async def _run(wanted: _Wanted, settings: Settings, file: PromptFile, in_time_s: float, tell: Callable[[int], None]) -> Row:
    from agents.cli.engine_alone import engine_alone, spec_alone
    from agents.models.comparison import Facts, summarise

    spec = spec_alone(wanted.model, settings)
    instructions = settings.session.instructions if file.instructions is None else file.instructions
    answers: list[Answer] = []
    async with engine_alone(spec) as engine:
        for number, prompt in enumerate(file.prompts):
            tell(number)
            answers.append(await _ask(engine, prompt, instructions, in_time_s))
        memory = await _resident(engine)
    facts = Facts(wanted.label, spec.files.version, _disk_bytes(spec.files.path), memory)
    return summarise(facts, file.prompts, answers)


async def _ask(engine: Engine, prompt: Prompt, instructions: str, in_time_s: float) -> Answer:
    """Ask without a deadline and note what was there by it: one answer tells both what the model can say and what it says in time."""
    from agents.models.comparison import Answer
    from agents.runtime.ask import EngineFailed
    from schemas.inference import Constraint, Generate, Message

    began = time.monotonic()
    constraint = Constraint(choice=prompt.choice) if prompt.choice else None
    messages = (Message("system", instructions, len(instructions)), Message("user", prompt.prompt))
    request = Generate(0, messages, engine.model.max_tokens, began + LONGEST_ANSWER_S, constraint=constraint)
    ask = engine.ask(request)
    by_deadline, tokens, last = await _follow(ask, began, in_time_s)
    outcome = await ask.done()
    if isinstance(outcome, EngineFailed):
        msg = f"the model failed at {prompt.prompt[:60]!r}: {outcome.detail}"
        raise SetupError(msg)
    first = (ask.first_at or last) - began
    whole_in_time = last - began <= in_time_s
    if prompt.choice and not whole_in_time:
        return Answer(ask.text, None, ask.tokens, tokens, first, last - began)
    return Answer(ask.text, by_deadline, ask.tokens, tokens, first, last - began)


async def _follow(ask: Ask, began: float, in_time_s: float) -> tuple[str, int, float]:
    """The text and tokens that were there by the deadline, and when the last came."""
    text, tokens = "", 0
    async for _piece in ask:
        if time.monotonic() - began <= in_time_s:
            text, tokens = ask.text, ask.tokens
    return text, tokens, time.monotonic()


async def _resident(engine: Engine) -> int:
    """What the process takes after the last answer, its KV cache touched: the next figure that it sends."""
    await asyncio.sleep(FIGURES_S)  # the figure is sent by the clock, nothing announces it
    return engine.status()[0].rss_bytes


def _disk_bytes(path: str) -> int:
    place = Path(path)
    if not path:
        return 0
    return sum(file.stat().st_size for file in place.iterdir() if file.is_file()) if place.is_dir() else place.stat().st_size


def _view(rows: list[Row], advice: Recommendation, budget_ms: float) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    columns = ("model", "version", "disk", "memory", "first token", "tokens/s", f"tokens in {budget_ms:g} ms", "right in time", "right at all")
    table = Table(*columns, box=None, pad_edge=False, header_style="bright_black")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        cells: list[Any] = [Text(row.name), row.version, f"{row.disk_bytes / 1e6:.0f} MB", f"{row.memory_bytes / 1e6:.0f} MB"]
        cells += [f"{row.first_ms:.0f} ms", f"{row.tokens_s:.0f}", f"{row.tokens_by_deadline:.0f}", _percent(row.right_by_deadline), _percent(row.right)]
        table.add_row(*cells, style="bold" if row.name == advice.name else None)
    verdict = (
        Text("recommended: ", style="bright_black")
        .append(advice.name or "none of these", "bold green" if advice.name else "bold red")
        .append(f"; {advice.why}")
    )
    return Group(table, Text(), verdict)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"
