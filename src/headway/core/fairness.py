"""Fairness between the tenants of a lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Fairness:
    """The tenants of a fair lane: virtual starts by weight.

    Attributes:
        level: no tenant that can run counts as having had less.
        starts: virtual starts of each tenant, in millionths.
        weights: of each tenant; 1 if not named.
    """

    level: int
    starts: dict[str, int]
    weights: Mapping[str, int]

    def of(self, tenant: str) -> int:
        """The tenant's virtual starts."""
        return max(self.starts.get(tenant, 0), self.level)

    def count(self, tenant: str) -> None:
        """Counts one start of the tenant."""
        self.starts[tenant] = self.of(tenant) + 1_000_000 // self.weights.get(tenant, 1)
