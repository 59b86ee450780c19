"""What every case is given: how much to measure, where, and where to write it down."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench.notebook import HEADWAY, Figure, Goal, Notebook, digits
from bench.scale import Scale


@dataclass(slots=True)
class Bench:
    """One run.

    Attributes:
        scale: how much to measure.
        folder: where the databases of the run lie.
        console: where progress is shown.
        notebook: what was measured.
    """

    scale: Scale
    folder: Path
    console: Console
    notebook: Notebook = field(default_factory=Notebook)
    made: int = 0

    @contextmanager
    def fresh(self) -> Generator[Path]:
        """An empty folder for one database, removed afterwards."""
        self.made += 1
        folder = self.folder / f"{self.made:03}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def say(self, text: str, style: str | None = None) -> None:
        """Prints a line as it is."""
        self.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """Shows what goes on now."""
        self.say(f"  … {what}", "dim")

    def add(self, case: str, system: str, unit: str, values: list[float], note: str = "") -> Figure:
        """Writes a figure down and shows it."""
        figure = self.notebook.add(case, system, unit, values, note)
        self.show(figure)
        return figure

    def show(self, figure: Figure, prefix: str = "") -> None:
        """Prints a figure: its median, and the least and the most of its repeats."""
        values = figure.values
        spread = f"  ({digits(min(values))} to {digits(max(values))})" if len(values) > 1 else ""
        note = f"  [{figure.note}]" if figure.note else ""
        name = prefix + figure.system
        self.say(f"  {name:<44} {digits(figure.median):>9} {figure.unit}{spread}{note}")

    def goal(
        self, what: str, ratio: float, *, least: float | None = None, most: float | None = None
    ) -> Goal:
        """Writes a goal down and says whether it is met."""
        goal = self.notebook.goal(what, ratio, least=least, most=most)
        self.say(f"  {goal}", "green" if goal.met else "bold red")
        return goal

    def delivered(self, system: str, what: str, lost: int, double: int) -> None:
        """Notes that jobs were lost or done twice, if any were."""
        if lost or double:
            self.fault(system, f"{what}: {lost} lost, {double} done twice")

    def fault(self, system: str, what: str) -> None:
        """Notes what no figure makes up for; a peer's is a remark beside its figures."""
        faults = self.notebook.faults if system == HEADWAY else self.notebook.remarks
        faults.append(f"{system}, {what}")
        self.say(f"  {faults[-1]}", "bold red")
