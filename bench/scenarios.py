"""What is measured, as values: each scenario's points, their lengths and their order; running them is `run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from bench.arrivals import burst_moments, even_moments, poisson_moments
from bench.results import Load

SYSTEMS = ("answerby", "onefile", "server")

START_S = 12.0
"""To start and warm one system, for the estimate alone."""

SETTLE_S = 1.6
"""Between two points, for the estimate alone."""

BUDGET_MS = 300.0
"""The usual one: what a person in a conversation takes for at once."""

MANY, HALF_S = 8.0, 20.0
"""Above so many events a second half the time counts as many events, down to so many seconds."""

BURST_EVENTS, BURST_WIDTH_S = 200, 0.1
BURST_PAUSE_S = 4.0


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """One load put on every system in turn. A burst when `bursts` is not 0, else a Poisson process."""

    scenario: str
    rate: float
    budget_ms: float
    seconds: float
    choice: bool = False
    bursts: int = 0

    @property
    def label(self) -> str:
        """What tells this point from others of a run; also its seed."""
        what = f"burst{BURST_EVENTS}" if self.bursts else f"{self.rate:g}"
        return f"{self.scenario}-{what}-{self.budget_ms:g}ms"

    @property
    def load(self) -> Load:
        """As the result file has it; a burst's rates are counted from its first event to its last due."""
        seconds = self.bursts * (BURST_WIDTH_S + self.budget_ms / 1000) if self.bursts else self.seconds
        return Load(self.scenario, self.label, self.rate, self.budget_ms, seconds, self.choice)

    def moments(self) -> tuple[float, ...]:
        """When the events leave; the same for every system."""
        if self.bursts:
            return burst_moments(BURST_EVENTS, BURST_WIDTH_S, self.bursts, self._burst_every_s)
        return poisson_moments(self.rate, self.seconds, self.label)

    @property
    def takes_s(self) -> float:
        """Of one system, about."""
        load_s = BURST_WIDTH_S + (self.bursts - 1) * self._burst_every_s if self.bursts else self.seconds
        return load_s + self.budget_ms / 1000 + SETTLE_S

    @property
    def _burst_every_s(self) -> float:
        return BURST_WIDTH_S + self.budget_ms / 1000 + BURST_PAUSE_S


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The engine alone, closed loop."""

    seconds: float
    open_requests: tuple[int, ...] = (1, 4, 8, 16)
    scenario: str = "ceiling"


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing for `seconds`, then one event to each system."""

    seconds: float
    budget_ms: float = BUDGET_MS
    scenario: str = "idle"


@dataclass(frozen=True, slots=True)
class FastPath:
    """A scripted engine that takes no time: what everything around a model costs."""

    seconds: float
    rate: float = 100.0
    sessions: int = 50
    budget_ms: float = 1000.0
    scenario: str = "fastpath"

    @property
    def load(self) -> Load:
        """As the result file has it."""
        return Load(self.scenario, f"{self.scenario}-{self.rate:g}", self.rate, self.budget_ms, self.seconds)

    def moments(self) -> tuple[float, ...]:
        """Evenly."""
        return even_moments(self.rate, self.seconds)


@dataclass(frozen=True, slots=True)
class Kills:
    """The engine's process killed `kills` times while events come."""

    seconds: float
    kills: int
    rate: float = 4.0
    budget_ms: float = BUDGET_MS
    scenario: str = "kills"

    @property
    def load(self) -> Load:
        """As the result file has it."""
        return Load(self.scenario, f"{self.scenario}-{self.rate:g}", self.rate, self.budget_ms, self.seconds)

    def moments(self) -> tuple[float, ...]:
        """A Poisson process."""
        return poisson_moments(self.rate, self.seconds, self.scenario)


@dataclass(frozen=True, slots=True)
class Survival:
    """Whole workers killed while events come."""

    seconds: float
    kills: int
    workers: int
    rate: float = 50.0
    scenario: str = "survival"


