"""How much is measured: quick, by default, or in full."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Counts of one run.

    Attributes:
        repeats: of everything that is compared, in turns.
        single: enqueues one by one.
        bulk: jobs that this engine enqueues in batches of 1,000.
        bulk_peers: jobs that each peer does.
        drain: jobs queued before the drain that is compared with peers.
        drain_slow: jobs queued for slow peers: those that do fewer than 3,000 a second.
        waiting: repeats with handlers that wait, which take seconds whatever is fast.
        slow_pairs: whether two worker processes of slow peers are measured too.
        deep: jobs queued before deeper drains of this engine alone.
        locked: jobs that contend for locks.
        signals: jobs that are handed over and ended by signals.
        gated: jobs of the drain with gates on every job, and without.
        latency: jobs sent at 50 a second, for each repeat.
        burst: jobs due at one moment.
        burst_slow: for slow peers.
        paced: jobs due at 1,000 a second.
        few: jobs held by the small store of the comparison by depth.
        held: jobs held by the large one.
        held_postgres: the same on PostgreSQL.
        parked: jobs behind one full gate.
        claims: claims timed in the comparisons by depth.
        idle_s: seconds for which idle workers are watched.
        sized: scheduled jobs whose bytes are counted.
    """

    repeats: int = 3
    single: int = 2_000
    bulk: int = 50_000
    bulk_peers: int = 10_000
    drain: int = 20_000
    drain_slow: int = 4_000
    waiting: int = 3
    slow_pairs: bool = False
    deep: tuple[int, ...] = (100_000,)
    locked: int = 3_000
    signals: int = 5_000
    gated: int = 20_000
    latency: int = 120
    burst: int = 10_000
    burst_slow: int = 2_000
    paced: int = 5_000
    few: int = 10_000
    held: int = 1_000_000
    held_postgres: int = 1_000_000
    parked: int = 100_000
    claims: int = 60
    idle_s: float = 8.0
    sized: int = 50_000


DEFAULT = Scale()
QUICK = Scale(
    single=500,
    bulk=10_000,
    bulk_peers=2_000,
    drain=5_000,
    drain_slow=1_000,
    waiting=1,
    deep=(20_000,),
    locked=500,
    signals=500,
    gated=5_000,
    latency=50,
    burst=2_000,
    burst_slow=500,
    paced=1_000,
    few=1_000,
    held=50_000,
    held_postgres=50_000,
    parked=10_000,
    claims=30,
    idle_s=3.0,
    sized=10_000,
)
FULL = Scale(
    repeats=5,
    bulk_peers=50_000,
    drain_slow=20_000,
    slow_pairs=True,
    burst_slow=10_000,
    deep=(100_000, 1_000_000),
    held_postgres=5_000_000,
    latency=500,
    paced=10_000,
    claims=100,
)
