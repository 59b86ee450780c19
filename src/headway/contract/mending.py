"""Mending: what only somebody who knows what happened may tell a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

REMEDY = "find out what was restored, flushed or replaced, then `headway doctor --new-epoch`"
"""What an operator does about a store that is suspect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspicion:
    """Why claims are refused: a process found the store to be another or an older one.

    Attributes:
        at: when it was found, by the store's time, ms.
        by: the process that found it.
        reason: which fact contradicts which earlier one.
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
        """Who found it, and what to do."""
        return f"found by {self.by}; {REMEDY}"


@runtime_checkable
class Mendable(Protocol):
    """A store that outlives its processes, and so may come back as another or an older one.

    A process that finds it so claims nothing more (StoreChanged) until a new epoch is begun
    there, at a time later than all that the process saw of it before.
    """

    async def suspicion(self) -> Suspicion | None:
        """Why claims are refused, because the store is not the one that was seen before.

        Returns:
            The first proof that was found; None while claims are answered.
        """
        ...

    async def new_epoch(self, author: str, reason: str) -> int:
        """Begins a new epoch, which fences every older run; on the trail.

        Returns:
            The epoch now.
        """
        ...

    async def reset_clock(self, author: str, reason: str) -> int:
        """Sets the store's time back to its clock, in a new epoch; on the trail.

        Returns:
            By how many ms the time went back.
        """
        ...