Task = LoadPoint | Ceiling | Idle | FastPath | Kills | Survival


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long and how much; the two sets below are what `quick` and `full` mean."""

    point_s: float
    rates: tuple[float, ...]
    budgets_ms: tuple[float, ...]
    choices: tuple[tuple[float, float], ...]
    bursts: int
    ceiling_s: float
    fastpath_s: float
    kills: int
    kills_s: float
    idle_s: float
    survival_s: float
    survival_kills: int


FULL = Lengths(60, (1, 2, 4, 8, 16, 32), (100, 150, 300, 600, 1200), ((4, 300), (8, 100)), 5, 20, 60, 20, 300, 600, 120, 5)
QUICK = Lengths(6, (2, 4, 8, 16, 32), (100, 600), ((4, 300),), 1, 3, 8, 1, 10, 10, 20, 1)

FULL_NAMES = ("ceiling", "rates", "budgets", "choice", "burst", "idle", "kills", "fastpath", "survival")
QUICK_NAMES = ("ceiling", "rates", "budgets", "choice", "burst", "kills", "fastpath")


def build_plan(names: Sequence[str], seconds: float | None = None, idle_s: float | None = None, budgets_ms: Sequence[float] = ()) -> tuple[Task, ...]:
    """The tasks of `quick`, `full` or named scenarios, in order.

    Args:
        names: of scenarios, or of the two sets.
        seconds: replaces the length of whatever has one but `idle`.
        idle_s: how long `idle` is.
        budgets_ms: replace the budget of what does not vary it: `rates` takes each of them, `choice`, `idle` and `kills` the first.

    Raises:
        ValueError: a name is unknown; the text lists those that are not.
    """
    lengths = QUICK if list(names) == ["quick"] else FULL
    wanted: list[str] = []
    for name in names:
        wanted += {"quick": QUICK_NAMES, "full": FULL_NAMES}.get(name, (name,))
    tasks: list[Task] = []
    for name in dict.fromkeys(wanted):
        for budget_ms in (budgets_ms or (None,)) if name == "rates" else (next(iter(budgets_ms), None),):
            tasks += _scenario(name, lengths, seconds, idle_s, budget_ms)
    return tuple(tasks)


def estimate_s(tasks: Sequence[Task], systems: Sequence[str]) -> float:
    """How long the plan takes, about."""
    total = 5.0 + START_S * (len(systems) if any(isinstance(task, LoadPoint | Idle | Kills) for task in tasks) else 0)
    for task in tasks:
        match task:
            case LoadPoint():
                total += task.takes_s * len(systems)
            case Ceiling():
                total += 8 + (task.seconds + 1) * len(task.open_requests)
            case Idle():
                total += task.seconds + 3 * len(systems)
            case FastPath():
                total += task.seconds + START_S
            case Kills():
                total += task.seconds + 15
            case Survival():
                total += task.seconds + START_S + 15
            case _:
                assert_never(task)
    return total


def _scenario(name: str, lengths: Lengths, seconds: float | None, idle_s: float | None, budget_ms: float | None) -> list[Task]:
    point_s, usual_ms = seconds or lengths.point_s, budget_ms or BUDGET_MS
    match name:
        case "rates":
            return [LoadPoint("rates", rate, usual_ms, point_s if rate <= MANY else max(point_s / 2, min(point_s, HALF_S))) for rate in lengths.rates]
        case "budgets":
            return [LoadPoint("budgets", 8, budget, point_s) for budget in lengths.budgets_ms]
        case "choice":
            return [LoadPoint("choice", rate, budget_ms or budget, point_s, choice=True) for rate, budget in lengths.choices]
        case "burst":
            return [LoadPoint("burst", BURST_EVENTS / BURST_WIDTH_S, budget, 0, bursts=1 if seconds else lengths.bursts) for budget in (800, 300)]
        case "ceiling":
            return [Ceiling(min(seconds or lengths.ceiling_s, lengths.ceiling_s))]
        case "idle":
            return [Idle(lengths.idle_s if idle_s is None else idle_s, usual_ms)]
        case "fastpath":
            return [FastPath(seconds or lengths.fastpath_s)]
        case "kills":
            length = seconds or lengths.kills_s
            return [Kills(length, max(1, round(lengths.kills * length / lengths.kills_s)), budget_ms=usual_ms)]
        case "survival":
            length = seconds or lengths.survival_s
            kills = max(1, round(lengths.survival_kills * length / lengths.survival_s))
            return [Survival(length, kills, workers) for workers in (1, 2)]
        case _:
            text = f"there is no scenario {name!r}: choose from quick, full, {', '.join(FULL_NAMES)}"
            raise ValueError(text)
