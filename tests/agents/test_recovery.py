"""The watch over recoveries, with a moved clock; a real recovery runs in `live`."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.recovery import STALL_S, RecoveryWatch
from streams.metrics import Metrics


@dataclass
class App:
    """A recovery that stands where it is told to."""

    assigned: bool = False
    recovered: bool = False
    left: int = 0
    place: tuple[int, int] = (1, 0)
    restarts: int = 0

    def recovery_place(self) -> tuple[int, int]:
        """As told."""
        return self.place

    def recovery_left(self) -> int:
        """As told."""
        return self.left

    def restart_recovery(self) -> None:
        """Counted."""
        self.restarts += 1


@dataclass
class Rig:
    """A watch, what it watches, and its clock."""

    app: App = field(default_factory=App)
    now: float = 100.0
    crashes: list[BaseException] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)
    watch: RecoveryWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = RecoveryWatch(self.app, self.metrics, give_up_s=60.0, on_crash=self.crashes.append, clock=lambda: self.now)

    def after(self, seconds: float) -> None:
        """A tick that much later."""
        self.now += seconds
        self.watch.tick()


def recovering(left: int) -> Rig:
    """A recovery that has just begun."""
    rig = Rig(App(assigned=True, left=left))
    rig.watch.tick()
    return rig


def test_a_recovery_shows_what_is_left_and_how_long_it_took() -> None:
    """While it runs the records left and its seconds are shown, afterwards none and its length."""
    rig = recovering(500)
    rig.app.place, rig.app.left = (1, 300), 200
    rig.after(1.5)
    assert rig.watch.status() == {"records_left": 200, "seconds": 1.5}
    assert b"answerby_recovery_records_left 200.0" in rig.metrics.render()
    rig.app.recovered, rig.app.left = True, 0
    rig.after(0.5)
    assert rig.watch.status() == {"records_left": 0, "seconds": 2.0}
    rig.after(60)
    assert rig.watch.status()["seconds"] == 2.0
    assert b"answerby_recovery_records_left 0.0" in rig.metrics.render()


def test_a_recovery_that_moves_is_left_alone_however_long_it_takes() -> None:
    """Ten minutes of slow reading are no reason to begin again or to give up."""
    rig = recovering(10_000)
    for number in range(300):
        rig.app.place, rig.app.left = (1, number), 10_000 - number
        rig.after(2.0)
    assert (rig.app.restarts, rig.crashes) == (0, [])


def test_a_recovery_that_stands_still_is_begun_again_and_given_up_in_the_end() -> None:
    """It is asked again with growing patience, and after the bound the worker ends with one line that says what to do."""
    rig = recovering(7)
    rig.after(STALL_S + 0.1)
    assert rig.app.restarts == 1
    rig.after(STALL_S + 0.1)
    assert rig.app.restarts == 1
    rig.after(STALL_S)
    assert rig.app.restarts == 2
    for _ in range(60):
        rig.after(1.0)
    assert rig.crashes
    assert "7 records left" in str(rig.crashes[0])
    assert "--rebuild-state" in str(rig.crashes[0])


def test_a_new_assignment_is_a_new_recovery() -> None:
    """Partitions that go meanwhile end the watch; the next ones are measured from their own beginning."""
    rig = recovering(5)
    rig.after(2.0)
    rig.app.assigned = False
    rig.after(50.0)
    rig.app.assigned, rig.app.place = True, (2, 0)
    rig.after(1.0)
    rig.after(1.0)
    assert rig.watch.status() == {"records_left": 5, "seconds": 1.0}
    assert rig.app.restarts == 0
