"""Mending: what only somebody who knows what happened may tell a store."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Mendable(Protocol):
    """A store that outlives its processes, and so may come back as another or an older one.

    A process that finds it so claims nothing more (StoreChanged) until a new epoch is begun
    there, at a time later than all that the process saw of it before.
    """

    async def is_changed(self) -> bool:
        """Whether this process's claims are refused, for the store is not the one it saw before."""
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
