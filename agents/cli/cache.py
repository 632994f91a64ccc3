"""`answerby cache tune`: which threshold of the semantic cache the user's own pairs allow; what is measured is `agents.semantic.tune`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
import msgspec
from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Group
    from rich.table import Table

    from agents.semantic.tune import Advice, Count, Judged, Row

app = cyclopts.App(name="cache", help="Tune the semantic cache.")


@app.command
def tune(
    file: Path,
    /,
    *,
    encoder: Annotated[str | None, Parameter(help="ngrams, a pulled encoder, or a folder [default: semantic_cache.encoder]")] = None,
    json: Annotated[bool, Parameter(negative="", help="print JSON")] = False,
    config: Annotated[Path | None, Parameter(name=["-c", "--config"], help="settings [default: answerby.toml here, if there is one]")] = None,
) -> int:
    """Show what each threshold would let through, and recommend the lowest one without a wrong hit.

    Exit 1 when none is safe.

    Example: answerby cache tune examples/semantic_pairs.jsonl

    Args:
        file: Pairs, one JSON object a line: {"a": "…", "b": "…", "same": true}; with "set": "held_out" a pair is judged but not chosen by.
        encoder: Instead of the settings' one.
        json: Print JSON.
        config: Settings.
    """
    from rich.console import Console

    from agents.cli.config import load_with_origins
    from agents.semantic.encoder import open_encoder
    from agents.semantic.tune import HELD_OUT, judge, read_pairs, recommend, tabulate

    wanted = load_with_origins(config).settings.semantic_cache.encoder if encoder is None else encoder
    pairs = read_pairs(file)
    opened = open_encoder(wanted)
    judged = judge(pairs, opened)
    advice = recommend(judged)
    chosen = [one for one in judged if one.pair.set != HELD_OUT] or judged
    held = [one for one in judged if one.pair.set == HELD_OUT] if len(chosen) < len(judged) else []
    rows = tabulate(chosen, also=advice.threshold)
    held_rows = tabulate(held, also=advice.threshold) if held else []
    if json:
        found = {"encoder": opened.name, "pairs": len(pairs), "rows": rows, "held_out": held_rows}
        sys.stdout.write(msgspec.json.encode({**found, "recommended": advice.threshold, "why": advice.why}).decode() + "\n")
    else:
        Console(highlight=False).print(_view(opened.name, rows, held_rows, _faults(judged, advice), advice))
    return 0 if advice.threshold is not None else 1


def _faults(judged: Sequence[Judged], advice: Advice) -> list[Judged]:
    """Wrong hits at the recommended threshold: there can be some among the held-out pairs alone."""
    if advice.threshold is None:
        return []
    return [one for one in judged if not one.pair.same and one.guard is None and one.similarity >= advice.threshold]


def _view(name: str, rows: list[Row], held: list[Row], faults: list[Judged], advice: Advice) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [Text(f"encoder {name}", style="bright_black"), _table(rows, advice)]
    if held:
        parts += [Text("\nheld out: not chosen by", style="bright_black"), _table(held, advice)]
    parts += [Text(f"wrong hit at {one.similarity:.2f}: {one.pair.a!r} and {one.pair.b!r}", style="red") for one in faults]
    verdict = "none is safe" if advice.threshold is None else f"threshold = {advice.threshold:.2f}"
    parts.append(
        Text("\nrecommended: ", style="bright_black").append(verdict, "bold red" if advice.threshold is None else "bold green").append(f"; {advice.why}")
    )
    return Group(*parts)


def _table(rows: list[Row], advice: Advice) -> Table:
    from rich.table import Table

    languages = list(rows[0].languages)
    table = Table("at", "wrong", "right", *(f"{language} {what}" for language in languages for what in ("wrong", "right")), box=None, pad_edge=False)
    for header in ("wrong, no guards", "right, no guards"):
        table.add_column(header)
    for column in table.columns:
        column.justify = "right"
    for row in rows:
        counts: list[Count] = [row.guarded, *row.languages.values(), row.bare]
        cells = [cell for count in counts for cell in (f"{count.wrong}/{count.of_wrong}", f"{count.right}/{count.of_right}")]
        table.add_row(f"{row.threshold:.2f}", *cells, style="bold" if row.threshold == advice.threshold else None)
    return table
