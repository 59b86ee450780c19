"""Dials: how long the calls of the last minutes took from due to dial, and waited at gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import JobsQuery
from headway.core.state import FINAL, State
from headway.server.for_callers.bounded_page import bounded_page

KIND = "lead"
RECENT_MS = 300_000
"""A dial that is longer ago says nothing about now."""
NEWEST = 250
"""Leads under calls, and leads that have ended, that are looked at: the newest of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dials:
    """The calls that were dialled lately.

    Attributes:
        due_to_dial_ms: from due to dial, in growing order; waits behind gates are left out.
        gate_wait_ms: the waits behind gates, in growing order.
    """

    due_to_dial_ms: Sequence[int]
    gate_wait_ms: Sequence[int]


async def look_at_dials(store: Store, now: int) -> Dials:
    """The calls of the last five minutes, of a bounded number of leads.

    Args:
        store: where the leads are jobs.
        now: the store's time, ms UTC.

    Raises:
        StoreError: the store cannot tell now.
    """
    due: list[int] = []
    gates: list[int] = []
    for states in ((State.AWAITING,), tuple(sorted(FINAL))):
        query = JobsQuery(kind=KIND, states=states, runs=True, newest=True, limit=NEWEST)
        for job in (await bounded_page(store, query)).rows:
            for run in job.runs:
                if run.handed_at is None or run.handed_at < now - RECENT_MS:
                    continue
                waited = run.handed_at - max(run.due_at, job.created_at)
                due.append(max(0, waited - run.blocked_ms))
                gates.append(min(run.blocked_ms, max(0, waited)))
    return Dials(due_to_dial_ms=sorted(due), gate_wait_ms=sorted(gates))
