"""Read: dispatch each query to its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    Query,
    SpecsQuery,
    StatsQuery,
    TimetableQuery,
    TokensQuery,
    TrailQuery,
    WhyQuery,
    WorkersQuery,
)
from headway.core.errors import InvariantBroken
from headway.stores.ledger.ledger import Ledger
from headway.stores.ledger.reads.gates import read_gates, read_specs
from headway.stores.ledger.reads.jobs import read_flows, read_job, read_jobs
from headway.stores.ledger.reads.listings import (
    read_audit,
    read_lanes,
    read_stats,
    read_timetable,
    read_tokens,
    read_trail,
    read_workers,
)
from headway.stores.ledger.reads.why import read_why

Answer = TypeVar("Answer")

_READS: dict[type[Query[Any]], Callable[..., Any]] = {
    JobQuery: read_job,
    JobsQuery: read_jobs,
    WhyQuery: read_why,
    FlowsQuery: read_flows,
    GatesQuery: read_gates,
    SpecsQuery: read_specs,
    LanesQuery: read_lanes,
    WorkersQuery: read_workers,
    TimetableQuery: read_timetable,
    TokensQuery: read_tokens,
    TrailQuery: read_trail,
    StatsQuery: read_stats,
    AuditQuery: read_audit,
}


def read(ledger: Ledger, query: Query[Answer]) -> Answer:
    """See `Store.read`.

    Raises:
        InvariantBroken: the query has no function here.
    """
    answer = _READS.get(type(query))
    if answer is None:
        message = f"{type(query).__name__} is not implemented"
        raise InvariantBroken(message)
    return cast("Answer", answer(ledger, query))
