"""Fairness: between the tenants of a lane, and between the lanes of a claim."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import gcd


@dataclass(slots=True, kw_only=True)
class Fairness:
    """The tenants of a fair lane, in one claim: virtual starts by weight.

    Attributes:
        level: no tenant that can run counts as having had less.
        starts: virtual starts of each tenant, in millionths.
        weights: of each tenant; 1 if not named.
        ready: the flows that can run now, and their tenants.
        held: tenants with jobs that wait for room at a gate, or for a handler.
        changed: tenants whose virtual starts changed.
        before: what the least of those that can run had before anything started since the level
            was looked at; None if nothing did.
        step: the least step by which anything that started since then was counted.
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
        """Its place among the tenants, least first.

        Among those at the level, the one that had less before the level rose goes first; otherwise
        the one with the oldest jobs would go first each time.
        """
        own = self.starts.get(tenant, 0)
        return max(own, self.level), own

    def of(self, tenant: str) -> int:
        """The tenant's virtual starts."""
        return max(self.starts.get(tenant, 0), self.level)

    def count(self, tenant: str) -> None:
        """Count one start of the tenant."""
        step = 1_000_000 // self.weights.get(tenant, 1)
        if self.before is None:
            self.before, self.step = self._least(set(self.ready.values())), step
        self.step = min(self.step, step)
        self.starts[tenant] = self.of(tenant) + step
        self.changed.add(tenant)

    def stop(self, flow: int) -> None:
        """A flow that could run cannot any more."""
        if flow in self.ready:
            self.raise_level()
            self.held.add(self.ready.pop(flow))

    def raise_level(self) -> None:
        """Raise the level to the least of the tenants that can run or are held.

        A tenant that is held does not keep the level down, and gains nothing by waiting: while
        others start it rises as they do, so that it is as far behind them as it was, and at least
        by one start. All that are held rise alike, for they wait beside each other.
        """
        if self.before is None:
            return
        before, self.before = self.before, None
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
        return min((self.of(tenant) for tenant in tenants), default=self.level)


def share(lanes: Sequence[tuple[str, int]], n: int, turn: int) -> list[tuple[str, int]]:
    """Share the places of a claim between lanes by weight, exactly in the long run.

    The places of all turns form one row in which each lane has its weight's share of every
    stretch as long as the sum of the weights, well mixed. So claims of one job are as fair as
    claims of a thousand.

    Args:
        lanes: names and weights, each at least 1.
        turn: its number, from 1.

    Returns:
        Each lane and its places, `n` together. The lane to be served first, where handlers are
        few, comes first; that goes round by weight too.
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
    """Where each lane ends in a cycle, the cycle's length, and a stride that mixes it well."""
    ends = tuple(accumulate(weights))
    total = ends[-1]
    # Near the golden section, so that no lane's places come in a heap.
    stride = max(1, round(total * 0.618))
    while gcd(stride, total) > 1:
        stride += 1
    return ends, total, stride
