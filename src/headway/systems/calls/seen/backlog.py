"""The backlog: leads that are due and wait, as far as a bounded look tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import JobQuery, JobsQuery, JobView, LaneView
from headway.core.state import State
from headway.server.for_callers.bounded_page import bounded_page
from headway.systems.calls.seen.dials import KIND

LANE = "calls"
EACH_END = 250
"""Waiting leads that are looked at: the first and the last to come."""
MOST_FLOWS = 32
"""Flows of these that are asked whether they can run, the largest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Leads that are due and wait.

    Attributes:
        waiting: in their flows.
        parked: at gates of their own, such as a customer's rate.
        ready: of those in flows, how many could go at once; of very many, by a sample.
        by_tenant: of those that were looked at.
        by_gate: of those that were looked at, how many need it.
    """

    waiting: int
    parked: int
    ready: int
    by_tenant: Mapping[str, int]
    by_gate: Mapping[str, int]

    @property
    def overdue(self) -> int:
        """All of them."""
        return self.waiting + self.parked

    @property
    def largest(self) -> tuple[str, float]:
        """The reseller with most of those that were looked at, and its share of them.

        Without others that wait too, nobody's, and 0.
        """
        if len(self.by_tenant) < 2:
            return "", 0.0
        tenant, most = max(self.by_tenant.items(), key=lambda one: one[1])
        return tenant, most / sum(self.by_tenant.values())


async def look_at_backlog(store: Store, lane: LaneView | None) -> Backlog:
    """Looks at the leads that came first and last; a bounded number of reads.

    Args:
        store: where they are jobs.
        lane: of the leads; None if there was none yet.

    Raises:
        StoreError: the store cannot tell now.
    """
    counts = {} if lane is None else lane.counts
    waiting = counts.get(State.WAITING, 0)
    rows: dict[str, JobView] = {}
    for newest in (False, True) if waiting else ():
        query = JobsQuery(
            lane=LANE, kind=KIND, states=(State.WAITING,), newest=newest, limit=EACH_END
        )
        rows |= {job.id: job for job in (await bounded_page(store, query)).rows}
    ready, asked = await _ready(store, list(rows.values()))
    whole = asked >= waiting
    return Backlog(
        waiting=waiting,
        parked=counts.get(State.PARKED, 0),
        ready=ready if whole else waiting * ready // max(1, asked),
        by_tenant=Counter(job.tenant for job in rows.values()),
        by_gate=Counter(gate.name for job in rows.values() for gate in job.gates),
    )


async def _ready(store: Store, jobs: Sequence[JobView]) -> tuple[int, int]:
    """How many could go at once, and of how many: one of each flow is asked for all of it."""
    flows: dict[tuple[str, str, str, tuple[str, ...]], list[JobView]] = {}
    for job in jobs:
        gates = tuple(sorted(gate.name for gate in job.gates if gate.shared))
        flows.setdefault((job.tenant, job.kind, job.stage, gates), []).append(job)
    largest = sorted(flows.values(), key=len, reverse=True)[:MOST_FLOWS]
    ready = 0
    for flow in largest:
        view = await store.read(JobQuery(id=flow[0].id))
        if view is not None and view.shown == "ready":
            ready += len(flow)
    return ready, sum(map(len, largest))
