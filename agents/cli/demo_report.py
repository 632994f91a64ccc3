"""What became of the records that `demo` sent: counted as answers come, summed up as a table and as the contract's JSON; pure but for the printing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from agents.cli.answer_view import PARTS
from agents.cli.demo_log import Planned

Name = tuple[str, str, str]
Place = tuple[int, int]


class Report:
    """Counts every record that was sent against every answer and dead letter that came."""

    def __init__(self) -> None:
        self._sent: dict[Name, list[tuple[Planned, float]]] = {}
        self._answers: dict[Name, list[tuple[Mapping[str, Any], float]]] = {}
        self._malformed: set[Place] = set()
        self._dead: set[Place] = set()
        self.events = 0

    def note_sent(self, planned: Planned, sent_at: float) -> None:
        """A record is about to be handed to the broker, at `sent_at` monotonic seconds."""
        self.events += 1
        if planned.event is not None:
            self._sent.setdefault(planned.name, []).append((planned, sent_at))

    def note_malformed(self, place: Place) -> None:
        """A malformed record stands at this partition and offset."""
        self._malformed.add(place)

    def note_answer(self, response: Mapping[str, Any], received_at: float) -> bool:
        """An answer came; False when it is to nothing that was sent here."""
        name = (str(response["tenant"]), str(response["session_id"]), str(response["event_id"]))
        if name not in self._sent:
            return False
        self._answers.setdefault(name, []).append((response, received_at))
        return True

    def note_dead_letter(self, place: Place) -> None:
        """A dead letter came; `place` is where the record stood that it is of."""
        self._dead.add(place)

    @property
    def well_formed(self) -> int:
        """Events sent that are events, repeats counted."""
        return sum(map(len, self._sent.values()))

    @property
    def answered(self) -> int:
        """Those that got an answer; each sending of a repeated event needs its own."""
        return sum(min(len(sent), len(self._answers.get(name, ()))) for name, sent in self._sent.items())

    @property
    def malformed(self) -> int:
        """Records sent that are no events."""
        return len(self._malformed)

    @property
    def malformed_kept(self) -> int:
        """Malformed records that are in the dead letters."""
        return len(self._malformed & self._dead)

    @property
    def complete(self) -> bool:
        """Every event answered, every malformed record kept, and nothing else given up."""
        return self.answered == self.well_formed and self._malformed == self._dead

    @property
    def met(self) -> int:
        """Answers that met their deadline."""
        return sum(bool(response["deadline"]["met"]) for response, _at in self._all_answers())

    @property
    def late(self) -> int:
        """Events whose time was over before they were sent."""
        return sum(planned.late for sent in self._sent.values() for planned, _at in sent)

    def outcomes(self) -> dict[str, int]:
        """Answers by outcome, the most frequent first."""
        return dict(Counter(str(response["outcome"]) for response, _at in self._all_answers()).most_common())

    def missing(self) -> list[str]:
        """Events without an answer, for the operator."""
        return [
            f"{session}/{event}" for (tenant, session, event), sent in self._sent.items() if len(self._answers.get((tenant, session, event), ())) < len(sent)
        ]

    def round_trips_ms(self) -> list[float]:
        """From sending to receipt as a client saw it, of events that were not sent late."""
        pairs = [pair for name, sent in self._sent.items() for pair in zip(sent, self._answers.get(name, ()), strict=False)]
        return [(received - sent_at) * 1000 for (planned, sent_at), (_response, received) in pairs if not planned.late]

    def stages_ms(self) -> dict[str, list[float]]:
        """Time in each part of an answer's way, by the model's answers alone: the others skip most of it."""
        answers = [response["latency_ms"] for response, _at in self._all_answers() if response["model"]]
        stages = {name: [sum(float(latency[stage]) for stage in parts) for latency in answers] for name, parts, _glyph, _style in PARTS}
        return {**stages, "total": [float(latency["total"]) for latency in answers]}

    def summary(self) -> dict[str, Any]:
        """The contract's summary; times in ms from sending to receipt, of events that were not sent late."""
        trips = self.round_trips_ms()
        return {
            "events": self.events,
            "well_formed": self.well_formed,
            "answered": self.answered,
            "met": self.met,
            "late": self.late,
            "dead_letters": len(self._dead),
            "outcomes": self.outcomes(),
            "p50_ms": round(percentile(trips, 50), 1),
            "p99_ms": round(percentile(trips, 99), 1),
        }

    def _all_answers(self) -> list[tuple[Mapping[str, Any], float]]:
        """Not more of an event than it was sent: a redelivered record is answered again with the same bytes."""
        return [answer for name, sent in self._sent.items() for answer in self._answers.get(name, [])[: len(sent)]]


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; NaN-free: 0 of nothing."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else 0.0


def print_report(report: Report, console: Console) -> None:
    """The summary as tables."""
    on_time = report.well_formed - report.late
    trips = report.round_trips_ms()
    counts = Table(box=None, show_header=False, pad_edge=False)
    counts.add_row("answered", _of(report.answered, report.well_formed))
    counts.add_row("in time", _of(report.met, on_time), Text(f"{report.late} more were sent too late on purpose" if report.late else "", style="bright_black"))
    counts.add_row("dead letters", _of(report.malformed_kept, report.malformed), Text("malformed records, kept byte for byte", style="bright_black"))
    counts.add_row("by outcome", ", ".join(f"{outcome} {number}" for outcome, number in report.outcomes().items()))
    counts.add_row("sent to received", f"p50 {percentile(trips, 50):.0f} ms, p99 {percentile(trips, 99):.0f} ms")
    stages = Table("stage", "p50 ms", "p99 ms", box=None, pad_edge=False, header_style="bright_black")
    for name, values in report.stages_ms().items():
        stages.add_row(name, f"{percentile(values, 50):.0f}", f"{percentile(values, 99):.0f}")
    console.print(Group(Text(), counts, Text(), stages))


def _of(number: int, whole: int) -> Text:
    return Text(f"{number} of {whole}", style="bold green" if number == whole else "bold red")
