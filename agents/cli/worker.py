"""`answerby worker`: one worker until SIGTERM; everything on this machine at once is `up`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agents.cli.config import load_settings
from agents.cli.parts import refuse_wrong_parts, tell_unused


def worker(
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    rebuild_state: Annotated[bool, Parameter(name="--rebuild-state", negative="")] = False,
) -> int:
    """Answer events until SIGTERM or Ctrl-C.

    Example: answerby worker -c answerby.toml

    Args:
        config: the settings file; default ./answerby.toml when it exists.
        rebuild_state: remove the tables in worker.data_dir first and read them anew from their changelogs; for a directory that is stale or another's.
    """
    settings = load_settings(config)
    refuse_wrong_parts(settings)
    from streams.logs import configure_logs  # `--help` must not wait for structlog

    configure_logs(settings.worker.log_level, settings.worker.log_format)
    tell_unused(settings)
    import uvloop  # heavy imports wait until the command is known to be this one

    from agents.worker import Worker  # as above

    async def run() -> None:
        await Worker(settings, rebuild_state=rebuild_state).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return 0
