"""Fairness: between the tenants of a lane, and between the lanes of a claim."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import gcd

MAX_WEIGHT = 1_000_000
"""Maximum weight of a tenant: a start counts as its reciprocal, in whole millionths."""


@dataclass(slots=True, kw_only=True)
class Fairness:
    """The tenants of a fair lane during one claim, ranked by virtual starts.

    A start of a tenant counts as the reciprocal of its weight.

    Attributes:
        level: minimum of virtual starts: a tenant with fewer is ranked as if it had this many.
        starts: virtual starts of each tenant, in millionths.
        weights: weight of each tenant (default: 1).
        ready: tenant of each flow that can run now, by flow.
        held: tenants with jobs that wait for a gate or a handler.
        changed: tenants whose virtual starts changed.
        before: lowest virtual starts of the ready tenants before the first start since
            `raise_level` was last called; None if there was no start.
        step: smallest amount counted for a start since then.
    """

    level: int
    starts: dict[str, int]
    weights: Mapping[str, int]
    ready: dict[int, str] = field(default_factory=dict[int, str])
    held: set[str] = field(default_factory=set[str])
    changed: set[str] = field(default_factory=set[str])
    before: int | None = None
    step: int = 0

    def rank(self, tenant: str) -> tuple[int, int]:
        """Return the sort key of a tenant; the lowest goes first.

        Among the tenants at the level, the one that had less before the level rose goes first;
        otherwise the tenant with the oldest jobs would go first each time.
        """
        own = self.starts.get(tenant, 0)
        return max(own, self.level), own

    def of(self, tenant: str) -> int:
        """Return the tenant's virtual starts, at least the level."""
        return max(self.starts.get(tenant, 0), self.level)

    def count(self, tenant: str) -> None:
        """Count a start of the tenant."""
        # At least 1, because earlier versions accepted larger weights.
        step = max(1, 1_000_000 // self.weights.get(tenant, 1))
        if self.before is None:
            self.before, self.step = self._least(set(self.ready.values())), step
        self.step = min(self.step, step)
        self.starts[tenant] = self.of(tenant) + step
        self.changed.add(tenant)

    def stop(self, flow: int) -> None:
        """Mark a flow that can no longer run; its tenant is held."""
        if flow in self.ready:
            self.raise_level()
            self.held.add(self.ready.pop(flow))

    def raise_level(self) -> None:
        """Raise the level to the lowest virtual starts of the ready and held tenants.

        A held tenant does not keep the level down, and gains nothing by waiting: while others
        start, its virtual starts rise with theirs, so that it stays as far behind as it was, and
        at least one start behind. All held tenants rise by the same amount, since they wait at the
        same time.
        """
        if self.before is None:
            return
        before = self.before
        self.before = None
        ready = set(self.ready.values())
        after = self._least(ready)
        waiting = self.held - ready
        if waiting:
            least = self._least(waiting)
            rise = after - max(before, least + self.step)
            if rise > 0:
                for tenant in waiting:
                    self.starts[tenant] = self.of(tenant) + rise
                    self.changed.add(tenant)
                least += rise
            after = min(after, least)
        self.level = max(self.level, after)

    def _least(self, tenants: set[str]) -> int:
        return min(self.of(tenant) for tenant in tenants) if tenants else self.level


def share(lanes: Sequence[tuple[str, int]], n: int, turn: int) -> list[tuple[str, int]]:
    """Share the places of a claim between lanes by weight, exactly in the long run.

    The places of all claims form one sequence. In any part of it as long as the sum of the weights,
    every lane has as many places as its weight, evenly spread. So claims of one job are as fair as
    claims of a thousand.

    Args:
        lanes: names and weights, each at least 1.
        n: number of places in this claim.
        turn: number of the claim, from 1.

    Returns:
        Each lane with its number of places, `n` in total. The first lane is to be served first if
        there are few handlers; which one it is rotates by weight too.
    """
    weights = tuple(weight for _, weight in lanes)
    total = sum(weights)
    cycles, rest = divmod(n, total)
    places = [cycles * weight for weight in weights]
    for place in range((turn - 1) * n, (turn - 1) * n + rest):
        places[_lane_at(weights, place)] += 1
    shares = [(lane, count) for (lane, _), count in zip(lanes, places, strict=True)]
    first = _lane_at(weights, turn - 1)
    return shares[first:] + shares[:first]


def _lane_at(weights: tuple[int, ...], place: int) -> int:
    ends, total, stride = _row(weights)
    return bisect_right(ends, place * stride % total)


@lru_cache(maxsize=1024)
def _row(weights: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Return where each lane ends in a cycle, the cycle's length, and a stride that mixes it."""
    ends = tuple(accumulate(weights))
    total = ends[-1]
    # Near the golden ratio, so that no lane's places are bunched together.
    stride = max(1, round(total * 0.618))
    while gcd(stride, total) > 1:
        stride += 1
    return ends, total, stride
