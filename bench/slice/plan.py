"""The plan of a slice: numbers, zones, resellers, leads, and what an operator does meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND, MINUTE = 1_000, 60_000
RESELLERS = 50
PAUSED, RENTED = "reseller-07", "+15550000001"
"""The reseller that is paused, and the number that loses channels."""
RENTED_LEFT = 2
LATE_FROM, EARLY_UNTIL = 3, 2
# Fixed offsets, so that what is open can be told without the engine's own zone rules.
ZONES = ("Etc/GMT-7", "Etc/GMT-6", "Etc/GMT-5", "Etc/GMT-4", "Etc/GMT-3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """Somebody to be called.

    Attributes:
        opens_at: when that zone may be called; 0 for all the time.
    """

    phone: str
    tz: str
    template: str
    reseller: str
    opens_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What happens in one slice, and when (ms UTC).

    Attributes:
        begins_at: when all leads are due.
        opens: when each zone may be called; 0 for all the time.
        paused: from when to when one reseller is paused.
        shrunk: from when to when one number has fewer channels.
    """

    numbers: int
    channels: int
    leads: int
    begins_at: int

    @property
    def total(self) -> int:
        """Channels of all numbers."""
        return self.numbers * self.channels

    @property
    def opens(self) -> dict[str, int]:
        """The last two zones open at the next two full minutes."""
        first = -(-(self.begins_at + 20 * SECOND) // MINUTE) * MINUTE
        return dict(zip(ZONES, (0, 0, 0, first, first + MINUTE), strict=True))

    @property
    def paused(self) -> tuple[int, int]:
        return self.begins_at + 15 * SECOND, self.begins_at + 45 * SECOND

    @property
    def shrunk(self) -> tuple[int, int]:
        return self.begins_at + 25 * SECOND, self.begins_at + 40 * SECOND

    def all_numbers(self) -> list[str]:
        return [f"+1555000{n:04}" for n in range(1, self.numbers + 1)]

    def all_leads(self) -> list[Lead]:
        return [
            Lead(
                phone=f"+1415{2_000_000 + n}",
                tz=ZONES[n % len(ZONES)],
                template=f"zone-{n % len(ZONES)}",
                reseller=f"reseller-{n // len(ZONES) % RESELLERS:02}",
                opens_at=self.opens[ZONES[n % len(ZONES)]],
            )
            for n in range(self.leads)
        ]

    def hours(self) -> dict[str, str | None]:
        """The calling hours of each template, in its own zone's time; None for always."""
        return {f"zone-{n}": self._span(ZONES[n]) for n in range(len(ZONES))}

    def _span(self, tz: str) -> str | None:
        opens_at = self.opens[tz]
        if not opens_at:
            return None
        ahead = timedelta(hours=int(tz.partition("-")[2]))
        opens = datetime.fromtimestamp(opens_at / 1000, tz=UTC) + ahead
        return f"{opens:%H:%M}-{opens + timedelta(hours=6):%H:%M}"
