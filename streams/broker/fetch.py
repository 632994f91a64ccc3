"""`python -m streams.broker.fetch`: gets the broker's files ahead of the first start, as `make setup` does; the fetching itself is `jars`."""

from __future__ import annotations

import sys

from schemas.errors import AnswerbyError
from streams.broker.jars import fetch_jars, kafka_home
from streams.broker.recording import recording_path
from streams.broker.warmup import record_start

_STEP = 0.25
"""A line a quarter: enough to see that it moves, few enough for a build's log."""


class ProgressLines:
    """Progress as lines on standard error, for logs and terminals alike; silent when nothing has to be fetched."""

    def __init__(self) -> None:
        self._next = _STEP

    def __call__(self, done: int, total: int) -> None:
        """Say how far it is, in megabytes."""
        if done >= self._next * total:
            self._next = (done / total // _STEP + 1) * _STEP
            sys.stderr.write(f"fetching Apache Kafka: {done >> 20} of {total >> 20} MB\n")


def main() -> int:
    """Fetch; the exit code as a command's."""
    try:
        fetch_jars(ProgressLines())
        if not recording_path().is_file():
            sys.stderr.write("recording the broker's first start, so that later ones are quick\n")
            record_start()
    except AnswerbyError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stderr.write(f"Apache Kafka is in {kafka_home()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
