"""The command `answerby`: which commands there are, and how every one of them ends; each command is a module beside this one."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import cyclopts
from cyclopts import CycloptsError

from schemas.errors import AnswerbyError

INTERRUPTED = 130
"""What shells expect of a program that ended by Ctrl-C."""

COMMANDS = {
    "demo": ("agents.cli.demo:demo", "Play an example log against a real broker and the real model."),
    "up": ("agents.cli.up:up", "Run broker and worker on this machine, until Ctrl-C."),
    "send": ("agents.cli.send:send", "Send one event and print its answer."),
    "watch": ("agents.cli.watch:watch", "Print answers as they come."),
    "explain": ("agents.cli.explain:explain", "Show how one event came to its answer."),
    "top": ("agents.cli.top:top", "Show what the workers are doing, live."),
    "worker": ("agents.cli.worker:worker", "Answer events until SIGTERM or Ctrl-C."),
    "broker": ("agents.cli.broker:broker", "Run a real Apache Kafka on this machine."),
    "topics": ("agents.cli.topics:app", "Create and check the topics."),
    "models": ("agents.cli.models:app", "Pull, inspect, measure and compare models."),
    "config": ("agents.cli.config:app", "Write, check and show the settings."),
    "rules": ("agents.cli.rules:app", "Check rules, and run their examples."),
    "sessions": ("agents.cli.sessions:app", "Show, export and forget what is remembered."),
    "cache": ("agents.cli.cache:app", "Find the semantic cache's threshold on pairs of questions."),
}
"""Every command by the path of what runs it, so that its imports wait until it is called; the order is that of a first acquaintance."""

GROUP_EXAMPLES = {
    "topics": "answerby topics create -c answerby.toml",
    "models": "answerby models pull smollm2-135m",
    "config": "answerby config init answerby.toml",
    "rules": "answerby rules check rules.toml",
    "sessions": "answerby sessions show session-17",
    "cache": "answerby cache tune examples/semantic_pairs.jsonl",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 the work failed, 2 wrong usage or settings; what went wrong is one line on standard error."""
    logging.getLogger().addHandler(logging.NullHandler())  # libraries' own complaints come out as our one line, not beside it
    sys.exit(_run(arguments))


def build_app(words: Sequence[str] = ()) -> cyclopts.App:
    """The command line. A command that `words` name brings its own help, with its example; the others are one line in the list."""
    app = cyclopts.App(
        name="answerby",
        help="Real-time LLM answers on Kafka, on CPUs, by a deadline, always.",
        help_format="plaintext",  # and no markdown parser to load
        help_epilogue=_closing_help(words),
        version=lambda: version("answerby"),
    )
    for place, (name, (path, summary)) in enumerate(COMMANDS.items()):
        app.command(path, name=name, help=None if name in words else summary, sort_key=place)
    return app


def _closing_help(words: Sequence[str]) -> str:
    """The example of a help page that is no command's own: the first page and those of groups."""
    named = [word for word in words if not word.startswith("-")]
    if not named:
        return "Settings: ./answerby.toml or -c FILE; ANSWERBY__SECTION__KEY in the environment wins.\nExample: answerby demo"
    return f"Example: {GROUP_EXAMPLES[named[0]]}" if len(named) == 1 and named[0] in GROUP_EXAMPLES else ""


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        result = build_app(words)(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        _complain(f"{_one_line(error)} Try: answerby {' '.join((*(error.command_chain or ()), '--help'))}")
        return 2
    except AnswerbyError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has had enough (`answerby watch | head`); without this Python complains once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _complain(text: str) -> None:
    sys.stderr.write(f"error: {' '.join(text.split())}\n")


def _one_line(error: CycloptsError) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?", "!")) else f"{text}."
