"""Checks from a history alone whether the engine kept its promises.

The limits are taken from the scenario and its moves, and what happened from the history. None of
the engine's code decides: permits are counted again, windows recomputed, and opening hours compared
with the wall clock. So a limit that the engine ignored shows up as a limit that was broken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from headway.core.gates.kinds import traits_of
from headway.lab.history import FAR_AT, Acquisition, Changed, History, implicit_gates
from headway.lab.scenario import Scenario


class Limits:
    """The limits of a scenario at any time.

    Args:
        changes: capacities and limits that operators changed, in order.
    """

    def __init__(self, scenario: Scenario, changes: list[Changed]) -> None:
        self.tables = scenario.gates
        self.specs = {name: table.spec(name) for name, table in scenario.gates.items()}
        self.members = {
            name: dict(spec.members)
            for name, spec in self.specs.items()
            if traits_of(spec.kind).chooses_member
        }
        self._lanes = {f"lane:{name}": lane.concurrency for name, lane in scenario.lanes.items()}
        self._changed: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for change in changes:
            self._changed[change.gate].append((change.at, change.to))

    def capacity(self, gate: str, template: str, at: int, *, member: str = "") -> int | None:
        """Return the maximum number of permits, or of starts in a window; None for no limit.

        Args:
            template: name under which the gate is declared.
            at: time in ms UTC; at the time of a change, the larger value counts.
        """
        name = f"{gate}/{member}" if member else gate
        values: list[int | None] = [self.declared(gate, template, member=member)]
        steps = self._changed.get(name) or self._changed.get(template) or []
        index = bisect_right(steps, (at, 2**62))
        if index:
            values = [steps[index - 1][1]]
            before = (
                steps[index - 2][1] if index > 1 else self.declared(gate, template, member=member)
            )
            if steps[index - 1][0] == at:
                values.append(before)
        return None if None in values else max(value for value in values if value is not None)

    def declared(self, gate: str, template: str, *, member: str = "") -> int | None:
        """Return the limit that the scenario's tables declare, ignoring changes."""
        spec = self.specs.get(template)
        if spec is None:
            return self._lanes.get(gate)
        if template in self.members:
            members = self.members[template]
            return members.get(member, 0) if member else sum(members.values())
        return spec.capacity if spec.limit is None else spec.limit

    def window_ms(self, template: str) -> int | None:
        """Return the window of a rate in ms; None for other gates."""
        spec = self.specs.get(template)
        return spec.per_ms if spec else None


FINAL = frozenset({"succeeded", "dead", "cancelled"})


class Violation(NamedTuple):
    """A broken promise: the name of the rule, and where it is broken."""

    rule: str
    where: str


def check(history: History, scenario: Scenario) -> list[Violation]:
    """Return all violations of a history, in the order of the rules."""
    limits = Limits(scenario, history.changes)
    return [violation for rule in RULES for violation in rule(history, limits)]


def permits_stay_within_capacity(history: History, limits: Limits) -> Iterator[Violation]:
    """No permit is taken beyond a gate's capacity at that time."""
    held: defaultdict[tuple[str, str], list[Acquisition]] = defaultdict(list)
    for acquisition in history.acquisitions():
        spec = limits.specs.get(acquisition.template)
        if spec is None or traits_of(spec.kind).takes_permits:
            held[acquisition.gate, acquisition.member].append(acquisition)
    for (gate, member), acquisitions in held.items():
        template = acquisitions[0].template
        if template in limits.members and not member:
            yield Violation("permits", f"{acquisitions[0].job}: its run has no member of {gate}")
            continue
        used = 0
        for at, change, acquisition in _moves(acquisitions):
            used += change
            if change < 0:
                continue
            most = limits.capacity(gate, template, at, member=member)
            if most is not None and used > most:
                name = f"{gate}/{member}" if member else gate
                where = (
                    f"{name}: {used} of {most} permits in use at {at} with job {acquisition.job}"
                )
                yield Violation("permits", where)


def _moves(acquisitions: list[Acquisition]) -> list[tuple[int, int, Acquisition]]:
    moves = [(one.from_at, one.amount, one) for one in acquisitions if one.to_at > one.from_at]
    moves += [
        (one.to_at, -one.amount, one) for one in acquisitions if one.from_at < one.to_at < FAR_AT
    ]
    # At the same instant, releases come before acquisitions.
    return sorted(moves, key=lambda move: (move[0], move[1] > 0))


