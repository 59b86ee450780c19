"""What happened: the record that is read from a store when all is over, or at any time before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.contract.store import Store
from headway.contract.views import Difference, JobView, RunView
from headway.testing.dump import differences, every_job

FAR_AT = 2**62
"""Where a run ends that has not ended."""


class Taking(NamedTuple):
    """A gate passed by one run: what it took there, and until when it kept it.

    Attributes:
        template: under which it is declared; "" for an implicit one.
        member: chosen in a pool; else "".
        to_at: when it was given back; FAR_AT while it is kept. A start of a rate is not kept.
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
        to_at: until when; FAR_AT for good.
    """

    gate: str
    from_at: int
    to_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A capacity or limit that was changed.

    Attributes:
        gate: its name; of a pool's member `pool/member`.
    """

    gate: str
    at: int
    to: int


@dataclass(slots=True, kw_only=True)
class History:
    """A stretch of time as it went.

    Attributes:
        sent: the ids of all jobs that were acknowledged.
        jobs: as in the store, with their runs.
        changes: what operators changed, in order.
        differences: what the store's own audit found.
        outside: what the outside world has to complain of.
        refused: rows of files that are no jobs.
    """

    start_at: int
    end_at: int = 0
    sent: set[str] = field(default_factory=set[str])
    jobs: list[JobView] = field(default_factory=list[JobView])
    closings: list[Closed] = field(default_factory=list[Closed])
    changes: list[Changed] = field(default_factory=list[Changed])
    differences: tuple[Difference, ...] = ()
    outside: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def runs(self) -> Iterator[tuple[JobView, RunView]]:
        """Every run with its job."""
        for job in self.jobs:
            for run in job.runs:
                yield job, run

    def takings(self) -> Iterator[Taking]:
        """Yield everything that was taken, in no order."""
        for job, run in self.runs():
            yield from takings_of(job, run)


def takings_of(job: JobView, run: RunView) -> Iterator[Taking]:
    """Yield what one run took: of its gates, and of the implicit ones of every handler."""
    ended_at = FAR_AT if run.ended_at is None else run.ended_at
    handed_at = ended_at if run.handed_at is None else min(run.handed_at, ended_at)
    for use in job.gates:
        until = handed_at if use.hold == "run" else ended_at
        member = run.permits.get(use.name, "")
        yield Taking(
            use.name, use.template, member, use.amount, run.claimed_at, until, job.id, run.run
        )
    for gate in implicit_gates(job):
        yield Taking(gate, "", "", 1, run.claimed_at, handed_at, job.id, run.run)


def implicit_gates(job: JobView) -> tuple[str, ...]:
    """Return the gates that apply to a job unasked."""
    return ("all", f"lane:{job.lane}", f"tenant:{job.tenant}", f"kind:{job.kind}")


async def read_into(history: History, store: Store) -> None:
    """Replace a history's `jobs` and `differences` by the store's jobs and its audit's findings."""
    history.jobs = [job async for job in every_job(store, runs=True)]
    history.differences = tuple(await differences(store))
