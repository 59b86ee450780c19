"""The use of gates: average, peak, time full, time closed, and use over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from headway.core.gates.kinds import traits_of
from headway.lab.history import Acquisition, History
from headway.lab.invariants import Limits
from headway.lab.scenario import Scenario

POINTS = 240
"""Number of equal parts into which a plot divides the time."""
_EACH = 12
"""Maximum number of instances of a template that get a row each; more are summed up in one row."""
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class GateUsage:
    """The use of one gate, or of all instances of a keyed one.

    Attributes:
        gate: its name; `pool/member` for a pool's member; the template for many instances.
        kind: slots, rate, hours, pool, or implicit.
        instances: number of gates in this row.
        capacity: maximum number of permits, or of starts in a window, at the end of the time; None
            for no limit.
        starts: number of runs that passed the gate.
        mean: permits in use, or starts in the window, averaged over the time and the instances;
            None for hours.
        peak: highest use of any instance at any time.
        member: whether it is a member of the pool in the row above.
        full: share of the time in which there was no room for another permit; None for hours.
        shut: share of the time in which it was closed, by its hours or by an operator.
    """

    gate: str
    kind: str
    instances: int
    capacity: int | None
    starts: int
    mean: float | None
    peak: int
    member: bool
    full: float | None
    shut: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The use of one gate over time, divided into `POINTS` equal parts.

    Attributes:
        mean: average use in each part.
        peak: highest use in each part.
        capacity: capacity at the end of each part; None for no limit.
    """

    gate: str
    mean: tuple[float, ...]
    peak: tuple[int, ...]
    capacity: tuple[int | None, ...]


