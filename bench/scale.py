"""The scale of a run: quick, default or full."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Counts of one run.

    Attributes:
        repeats: Repeats of all comparisons, in turns.
        single: Jobs enqueued one by one.
        bulk: Jobs that this engine enqueues in batches of 1,000.
        bulk_peers: Jobs that each peer enqueues in bulk.
        drain: Jobs queued before the drain that is compared with peers.
        drain_slow: Jobs queued for slow peers, which run fewer than 3,000 per second.
        waiting: Repeats with handlers that wait, which take seconds on every system.
        rounds: Jobs per handler that waits; the last ones leave some handlers without a job, so
            few rounds show less than is reached in the long run.
        slow_pairs: Whether two worker processes of slow peers are measured too.
        deep: Jobs queued before deeper drains of this engine alone.
        locked: Jobs that contend for locks.
        signals: Jobs that are handed over and ended by signals.
        gated: Jobs of the drains with and without gates on every job.
        latency: Jobs sent at 50 per second, for each repeat.
        burst: Jobs due at once.
        burst_slow: Jobs due at once, for slow peers.
        paced: Jobs due at 1,000 per second.
        few: Jobs in the small store of the comparison by depth.
        held: Jobs in the large store.
        held_postgres: Jobs in the large store on PostgreSQL.
        parked: Jobs behind one full gate.
        claims: Claims timed in the comparisons by depth.
        idle_s: Seconds for which idle workers are measured.
        sized: Scheduled jobs whose bytes are counted.
    """

    repeats: int = 3
    single: int = 2_000
    bulk: int = 50_000
    bulk_peers: int = 10_000
    drain: int = 20_000
    drain_slow: int = 4_000
    waiting: int = 3
    rounds: int = 50
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
    rounds=15,
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
