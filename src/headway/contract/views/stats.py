"""Counts of the whole store."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.views.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsView:
    """Counts of the whole store.

    Attributes:
        now: the store's time.
        counts: jobs by state.
        totals: since the store was made: enqueued, started, succeeded, failed, retried, dead,
            cancelled, lost, snoozed, handed_over, parked, fed, folded, signals, late_signals.
        identity: of the store.
        epoch: of the store.
        revision: of the definitions.
        clock_ahead_ms: by how much the store's time is ahead of its clock.
    """

    now: int
    counts: dict[str, int]
    totals: dict[str, int]
    identity: str
    epoch: int
    revision: int
    clock_ahead_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsQuery(Query[StatsView]):
    """Counts of the whole store, without a scan."""
