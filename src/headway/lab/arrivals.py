"""The jobs of a scenario: when each arrives, when it is due, and its arguments."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headway.core.errors import InvalidValue
from headway.core.instant import parse_instant
from headway.core.job import derived_id
from headway.lab.draws import Argument, Draws
from headway.lab.scenario import ArrivalsTable, Scenario


class Arrival(NamedTuple):
    """A job to be enqueued.

    Attributes:
        at: when it is enqueued, in ms UTC.
        due_at: when it is due, in ms UTC.
        id: derived from the seed.
        priority: None for the kind's.
        cancel: whether it is cancelled as soon as it is enqueued.
        place: file and line that it comes from; empty if it comes from no file.
    """

    at: int
    due_at: int
    id: str
    kind: str
    args: Mapping[str, Any]
    priority: int | None
    cancel: bool
    place: str = ""


class Arrivals:
    """All jobs of a scenario, in the order in which they arrive.

    Attributes:
        refused: unusable rows of its files, each as its file and line and what is wrong; and jobs
            that a lane's max_backlog refused, each as its kind and time.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.refused: list[str] = []
        self._scenario = scenario
        self._folder = folder
        self._draws = Draws(scenario.seed)

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the arrivals lazily, in the order of their times."""
        sources = [
            self._from_source(table.name or str(number), table)
            for number, table in enumerate(self._scenario.arrivals)
        ]
        return heapq.merge(*sources, key=attrgetter("at"))

    def _from_source(self, label: str, table: ArrivalsTable) -> Iterator[Arrival]:
        start_at = self._scenario.start
        if table.file is not None:
            yield from self._from_file(label, table, self._folder / table.file)
        elif table.backlog is not None:
            for count in range(table.backlog):
                yield self._arrival(label, count, table, start_at, start_at, {})
        else:
            for count, at in enumerate(_paced(self._scenario, label, table)):
                yield self._arrival(label, count, table, at, at, {})

    def _from_file(self, label: str, table: ArrivalsTable, path: Path) -> Iterator[Arrival]:
        start_at = self._scenario.start
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                place = f"{path.name}, line {number}"
                try:
                    row = _row(line)
                    if not _is_selected(table, row):
                        continue
                    due_at = start_at if table.due is None else _due_at(table.due, row)
                    # All rows are enqueued at the start; each is due at its own time.
                    made = self._arrival(label, number, table, start_at, due_at, row)
                except InvalidValue as error:
                    self.refused.append(f"{place}: {error.message}")
                    continue
                yield made._replace(place=place)

    def _arrival(
        self,
        label: str,
        count: int,
        table: ArrivalsTable,
        at: int,
        due_at: int,
        row: Mapping[str, object],
    ) -> Arrival:
        draws, purpose = self._draws, ("arrival", label, count)
        args = {name: one.draw(draws, row, *purpose, name) for name, one in table.args.items()}
        for name in table.fields:
            args[name] = Argument(column=name).draw(draws, row)
        self._check_lengths(table, args)
        return Arrival(
            at=at,
            due_at=due_at + table.due_after.draw(draws.unit(*purpose, "due"), args),
            id=derived_id("headway.lab", self._scenario.seed, *purpose),
            kind=table.kind,
            args=args,
            priority=table.priority,
            cancel=table.cancel,
        )

    def _check_lengths(self, table: ArrivalsTable, args: Mapping[str, Any]) -> None:
        """Check the arguments from which durations are computed; the handler would fail on them.

        Raises:
            InvalidValue: one is not a number from 0; the message names the row's field, if any.
        """
        if table.cancel:
            return  # it never runs
        for length in self._scenario.kinds[table.kind].lengths:
            try:
                length.draw(0.5, args)
            except InvalidValue as error:
                name = length.argument
                drawn = table.args.get(name)
                column = name if name in table.fields else drawn.column if drawn else ""
                message = f"field {column!r}: {error.message}" if column else error.message
                raise InvalidValue(message, hint=error.hint) from None


def _paced(scenario: Scenario, label: str, table: ArrivalsTable) -> Iterator[int]:
    """Yield arrival times, in ms UTC, at rates that change over time.

    A job arrives whenever the integral of the rate reaches the next mark.
    """
    draws = Draws(scenario.seed)
    marks = _marks(draws, label, even=table.pattern == "even")
    mark, passed = next(marks), 0.0
    steps = _steps(scenario, table)
    ends = [at for at, _ in steps[1:]] + [scenario.start + (scenario.duration or 0)]
    for (from_at, pace), to_at in zip(steps, ends, strict=True):
        reached = passed + pace * max(0, to_at - from_at)
        while mark < reached:
            yield from_at + int((mark - passed) / pace)
            mark = next(marks)
        passed = reached


def _marks(draws: Draws, label: str, *, even: bool) -> Iterator[float]:
    mark, count = 0.0, 0
    while True:
        mark += 1.0 if even else -math.log(draws.unit("gap", label, count))
        count += 1
        yield mark


def _steps(scenario: Scenario, table: ArrivalsTable) -> list[tuple[int, float]]:
    start_at, end_at = scenario.start, scenario.start + (scenario.duration or 0)
    if table.rate is not None:
        return [(start_at, table.rate)]
    changes = [(one.at.resolve(start_at, scenario.tz), one.rate) for one in table.rates or ()]
    known = [(min(max(at, start_at), end_at), rate) for at, rate in sorted(changes)]
    return [(start_at, 0.0), *known]


_decode = msgspec.json.Decoder(dict[str, object]).decode


def _row(line: bytes) -> Mapping[str, object]:
    try:
        return _decode(line)
    except (ValueError, RecursionError) as error:
        message = f"not a JSON object: {error}"
        raise InvalidValue(message) from None


def _is_selected(table: ArrivalsTable, row: Mapping[str, object]) -> bool:
    return all(row.get(name) is not None for name in table.present) and all(
        row.get(name) is None for name in table.absent
    )


def _due_at(column: str, row: Mapping[str, object]) -> int:
    if column not in row:
        message = f"the row has no field {column!r}"
        raise InvalidValue(message)
    return parse_instant(row[column])
