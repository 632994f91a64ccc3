"""`answerby models pull|list|inspect`: the operator's view of the models on this machine; measuring them is `calibrate` and `compare`, beside this file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import msgspec

from schemas.errors import SetupError

if TYPE_CHECKING:
    from rich.console import Console

    from agents.models.manifest import FileCheck, Manifest
    from agents.models.pull import Progress as Report

app = cyclopts.App(name="models", help="Pull, inspect, measure and compare models.")
app.command("agents.cli.calibrate:calibrate", name="calibrate")
app.command("agents.cli.compare:compare", name="compare")

_TEMPLATE_LINES = 6
_LINE_EVERY_S = 2.0
"""Plain logs need a sign of life, not one line a block: at most one line in two seconds of one step."""

Json = Annotated[bool, cyclopts.Parameter(name="--json", negative="", help="print JSON")]


@app.command
def pull(
    name: str, /, *, force: Annotated[bool, cyclopts.Parameter(negative="", help="make it anew, even when it is here and whole")] = False, json: Json = False
) -> int:
    """Bring a model here: a known name, hf:ORG/NAME[@revision], an OpenVINO folder or a .gguf file.

    Example: answerby models pull smollm2-135m

    Args:
        name: smollm2-135m, hf:OpenVINO/Qwen3-0.6B-int4-ov, or a path, which is registered where it lies and not copied.
        force: Make it anew.
        json: Print JSON.
    """
    from rich.console import Console

    from agents.models.pull import pull_model

    console = Console(stderr=True)
    started = time.monotonic()
    with _shown(console) as report:
        pulled = pull_model(name, force=force, progress=report)
    if json:
        _print_json({"name": pulled.manifest.name, "version": pulled.manifest.version, "folder": str(pulled.folder), "made": pulled.made})
        return 0
    what = f"ready after {time.monotonic() - started:.0f} s" if pulled.made else "here already"
    Console(soft_wrap=True, highlight=False).print(f"{pulled.manifest.name} {pulled.manifest.version}: {what}, in {pulled.folder}", markup=False)
    return 0


@app.command(name="list")
def list_models(*, json: Json = False) -> int:
    """List the models that are here, with a quick check of their files.

    Example: answerby models list --json
    """
    from rich.console import Console
    from rich.table import Table

    from agents.models.registry import list_names, models_folder

    rows = [_row(name) for name in list_names()]
    if json:
        _print_json(rows)
        return 0
    if not rows:
        Console(soft_wrap=True).print(f"no models in {models_folder()}: run `answerby models pull smollm2-135m`", markup=False)
        return 0
    table = Table("name", "version", "size", "context", "license", "state", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            row["name"], row["version"] or "", _megabytes(row["weights_bytes"]), str(row["context_tokens"] or ""), row["license"] or "", row["problem"] or "ok"
        )
    Console().print(table)
    return 0


@app.command
def inspect(name: str, /, *, json: Json = False) -> int:
    """Check every file of a model by its SHA-256 and show what the model is; exit 1 when a file is not as it was.

    Example: answerby models inspect smollm2-135m

    Args:
        name: A pulled model's name, or the path of a folder or .gguf file.
        json: Print JSON.
    """
    from agents.models.registry import first_problem, pull_argument

    manifest, checks, facts = _inspect(name)
    problem = first_problem(checks)
    if json:
        _print_json({**facts, "files": checks, "whole": problem is None})
    else:
        _print_facts(facts, checks)
    if problem is not None and manifest is not None:
        msg = f"model {manifest.name!r} is broken ({problem}): run `answerby models pull --force {pull_argument(manifest)}`"
        raise SetupError(msg)
    return 0


def _row(name: str) -> dict[str, Any]:
    from agents.models.manifest import check_files
    from agents.models.registry import first_problem, load_manifest, models_folder

    try:
        manifest = load_manifest(name)
    except SetupError as error:
        return {"name": name, "version": None, "weights_bytes": 0, "context_tokens": None, "license": None, "source": None, "problem": str(error)}
    checks = check_files(models_folder() / name, manifest, hashes=False)
    return {
        "name": name,
        "version": manifest.version,
        "weights_bytes": manifest.weights_bytes,
        "context_tokens": manifest.context_tokens,
        "license": manifest.license,
        "source": manifest.source,
        "problem": first_problem(checks),
    }


def _inspect(name: str) -> tuple[Manifest | None, list[FileCheck], dict[str, Any]]:
    from agents.models.manifest import base_folder, check_files
    from agents.models.registry import list_names, load_manifest, loadable_path, models_folder, resolve_model

    if name in list_names():
        manifest = load_manifest(name)
        folder = models_folder() / name
        facts = {**msgspec.to_builtins(manifest), "path": str(loadable_path(name, manifest)), "chat_template": _read_template(base_folder(folder, manifest))}
        facts.pop("files")
        return manifest, check_files(folder, manifest, hashes=True), facts
    model = resolve_model(name)
    facts = {key: getattr(model, key) for key in ("name", "version", "kind", "weights_bytes", "kv_bytes_per_token", "context_tokens")}
    return None, [], {**facts, "path": str(model.path), "license": "unknown", "source": f"file:{model.path}", "chat_template": _read_template(model.path)}


def _read_template(folder: Any) -> str | None:
    """The chat template's own file; others keep it inside the tokenizer, where it works as well but is not shown."""
    file = folder / "chat_template.jinja"
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def _print_facts(facts: dict[str, Any], checks: list[FileCheck]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    rows = {
        "name": facts["name"],
        "version": facts["version"],
        "path": facts["path"],
        "source": facts["source"],
        "license": facts["license"],
        "weights": _megabytes(facts["weights_bytes"]),
        "context": f"{facts['context_tokens']} tokens",
        "KV cache": f"{facts['kv_bytes_per_token']} bytes a token (16 bits a value)" if facts["kv_bytes_per_token"] else "unknown",
    }
    for key, value in rows.items():
        console.print(f"{key:9} {value}", markup=False)
    for check in checks:
        console.print(f"{'file':9} {check.name}  {check.size} bytes  {check.problem or 'ok'}", markup=False)
    template = facts["chat_template"]
    lines = (template or "(inside the tokenizer)").splitlines()
    for number, line in enumerate(lines[:_TEMPLATE_LINES]):
        console.print(f"{'' if number else 'template':9} {line[:200]}", markup=False)


@contextmanager
def _shown(console: Console) -> Iterator[Report]:
    """Progress as a bar on a terminal, as plain lines elsewhere."""
    if not console.is_terminal:
        yield _PlainLines(console)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[measure]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, shown = bar.add_task("preparing", total=None, measure=""), "preparing"

        def report(step: str, done: int, total: int) -> None:
            nonlocal task, shown
            if step != shown:  # a task of its own: rich cannot take back a total, and the time is the step's
                bar.remove_task(task)
                task, shown = bar.add_task(step, total=total or None, measure=""), step
            bar.update(task, completed=done, measure=f"{_megabytes(done)} of {_megabytes(total)}" if total else "")

        yield report


class _PlainLines:
    """One line a step, and one in two seconds while a step goes on."""

    def __init__(self, console: Console) -> None:
        self._console, self._step, self._last = console, "", 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        now = time.monotonic()
        if step == self._step and now - self._last < _LINE_EVERY_S:
            return
        self._step, self._last = step, now
        measure = f"  {_megabytes(done)} of {_megabytes(total)}" if total else ""
        self._console.print(f"{step}{measure}", markup=False, highlight=False, soft_wrap=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
