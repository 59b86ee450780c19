"""What is chosen of an older system's rows, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.systems.calls.truth.row import SHARES, LeadRow, share_of


class Mode(StrEnum):
    """What becomes of an older system's rows."""

    OFF = "off"
    """They are left alone; rows that are ours stay ours."""
    SHADOW = "shadow"
    """It is decided when each would be called, and written down beside what they did."""
    ADOPT = "adopt"
    """Those chosen become ours; those that are not chosen any more go back."""
    RELEASE = "release"
    """All that have not started go back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """Which rows, and what becomes of them.

    Attributes:
        mode: what becomes of them.
        percent: of the rows, by a hash of each row's id.
        resellers: only theirs; empty for everybody's.
    """

    mode: Mode = Mode.OFF
    percent: float = 0.0
    resellers: tuple[str, ...] = ()

    def has(self, row: LeadRow) -> bool:
        """Whether a row is among those chosen."""
        if self.mode is Mode.RELEASE or (self.resellers and row.reseller not in self.resellers):
            return False
        return share_of(row.id) < self.percent * SHARES / 100
