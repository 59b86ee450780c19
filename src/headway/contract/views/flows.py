"""Views of flows: jobs that wait together."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.query import Page, Query
from headway.core.gates.spec import GateUse


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingFlow:
    """Waiting or parked jobs of one lane, tenant, kind and set of shared gates.

    Attributes:
        tenant: "" for none.
        shared: the gates without a key that each of them needs.
        parked_at: the keyed gate at which they are parked; None for waiting jobs.
        unfit: whether they ask for more than the gate can ever give.
        count: of waiting jobs, exact to 1000; of parked ones, the number of ids in `first`.
        first: the ids of the first jobs, in the order in which they start.
    """

    lane: str
    tenant: str
    kind: str
    shared: tuple[GateUse, ...]
    parked_at: str | None
    unfit: bool = False
    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowsQuery(Query[Page[WaitingFlow]]):
    """The flows with waiting jobs of a lane, or those with jobs parked at a gate.

    Its cost depends on the flows and jobs that it returns and counts, not on the number of other
    jobs. So it finds jobs among any number of others, where `JobsQuery` examines a bounded number
    of jobs by arrival. The first page of a gate begins with its unfit jobs, the first `first` of
    them; they do not count towards `limit`.

    Attributes:
        lane: whose waiting jobs are read; ignored if `gate` is given.
        gate: the resolved name of a keyed gate whose parked jobs are read.
        first: how many ids of each flow are returned, 1 to 100.
        cursor: of the page before.
        limit: 1 to 100 flows.
    """

    lane: str = ""
    gate: str | None = None
    first: int = 1
    cursor: str | None = None
    limit: int = 100
