"""The lease of a worker's runs, on the worker's own clock."""

from __future__ import annotations

_NEVER = float("-inf")


class Lease:
    """How long the runs live without a beat.

    Attributes:
        ms: what is asked for with each claim and beat.
        ends: until when they certainly live, in seconds on the worker's clock.
    """

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.ends = _NEVER

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        return self.ms / 3000

    @property
    def stop_by(self) -> float:
        """When handlers must be told to stop, so that they end before the lease does."""
        return self.ends - self.ms / 6000

    def lapsing(self, now: float) -> bool:
        """Whether handlers must stop now; never before the store has given a lease at all."""
        return now >= self.stop_by and self.ends != _NEVER

    def kept(self, sent: float, left_ms: int) -> None:
        """Takes note of an answer of the store.

        Args:
            sent: when the store was asked, in seconds on the worker's clock.
            left_ms: how long the lease lives from the store's time in its answer.
        """
        self.ends = max(self.ends, sent + left_ms / 1000)
