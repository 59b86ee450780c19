"""Repair of a store that was replaced or restored; only an operator can decide it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

REMEDY = "find out what was restored, flushed or replaced, then `headway doctor --new-epoch`"
"""What an operator does about a store that is suspect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """Why claims are refused: a process found the store replaced or restored.

    Attributes:
        at: when it was found, by the store's time, ms.
        by: the process that found it.
        reason: which fact contradicts an earlier one.
    """

    at: int
    by: str
    reason: str

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        return f"the store is another one, or an older one, than was seen before: {self.reason}"

    @property
    def hint(self) -> str:
        """The process that found it, and what to do."""
        return f"found by {self.by}; {REMEDY}"


@runtime_checkable
class Repairable(Protocol):
    """A store that outlives its processes, and can therefore be replaced or restored.

    A process that notices it claims nothing (StoreChanged) until a new epoch begins there, at a
    time later than everything that the process saw of the store before.
    """

    async def suspicion(self) -> Suspicion | None:
        """Return why claims are refused, if the store is not the one that was seen before.

        Returns:
            The first contradiction that was found; None while claims are served.
        """
        ...

    async def new_epoch(self, author: str, reason: str) -> int:
        """Begin a new epoch, which fences every older run; recorded on the trail.

        Returns:
            The epoch now.
        """
        ...

    async def reset_clock(self, author: str, reason: str) -> int:
        """Set the store's time back to its clock, in a new epoch; recorded on the trail.

        Returns:
            By how many ms the time went back.
        """
        ...
