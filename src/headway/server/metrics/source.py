"""A source: where the metrics of a system come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client.core import Metric

from headway.server.metrics.families import Family
from headway.server.overview import Overview


class Source(Protocol):
    """Where the metrics of a system come from."""

    @property
    def families(self) -> Sequence[Family]:
        """All that it may tell, for the reference."""
        ...

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """What it tells now, at a bounded cost.

        Args:
            overview: of the store; None if that does not answer.

        Raises:
            StoreError: it cannot tell now; the others are told all the same.
        """
        ...
