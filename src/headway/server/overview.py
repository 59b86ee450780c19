"""The overview: what a whole store looks like now, at a bounded cost."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    GateState,
    LanesQuery,
    LaneView,
    StatsQuery,
    StatsView,
    WorkersQuery,
    WorkerView,
)

MOST_GATES = 500
"""Gates that are looked at: those of keyed templates may be millions."""
PAGE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """What a whole store looks like; its parts were read one after another.

    Attributes:
        lanes: by name.
        gates: by name, the first 500 of them.
        more_gates: whether there are more.
        workers: that live, or died less than an hour ago.
    """

    stats: StatsView
    lanes: tuple[LaneView, ...]
    gates: tuple[GateState, ...]
    more_gates: bool
    workers: tuple[WorkerView, ...]

    @property
    def targets(self) -> list[str]:
        """The names of the lanes that have a latency target."""
        return [lane.name for lane in self.lanes if lane.spec.target_ms is not None]


async def read_overview(store: Store) -> Overview:
    """Look at a whole store; the number of its jobs does not matter.

    Raises:
        StoreError: the store cannot be read now.
    """
    lanes = await store.read(LanesQuery())
    gates: list[GateState] = []
    page = await store.read(GatesQuery(limit=PAGE))
    gates += page.rows
    while page.cursor is not None and len(gates) < MOST_GATES:
        page = await store.read(GatesQuery(cursor=page.cursor, limit=PAGE))
        gates += page.rows
    workers = await store.read(WorkersQuery())
    return Overview(
        # Last: nothing else that was read is then later than its time.
        stats=await store.read(StatsQuery()),
        lanes=lanes,
        gates=tuple(gates),
        more_gates=page.cursor is not None,
        workers=workers,
    )