class UsageMeter:
    """Measures the use of the gates in a history."""

    def __init__(self, history: History, scenario: Scenario) -> None:
        self.start_at, self.end_at = history.start_at, max(history.end_at, history.start_at + 1)
        self._history = history
        self._limits = Limits(scenario, history.changes)
        self._lanes = {f"lane:{name}" for name, lane in scenario.lanes.items() if lane.concurrency}
        self._lanes |= {change.gate for change in history.changes}
        self._zones = {use.name: use.zone for job in history.jobs for use in job.gates if use.zone}
        self._by_gate = self._acquisitions_by_gate()

    def uses(self) -> list[GateUsage]:
        """Return a row per gate, in the order of the scenario; pools are followed by members."""
        return [use for _, use, _ in self._rows()]

    def curves(self) -> list[Curve]:
        """Return a curve for each gate with its own row, except hours and members of pools."""
        return [
            self._curve(use.gate, template, steps)
            for template, use, steps in self._rows()
            if use.instances == 1 and use.mean is not None and not use.member
        ]

    def _acquisitions_by_gate(self) -> dict[str, dict[str, list[Acquisition]]]:
        found: defaultdict[str, defaultdict[str, list[Acquisition]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for acquisition in self._history.acquisitions():
            template = acquisition.template or acquisition.gate
            if acquisition.template or acquisition.gate in self._lanes:
                found[template][acquisition.gate].append(acquisition)
        order = [*self._limits.tables, *sorted(self._lanes)]
        return {name: dict(sorted(found[name].items())) for name in order if name in found}

    def _rows(self) -> Iterator[tuple[str, GateUsage, list[tuple[int, int]]]]:
        for template, gates in self._by_gate.items():
            if len(gates) > _EACH:
                yield template, self._many(template, gates), []
                continue
            for gate, acquisitions in gates.items():
                steps = self._steps(template, acquisitions)
                yield template, self._one(gate, template, acquisitions, steps), steps
                yield from self._members(gate, template, acquisitions)

    def _members(
        self, gate: str, template: str, acquisitions: list[Acquisition]
    ) -> Iterator[tuple[str, GateUsage, list[tuple[int, int]]]]:
        for member in self._limits.members.get(template, ()):
            own = [acquisition for acquisition in acquisitions if acquisition.member == member]
            steps = self._steps(template, own)
            yield template, self._one(gate, template, own, steps, member=member), steps

    def _steps(self, template: str, acquisitions: Sequence[Acquisition]) -> list[tuple[int, int]]:
        """Return the use as steps: pairs of a time and the use from then on, from the start."""
        window_ms = self._limits.window_ms(template)
        moves: defaultdict[int, int] = defaultdict(int)
        moves[self.start_at] = 0
        # Changes of capacity start a step too, so that capacity is constant within each step.
        moves.update((one.at, 0) for one in self._history.changes if one.at < self.end_at)
        for acquisition in acquisitions:
            to_at = acquisition.to_at if window_ms is None else acquisition.from_at + window_ms
            moves[acquisition.from_at] += acquisition.amount
            moves[min(to_at, self.end_at)] -= acquisition.amount
        used, steps = 0, list[tuple[int, int]]()
        for at, change in sorted(moves.items(), key=itemgetter(0)):
            used += change
            steps.append((at, used))
        return steps

    def _one(
        self,
        gate: str,
        template: str,
        acquisitions: list[Acquisition],
        steps: list[tuple[int, int]],
        *,
        member: str = "",
    ) -> GateUsage:
        counts = traits_of(self._kind(template)).counts
        area = full_ms = 0
        for (at, used), until in zip(steps, _ends(steps, self.end_at), strict=True):
            area += used * (until - at)
            most = self._capacity(gate, template, until - 1, member)
            full_ms += (until - at) * (most is not None and used >= most)
        span_ms = self.end_at - self.start_at
        name = f"{gate}/{member}" if member else gate
        return GateUsage(
            gate=name,
            kind="slots" if member else self._kind(template),
            instances=1,
            capacity=self._capacity(gate, template, self.end_at, member),
            starts=len(acquisitions),
            mean=area / span_ms if counts else None,
            peak=max((used for _, used in steps), default=0),
            member=bool(member),
            full=full_ms / span_ms if counts else None,
            shut=self._shut(name, gate, template),
        )

    def _many(self, template: str, gates: dict[str, list[Acquisition]]) -> GateUsage:
        rows = [
            self._one(gate, template, acquisitions, self._steps(template, acquisitions))
            for gate, acquisitions in gates.items()
        ]
        return GateUsage(
            gate=template,
            kind=self._kind(template),
            instances=len(rows),
            capacity=rows[0].capacity,
            starts=sum(row.starts for row in rows),
            mean=sum(row.mean or 0 for row in rows) / len(rows),
            peak=max(row.peak for row in rows),
            member=False,
            full=sum(row.full or 0 for row in rows) / len(rows),
            shut=sum(row.shut for row in rows) / len(rows),
        )

    def _curve(self, gate: str, template: str, steps: list[tuple[int, int]]) -> Curve:
        edges = [
            self.start_at + (self.end_at - self.start_at) * part // POINTS
            for part in range(POINTS + 1)
        ]
        areas, peaks = [0.0] * POINTS, [0] * POINTS
        for (at, used), until in zip(steps, _ends(steps, self.end_at), strict=True):
            first = self._part(at)
            for part in range(first, min(self._part(until), POINTS - 1) + 1):
                width = min(until, edges[part + 1]) - max(at, edges[part])
                areas[part] += used * max(0, width)
                if width > 0:
                    peaks[part] = max(peaks[part], used)
        widths = [max(1, edges[part + 1] - edges[part]) for part in range(POINTS)]
        return Curve(
            gate=gate,
            mean=tuple(area / width for area, width in zip(areas, widths, strict=True)),
            peak=tuple(peaks),
            capacity=tuple(self._capacity(gate, template, at, "") for at in edges[1:]),
        )

    def _part(self, at: int) -> int:
        # May be one too low, because the edges are rounded down; the width there is then zero.
        exact = (at - self.start_at) * POINTS // (self.end_at - self.start_at)
        return max(0, min(POINTS - 1, exact))

    def _kind(self, template: str) -> str:
        spec = self._limits.specs.get(template)
        return str(spec.kind) if spec else "implicit"

    def _capacity(self, gate: str, template: str, at: int, member: str) -> int | None:
        members = self._limits.members.get(template)
        if members is None or member:
            return self._limits.capacity(gate, template, at, member=member)
        return sum(self._limits.capacity(gate, template, at, member=one) or 0 for one in members)

    def _shut(self, name: str, gate: str, template: str) -> float:
        """Return the share of the time in which a gate was closed, sampled once per minute."""
        table = self._limits.tables.get(template)
        closings = [one for one in self._history.closings if one.gate in {name, gate}]
        zone = self._zones.get(gate)
        if not closings and not zone:
            return 0.0
        minutes = range(self.start_at, self.end_at, _MINUTE_MS)
        shut = sum(
            any(one.from_at <= at < one.to_at for one in closings)
            or (table is not None and table.closed_by(zone, at) != "")
            for at in minutes
        )
        return shut / len(minutes)


def _ends(steps: list[tuple[int, int]], end_at: int) -> list[int]:
    return [at for at, _ in steps[1:]] + [max(end_at, steps[-1][0])]