def rates_hold_in_every_window(history: History, limits: Limits) -> Iterator[Violation]:
    """No window, wherever it begins, contains more starts than the limit."""
    starts: defaultdict[tuple[str, str], list[Acquisition]] = defaultdict(list)
    for acquisition in history.acquisitions():
        if limits.window_ms(acquisition.template) is not None:
            starts[acquisition.gate, acquisition.template].append(acquisition)
    for (gate, template), acquisitions in starts.items():
        window_ms = limits.window_ms(template) or 0
        acquisitions.sort(key=lambda one: one.from_at)
        first = within = 0
        for acquisition in acquisitions:
            within += acquisition.amount
            while acquisitions[first].from_at <= acquisition.from_at - window_ms:
                within -= acquisitions[first].amount
                first += 1
            most = limits.capacity(gate, template, acquisition.from_at)
            if most is not None and within > most:
                where = (
                    f"{gate}: {within} of {most} starts in {window_ms} ms at {acquisition.from_at}"
                )
                yield Violation("rate", where)


def hours_are_kept(history: History, limits: Limits) -> Iterator[Violation]:
    """No run starts while a gate is closed by its hours."""
    for job, run in history.runs():
        for use in job.gates:
            table = limits.tables.get(use.template)
            hours = table.closed_by(use.zone, run.claimed_at) if table else ""
            if hours:
                where = f"{use.name}: job {job.id} started at {run.claimed_at}, outside {hours}"
                yield Violation("hours", where)


def closed_gates_let_nothing_pass(history: History, _: Limits) -> Iterator[Violation]:
    """No run starts while a gate that it must pass is closed by an operator."""
    closings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for closing in history.closings:
        closings[closing.gate].append((closing.from_at, closing.to_at))
    if not closings:
        return
    for job, run in history.runs():
        names = [*implicit_gates(job), *(use.name for use in job.gates)]
        names += [f"{gate}/{member}" for gate, member in run.permits.items() if member]
        for name in names:
            for from_at, to_at in closings.get(name, ()):
                if from_at < run.claimed_at < to_at:
                    where = f"job {job.id} started at {run.claimed_at} behind {name}"
                    yield Violation("closed", where)


def a_job_has_one_live_run(history: History, _: Limits) -> Iterator[Violation]:
    """The runs of a job have increasing numbers, and do not overlap."""
    for job in history.jobs:
        runs = sorted(job.runs, key=lambda run: run.run)
        for before, after in pairwise(runs):
            if before.run == after.run:
                yield Violation("one run", f"job {job.id} has run {before.run} twice")
            elif before.ended_at is None or before.ended_at > after.claimed_at:
                where = f"job {job.id}: run {after.run} started before run {before.run} ended"
                yield Violation("one run", where)


def nothing_starts_early(history: History, _: Limits) -> Iterator[Violation]:
    """No run starts before it is due."""
    for job, run in history.runs():
        if run.claimed_at < run.due_at:
            where = f"job {job.id} started {run.due_at - run.claimed_at} ms before it was due"
            yield Violation("too early", where)


def counts_are_conserved(history: History, _: Limits) -> Iterator[Violation]:
    """Each acknowledged job exists exactly once, and no other job does."""
    there = Counter(job.id for job in history.jobs)
    for lost in sorted(history.sent - there.keys()):
        yield Violation("lost", f"job {lost} was acknowledged, but does not exist")
    for job in history.jobs:
        if there[job.id] > 1:
            yield Violation("doubled", f"job {job.id} exists {there[job.id]} times")
        if job.id not in history.sent and not job.kind.endswith(".reconcile"):
            yield Violation("from nowhere", f"job {job.id} of kind {job.kind} was never sent")


def final_jobs_stay_final(history: History, _: Limits) -> Iterator[Violation]:
    """A final job has no live run; if it succeeded, only its last run did."""
    for job in history.jobs:
        if job.state not in FINAL:
            continue
        live = [run.run for run in job.runs if run.ended_at is None]
        if live:
            yield Violation("end", f"job {job.id} is {job.state}, but run {live[0]} is live")
        won = [run.run for run in job.runs if run.outcome == "succeeded"]
        if job.state == "succeeded" and won != [job.run]:
            where = f"job {job.id} succeeded in runs {won} of {[run.run for run in job.runs]}"
            yield Violation("end", where)


def store_passes_its_audit(history: History, _: Limits) -> Iterator[Violation]:
    """The store's own audit finds nothing."""
    for difference in history.differences:
        yield Violation("audit", f"{difference.where}: {difference.what}")


def outside_world_saw_no_violation(history: History, _: Limits) -> Iterator[Violation]:
    """The outside world observed no work started twice, and no line overbooked."""
    for violation in history.outside_violations:
        yield Violation("outside", violation)


RULES: tuple[Callable[[History, Limits], Iterator[Violation]], ...] = (
    permits_stay_within_capacity,
    rates_hold_in_every_window,
    hours_are_kept,
    closed_gates_let_nothing_pass,
    a_job_has_one_live_run,
    nothing_starts_early,
    counts_are_conserved,
    final_jobs_stay_final,
    store_passes_its_audit,
    outside_world_saw_no_violation,
)
