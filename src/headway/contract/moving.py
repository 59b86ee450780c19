"""Moving: a stopped store's whole content, taken out of one store and put into another.

A store that can be moved from and to brings `Movable`. What is carried is told by rows, not by
files, so that any store can give to any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """A part of a store's content.

    Attributes:
        part: what its rows are, such as "jobs".
        rows: MessagePack, as every store writes it.
        size: how many rows.
        cursor: of the next parcel; None after the last.
    """

    part: str
    rows: bytes
    size: int
    cursor: str | None


@runtime_checkable
class Movable(Protocol):
    """A store whose content can be carried to another."""

    async def take_out(self, cursor: str | None) -> Parcel:
        """Reads a parcel of at most 1000 jobs or other rows; writes nothing.

        What cannot be carried: workers and their leases, terms of leaders, and answers to
        requests of the last hour. The store must stand still meanwhile.

        Args:
            cursor: of the parcel before; None for the first.

        Raises:
            InvalidValue: the cursor is none.
        """
        ...

    async def put_in(self, parcel: Parcel) -> None:
        """Writes a parcel, whole, into a store that was empty before the first.

        A job that is there already is left as it is, with all that belongs to it, so that a
        parcel can be put in again after a lost reply.

        Raises:
            InvalidValue: it is no parcel that this program knows.
        """
        ...
