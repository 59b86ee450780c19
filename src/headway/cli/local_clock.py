"""Times in local time, with the offset from UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from headway.core.duration import format_duration
from headway.core.instant import format_instant, parse_instant
from headway.core.zone import MAX_AT

_FOR_GOOD_AT = parse_instant("9999-01-01T00:00Z")


class LocalClock:
    """Shows instants.

    Args:
        zone: an IANA zone; None for the system's.
    """

    def __init__(self, zone: str | None) -> None:
        self._zone = zone

    def at(self, instant: int | None, *, exact: bool = False) -> str:
        """Show an instant.

        Args:
            instant: ms UTC.
            exact: with milliseconds; else these are cut off.

        Returns:
            The wall clock with its offset, as "2026-12-01 10:00:00+01:00"; "" for None, "for
            good" for the year 9999.
        """
        if instant is None:
            return ""
        if instant >= _FOR_GOOD_AT:
            return "for good"
        if not 0 <= instant <= MAX_AT:
            return f"{instant} ms"
        shown_at = instant if exact else instant // 1000 * 1000
        if self._zone is not None:
            return format_instant(shown_at, self._zone).replace("T", " ")
        moment = datetime.fromtimestamp(shown_at // 1000, UTC).astimezone()
        moment = moment.replace(microsecond=shown_at % 1000 * 1000)
        return moment.isoformat(sep=" ", timespec="milliseconds" if shown_at % 1000 else "seconds")

    def around(self, instant: int | None, now: int) -> str:
        """The wall clock and how far away that is, as "… (in 5m)"; "" for None."""
        if instant is None or instant >= _FOR_GOOD_AT:
            return self.at(instant)
        far = rough(abs(instant - now))
        return f"{self.at(instant)} ({f'in {far}' if instant > now else f'{far} ago'})"


def rough(span_ms: int) -> str:
    """Format a span of time; milliseconds only if it is below one second."""
    return format_duration(span_ms if span_ms < 1000 else span_ms // 1000 * 1000)
