"""The goals relative to peers, for each store."""

from __future__ import annotations

from typing import NamedTuple

from bench.bench import Bench
from bench.cases import draining, dueing, enqueueing, latency
from bench.notebook import HEADWAY

PYTHON = ("huey", "dramatiq", "taskiq", "streaq", "saq", "arq", "celery", "rq")


class Aim(NamedTuple):
    """A goal for the ratio of this engine's figure to that of a peer, or of the best of several.

    Attributes:
        what: Description.
        case: The case in which both were measured.
        peers: Names of the peers.
        bound: Bound of the ratio.
        least: Whether the bound is a minimum, because more is better.
        far: Whether it is also a goal with a network delay.
    """

    what: str
    case: str
    peers: tuple[str, ...]
    bound: float
    least: bool
    far: bool = False


AIMS: dict[str, tuple[Aim, ...]] = {
    "sqlite": (
        Aim("drain against huey", draining.DRAIN, ("huey",), 10, True),
        Aim("latency p50 against litequeue", latency.P50, ("litequeue",), 1, False),
        Aim("latency p99 against litequeue", latency.P99, ("litequeue",), 1, False),
    ),
    "postgres": (
        Aim("enqueue one against pgqueuer", enqueueing.ONE, ("pgqueuer",), 2, True),
        Aim("bulk enqueue against pgqueuer", enqueueing.BULK, ("pgqueuer",), 1.1, True),
        Aim("drain against graphile-worker", draining.DRAIN, ("graphile-worker",), 1.05, True),
        Aim("bulk enqueue against River", enqueueing.BULK, ("river",), 1.1, True),
        Aim("drain against River", draining.DRAIN, ("river",), 1.2, True),
        Aim("drain against pgqueuer", draining.DRAIN, ("pgqueuer",), 2, True),
        Aim(
            "contended locks against procrastinate",
            draining.LOCKED,
            ("procrastinate",),
            2,
            least=True,
            far=True,
        ),
        Aim("latency p50 against pgqueuer", latency.P50, ("pgqueuer",), 0.6, False),
        Aim("latency p99 against pgqueuer", latency.P99, ("pgqueuer",), 0.6, False),
        Aim("burst, all started, against pgqueuer", dueing.BURST, ("pgqueuer",), 1, False),
    ),
    "redis": (
        Aim("enqueue one against huey", enqueueing.ONE, ("huey",), 1.1, True),
        Aim("bulk enqueue against BullMQ", enqueueing.BULK, ("bullmq",), 3, True),
        Aim("drain against BullMQ", draining.DRAIN, ("bullmq",), 2, True),
        Aim("drain against the best peer in Python", draining.DRAIN, PYTHON, 8, True),
        Aim("latency p50 against huey", latency.P50, ("huey",), 1, False),
        Aim("latency p99 against huey", latency.P99, ("huey",), 1, False),
        Aim("burst, all started, against BullMQ", dueing.BURST, ("bullmq",), 0.5, False),
    ),
}


def against_peers(bench: Bench) -> None:
    """Record the result of all goals whose figures were measured."""
    far = bench.ground.name != bench.ground.store
    for aim in AIMS[bench.ground.store]:
        if far and not aim.far:
            continue
        ours = bench.notebook.find(aim.case, HEADWAY)
        found = [bench.notebook.find(aim.case, peer) for peer in aim.peers]
        medians = [figure.median for figure in found if figure is not None]
        if ours is None or not medians:
            continue
        best = max(medians) if aim.least else min(medians)
        bound = {"least": aim.bound} if aim.least else {"most": aim.bound}
        bench.goal(aim.what, ours.median / best, **bound)


def of_two_processes(bench: Bench) -> None:
    """Record whether two processes drain faster than one; not on SQLite, which has one writer."""
    one = bench.notebook.find(draining.DRAIN, HEADWAY)
    two = bench.notebook.find(draining.PAIR, HEADWAY)
    if one and two and bench.ground.store != "sqlite":
        bench.goal("drain by two processes against one", two.median / one.median, least=1)
