"""What is remembered of alerts: what stands, and what the rules have seen, as it is kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, runtime_checkable

import msgspec


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that was told and is not over.

    Attributes:
        rule: that found it.
        severity: how bad it is.
        subject: what it is about.
        text: as last told.
        runbook: where it says what to do.
        told_at: when, in ms UTC.
    """

    rule: str
    severity: str
    subject: str
    text: str
    runbook: str
    told_at: int


class Noted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule has seen; all moments in ms UTC.

    Attributes:
        since: since when something has been so, by subject.
        seen: counts, by label, at the last look; None before the first.
        grown: when each has grown, and by how much.
    """

    since: dict[str, int] = {}
    seen: dict[str, int] | None = None
    grown: dict[str, list[tuple[int, int]]] = {}


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered.

    Attributes:
        standing: alerts that were told and are not over.
        rules: what those of them have seen that look back, by name.
    """

    standing: list[Standing] = []
    rules: dict[str, Noted] = {}


class Memory(Protocol):
    """What a rule has seen. Inside, moments are on the clock of its looks."""

    def noted(self, ahead_ms: int) -> Noted:
        """As it is kept.

        Args:
            ahead_ms: by how much UTC is ahead of the clock of its looks.
        """
        ...

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """Goes on from what another, or it in another life, has seen.

        Args:
            noted: that.
            standing: the subjects of its alerts that stand.
            ahead_ms: as above.
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """A rule that looks back."""

    @property
    def memory(self) -> Memory:
        """What it has seen."""
        ...


class Place(Protocol):
    """Where it is kept, so that it outlives a server: one for all servers of a store."""

    async def read(self) -> bytes | None:
        """What was written last; None for nothing.

        Raises:
            StoreError: it cannot be reached.
        """
        ...

    async def take_over(self, holder: str) -> bytes | None:
        """Reads, and lets nobody else write from now on.

        Args:
            holder: who may.

        Raises:
            StoreError: it cannot be reached.
        """
        ...

    async def write(self, holder: str, value: bytes) -> None:
        """Writes; nothing, if another has taken over.

        Raises:
            StoreError: it cannot be reached.
        """
        ...
