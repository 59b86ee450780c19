"""The plan of a slice: numbers, zones, resellers, leads, and an operator's actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND, MINUTE = 1_000, 60_000
RESELLERS = 50
PAUSED, RENTED = "reseller-07", "+15550000001"
"""The reseller that is paused, and the number that loses channels."""
RENTED_LEFT = 2
LATE_FROM, EARLY_UNTIL = 3, 2
# Fixed offsets, so that open hours can be computed without the engine's zone rules.
ZONES = ("Etc/GMT-7", "Etc/GMT-6", "Etc/GMT-5", "Etc/GMT-4", "Etc/GMT-3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lead:
    """A person to be called.

    Attributes:
        opens_at: When the zone may be called, ms UTC; 0 for always.
    """

    phone: str
    tz: str
    template: str
    reseller: str
    opens_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The leads and events of one slice; times in ms UTC.

    Attributes:
        begins_at: When all leads are due.
        opens: When each zone may be called; 0 for always.
        paused: Start and end of a reseller's pause.
        shrunk: Start and end of the time in which one number has fewer channels.
    """

    numbers: int
    channels: int
    leads: int
    begins_at: int

    @property
    def total(self) -> int:
        """The number of channels of all numbers."""
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
        """Return each template's calling hours in its zone's local time; None for always."""
        return {f"zone-{n}": self._span(ZONES[n]) for n in range(len(ZONES))}

    def _span(self, tz: str) -> str | None:
        opens_at = self.opens[tz]
        if not opens_at:
            return None
        ahead = timedelta(hours=int(tz.partition("-")[2]))
        opens = datetime.fromtimestamp(opens_at / 1000, tz=UTC) + ahead
        return f"{opens:%H:%M}-{opens + timedelta(hours=6):%H:%M}"
