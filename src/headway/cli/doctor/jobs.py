"""Jobs that will not start: lanes without workers, and amounts that no gate can ever give."""

from __future__ import annotations

from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.cli.doctor.gates import ADD_MEMBERS, POOL
from headway.contract.store import Store
from headway.contract.views import JobsQuery, LanesQuery, WhyQuery
from headway.core.state import State

MORE = "headway gates set {} --capacity N"
SAMPLE = 100
"""Waiting jobs, and as many parked ones, that are asked why."""


async def look_at_lanes(store: Store) -> list[Finding]:
    """Whether each lane that holds jobs has a live worker."""
    findings: list[Finding] = []
    lanes = await store.read(LanesQuery())
    for lane in lanes:
        if lane.unfinished and not lane.workers:
            found = f"the lane {lane.name} holds {lane.unfinished} jobs and has no live worker"
            findings.append(warning("lanes", found, f"headway worker --lanes {lane.name}"))
    return findings or [well("lanes", f"{len(lanes)} lanes, none with jobs and without a worker")]


async def look_at_jobs(store: Store) -> list[Finding]:
    """Whether a sample of what waits asks a gate for more than it could ever give."""
    stuck: dict[str, list[str]] = {}
    pools: set[str] = set()
    asked = 0
    for state in (State.WAITING, State.PARKED):
        page = await store.read(JobsQuery(states=(state,), limit=SAMPLE))
        for job in page.rows:
            why = await store.read(WhyQuery(id=job.id))
            asked += why is not None
            for gate in why.never_fits if why else ():
                stuck.setdefault(gate, []).append(job.id)
            pools |= {gate.name for gate in why.closed if gate.kind == POOL} if why else set()
    if not stuck:
        return [well("jobs", f"{asked} waiting jobs asked, each could start one day")]
    return [
        problem(
            "never fits",
            f"{len(jobs)} of {asked} waiting jobs ask {gate} for more than it has, as {jobs[0]}",
            f"{ADD_MEMBERS if gate in pools else MORE.format(gate)}, or cancel them",
        )
        for gate, jobs in stuck.items()
    ]
