"""Fairness between the tenants of a lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
                self.changed |= waiting
                least += rise
            after = min(after, least)
        self.level = max(self.level, after)

    def _least(self, tenants: set[str]) -> int:
        return min((self.of(tenant) for tenant in tenants), default=self.level)
