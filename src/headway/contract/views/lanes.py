"""Views of lanes and workers."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.definitions import LaneSpec
from headway.contract.views.query import Query


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneView:
    """A lane, what it carries, and how many jobs it holds in each state."""

    name: str
    spec: LaneSpec
    overridden: bool
    counts: dict[str, int]
    workers: int
    oldest_due_at: int | None
    paused: bool

    @property
    def unfinished(self) -> int:
        """Jobs that are not final."""
        return sum(n for s, n in self.counts.items() if s not in {"succeeded", "dead", "cancelled"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LanesQuery(Query[tuple[LaneView, ...]]):
    """Lanes by name; all of them, or these."""

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerView:
    """A worker: its random id, what it serves, how many runs it holds, until when it lives."""

    id: str
    name: str
    lanes: tuple[str, ...]
    seen_at: int
    lease_until: int
    running: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersQuery(Query[tuple[WorkerView, ...]]):
    """Workers that live, or died less than an hour ago."""
