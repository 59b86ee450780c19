"""Histories: what happened in a store, read from it for reports and checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.contract.store import Store
from headway.contract.views import Difference, JobView, RunView
from headway.testing.dump import differences, every_job

FAR_AT = 2**62
"""End of what has not ended."""


class Acquisition(NamedTuple):
    """What one run took at one gate.

    Attributes:
        template: name under which the gate is declared; "" for an implicit gate.
        member: chosen member of a pool; otherwise "".
        amount: number of permits or starts.
        from_at: when the run was claimed, in ms UTC.
        to_at: when the permits were returned; FAR_AT while they are kept. Does not apply to starts
            of a rate.
    """

    gate: str
    template: str
    member: str
    amount: int
    from_at: int
    to_at: int
    job: str
    run: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Closed:
    """A gate that an operator closed.

    Attributes:
        to_at: until when; FAR_AT if indefinitely.
    """

    gate: str
    from_at: int
    to_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A capacity or limit that an operator changed.

    Attributes:
        gate: name of the gate; `pool/member` for a pool's member.
    """

    gate: str
    at: int
    to: int


@dataclass(slots=True, kw_only=True)
class History:
    """What happened in a period of time.

    Attributes:
        sent: ids of all jobs whose enqueue was acknowledged.
        jobs: all jobs in the store, with their runs.
        changes: capacities and limits that operators changed, in order.
        differences: findings of the store's own audit.
        outside_violations: violations observed by the outside world.
        refused: unusable rows of files, and jobs that a lane's max_backlog refused.
    """

    start_at: int
    end_at: int = 0
    sent: set[str] = field(default_factory=set[str])
    jobs: list[JobView] = field(default_factory=list[JobView])
    closings: list[Closed] = field(default_factory=list[Closed])
    changes: list[Changed] = field(default_factory=list[Changed])
    differences: tuple[Difference, ...] = ()
    outside_violations: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def runs(self) -> Iterator[tuple[JobView, RunView]]:
        """Yield every run with its job."""
        for job in self.jobs:
            for run in job.runs:
                yield job, run

    def acquisitions(self) -> Iterator[Acquisition]:
        """Yield what each run took at each gate, in no particular order."""
        for job, run in self.runs():
            yield from acquisitions_of(job, run)


def acquisitions_of(job: JobView, run: RunView) -> Iterator[Acquisition]:
    """Yield what one run took at its job's gates and at the implicit gates."""
    ended_at = FAR_AT if run.ended_at is None else run.ended_at
    handed_at = ended_at if run.handed_at is None else min(run.handed_at, ended_at)
    for use in job.gates:
        until = handed_at if use.hold == "run" else ended_at
        member = run.permits.get(use.name, "")
        yield Acquisition(
            use.name, use.template, member, use.amount, run.claimed_at, until, job.id, run.run
        )
    for gate in implicit_gates(job):
        yield Acquisition(gate, "", "", 1, run.claimed_at, handed_at, job.id, run.run)


def implicit_gates(job: JobView) -> tuple[str, ...]:
    """Return the implicit gates, which apply to every job."""
    return ("all", f"lane:{job.lane}", f"tenant:{job.tenant}", f"kind:{job.kind}")


async def read_into(history: History, store: Store) -> None:
    """Replace a history's `jobs` and `differences` with the store's jobs and audit findings."""
    history.jobs = [job async for job in every_job(store, runs=True)]
    history.differences = tuple(await differences(store))
