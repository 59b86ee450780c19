"""`headway simulate`: a scenario and its what-ifs, played, checked and put into numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from headway.core.errors import CallerError, located
from headway.lab.invariants import check
from headway.lab.play import Progress, play
from headway.lab.report import Report, report
from headway.lab.scenario_file import read_scenario


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """What came of a scenario file.

    Attributes:
        reports: the base first, then each what-if.
    """

    reports: tuple[Report, ...]

    @property
    def violated(self) -> bool:
        """Whether any promise was broken in any of them."""
        return any(report.violations for report in self.reports)


def simulate(
    path: Path, *, seed: int | None = None, progress: Progress | None = None
) -> Simulation:
    """Play a scenario file on virtual time, and check what happened.

    Args:
        path: a TOML file; the files that it names lie beside it.
        progress: called with the name of the current scenario and the share of it that is done.

    Returns:
        The same for the same file and seed, always.

    Raises:
        InvalidValue: the file cannot be read, or the engine refuses what it asks for.
    """
    file = read_scenario(path, seed=seed)
    reports: list[Report] = []
    for scenario in file.scenarios:
        with located(f"{path}: {scenario.name}: ", CallerError):
            played = play(scenario, path.parent, progress=progress)
        violations = check(played.history, scenario)
        reports.append(report(scenario, played.history, played.fates, violations))
    return Simulation(reports=tuple(reports))


def as_json(simulation: Simulation) -> bytes:
    """All numbers of a simulation as one JSON document, those of the plots included.

    Returns:
        `{"reports": [...]}`, UTF-8, without a line break at the end.
    """
    return msgspec.json.encode(simulation)
