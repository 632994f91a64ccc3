"""Watches how the tables come back after a start or a rebalance: what is left, how long it takes, and when it will never end; Faust does the reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from schemas.errors import SetupError

if TYPE_CHECKING:
    from streams.metrics import Metrics

log = structlog.get_logger(__name__)

STALL_S = 3.0
"""A recovery that reads nothing for so long has lost what it waits for and is begun again; the patience doubles with each time, for a slow broker's sake."""


class Recovering(Protocol):
    """What is watched: `streams.app.WorkerApp`."""

    assigned: bool

    @property
    def recovered(self) -> bool:
        """Whether partitions are assigned and their tables complete."""

    def recovery_place(self) -> tuple[int, int]:
        """Changes while a recovery moves."""

    def recovery_left(self) -> int:
        """Changelog records still to be read."""

    def restart_recovery(self) -> None:
        """Begin it again from where it stands."""


class RecoveryWatch:
    """One worker's recoveries; `tick` is called a few times a second."""

    def __init__(
        self, app: Recovering, metrics: Metrics, *, give_up_s: float, on_crash: Callable[[BaseException], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._give_up_s = give_up_s
        self._on_crash = on_crash
        self._clock = clock
        self._began: float | None = None
        self._place: tuple[int, int] | None = None
        self._moved = self._asked_again = 0.0
        self._patience_s = STALL_S
        self._most_left = 0
        self._took_s = 0.0

    def tick(self) -> None:
        """Look, note, and begin again or give up what stands still."""
        if self._app.recovered or not self._app.assigned:
            self._end()
            return
        now, left, place = self._clock(), self._app.recovery_left(), self._app.recovery_place()
        if self._began is None:
            self._began, self._most_left, self._patience_s = now, 0, STALL_S
        self._most_left = max(self._most_left, left)
        self._took_s = now - self._began
        self._show(left)
        if place != self._place:
            self._place, self._moved, self._asked_again, self._patience_s = place, now, now, STALL_S
        elif now - self._moved > self._give_up_s:
            self._on_crash(SetupError(_stuck(left, now - self._moved)))
        elif now - self._asked_again > self._patience_s:
            self._asked_again = now
            self._patience_s *= 2
            log.warning("recovery of the tables stands still, beginning it again", place=place, left=left)
            self._app.restart_recovery()

    def status(self) -> dict[str, Any]:
        """For `/readyz`: records left, and the seconds that this recovery has taken, or the last one took."""
        running = self._began is not None
        return {"records_left": self._app.recovery_left() if running else 0, "seconds": round(self._took_s, 2)}

    def _end(self) -> None:
        if self._began is not None and self._app.recovered:
            self._took_s = self._clock() - self._began
            self._show(0)
            log.info("tables recovered", seconds=round(self._took_s, 2), records=self._most_left)
        self._began = self._place = None

    def _show(self, left: int) -> None:
        self._metrics.recovery_left.set(left)
        self._metrics.recovery_seconds.set(self._took_s)


def _stuck(left: int, seconds: float) -> str:
    return (
        f"the tables' changelogs gave nothing for {seconds:.0f} s with {left} records left: see the broker's log, then start the worker again; "
        "`--rebuild-state` reads a rocksdb store anew"
    )
