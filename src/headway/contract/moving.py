"""Copying a stopped store's whole content to another store.

A store that supports it implements `Movable`. The content is exported as rows, not as files, so
that any store can be copied to any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportChunk:
    """A part of a store's content.

    Attributes:
        part: the type of its rows, such as "jobs".
        rows: MessagePack, the same for every store.
        size: how many rows.
        cursor: of the next chunk; None after the last.
    """

    part: str
    rows: bytes
    size: int
    cursor: str | None


@runtime_checkable
class Movable(Protocol):
    """A store whose content can be copied to another."""

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        """Read a chunk of at most 1000 jobs or other rows; writes nothing.

        Not exported are workers and their leases, terms of leaders, and replies to requests of
        the last hour. The store must be stopped meanwhile.

        Args:
            cursor: of the previous chunk; None for the first.

        Raises:
            InvalidValue: the cursor is invalid.
        """
        ...

    async def import_chunk(self, chunk: ExportChunk) -> None:
        """Write a whole chunk into a store that was empty before the first.

        A job that exists already stays as it is, with all that belongs to it, so that an import
        can be repeated after a lost reply.

        Raises:
            InvalidValue: this version cannot read the chunk.
        """
        ...
