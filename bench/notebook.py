"""The figures of one run, and the results of its goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HEADWAY = "headway"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measure of one system.

    Attributes:
        unit: For "/s" more is better, for all others less.
        values: One value per repeat, in order.
        note: Additional information for the reader.
    """

    case: str
    system: str
    unit: str
    values: tuple[float, ...]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal for a measured ratio.

    Attributes:
        what: Description.
        ratio: The measured ratio.
        bound: Bound of the ratio.
        least: Whether the bound is a minimum; otherwise it is a maximum.
    """

    what: str
    ratio: float
    bound: float
    least: bool

    @property
    def met(self) -> bool:
        return self.ratio >= self.bound if self.least else self.ratio <= self.bound

    def __str__(self) -> str:
        word = "goal met" if self.met else "goal missed"
        sign = "≥" if self.least else "≤"
        return f"{word}: {self.what}: {digits(self.ratio)} (aim {sign} {self.bound:g})"


@dataclass(slots=True)
class Notebook:
    """The results of one run, in order.

    Attributes:
        faults: Jobs of this engine that were lost, done twice or started early, and failures.
        remarks: The same for peers.
    """

    figures: list[Figure] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(
        self, case: str, system: str, unit: str, values: Sequence[float], note: str = ""
    ) -> Figure:
        figure = Figure(case, system, unit, tuple(values), note)
        self.figures.append(figure)
        return figure

    def goal(
        self, what: str, ratio: float, *, least: float | None = None, most: float | None = None
    ) -> Goal:
        bound = least if least is not None else most
        if bound is None:
            message = f"the goal {what!r} has no bound"
            raise ValueError(message)
        goal = Goal(what, ratio, bound, least is not None)
        self.goals.append(goal)
        return goal

    def find(self, case: str, system: str) -> Figure | None:
        for figure in self.figures:
            if (figure.case, figure.system) == (case, system):
                return figure
        return None

    def as_json(self) -> dict[str, Any]:
        return {
            "figures": [{**asdict(one), "median": one.median} for one in self.figures],
            "goals": [{**asdict(one), "met": one.met} for one in self.goals],
            "faults": self.faults,
            "remarks": self.remarks,
        }


def figures_of(store: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of one store from the output of `as_json`."""
    names = ("case", "system", "unit", "values", "note")
    return [Figure(*(one[name] for name in names)) for one in store["figures"]]


def goals_of(store: Mapping[str, Any]) -> list[Goal]:
    """Return the goals of one store from the output of `as_json`."""
    names = ("what", "ratio", "bound", "least")
    return [Goal(*(one[name] for name in names)) for one in store["goals"]]


def digits(value: float) -> str:
    """Format a number with its significant digits."""
    size = abs(value)
    if size >= 1_000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
