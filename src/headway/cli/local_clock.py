"""Times as people read them: on the wall clock of their zone, with its offset."""

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

    def at(self, instant: int | None) -> str:
        """The wall clock at the instant (ms UTC), as "2026-12-01 10:00:00+01:00"; "" for None."""
        if instant is None:
            return ""
        if instant >= _FOR_GOOD_AT:
            return "for good"
        if not 0 <= instant <= MAX_AT:
            return f"{instant} ms"
        if self._zone is not None:
            return format_instant(instant, self._zone).replace("T", " ")
        moment = datetime.fromtimestamp(instant // 1000, UTC).astimezone()
        if instant % 1000:
            moment = moment.replace(microsecond=instant % 1000 * 1000)
            return moment.isoformat(sep=" ", timespec="milliseconds")
        return moment.isoformat(sep=" ")

    def around(self, instant: int | None, now: int) -> str:
        """The wall clock and how far away that is, as "… (in 5m)"; "" for None."""
        if instant is None or instant >= _FOR_GOOD_AT:
            return self.at(instant)
        far = format_duration(abs(instant - now))
        return f"{self.at(instant)} ({f'in {far}' if instant > now else f'{far} ago'})"
