"""Full scans: in Python, for the expected results of a search; in SQL, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from math import asin, cos, radians, sin, sqrt

from headway.systems.field_service.nearby import Candidate
from headway.systems.field_service.records import Technician

SCAN = """
    SELECT id, 12742.0176 * asin(sqrt(
        power(sin(radians(lat - :lat) / 2), 2)
        + cos(radians(:lat)) * cos(radians(lat)) * power(sin(radians(lon - :lon) / 2), 2)
    )) AS km, idle_since
    FROM field_technicians WHERE on_duty ORDER BY km, idle_since, id LIMIT 50
"""
"""A search without an index and without skills; a radius would only reduce the sorting."""


class FullScan:
    """All technicians on duty, prepared for a scan."""

    def __init__(self, technicians: Sequence[Technician]) -> None:
        self._each = [
            (
                radians(one.lat),
                one.lat,
                one.lon,
                cos(radians(one.lat)),
                one.idle_since,
                one.id,
                frozenset(one.skills),
            )
            for one in technicians
            if one.on_duty
        ]

    def nearby(
        self,
        lat: float,
        lon: float,
        *,
        skills: Sequence[str] = (),
        radius_km: float = 21_000.0,
        most: int = 50,
    ) -> list[Candidate]:
        """Return the nearest technicians by a full scan."""
        wanted = frozenset(skills)
        up = radius_km / 111.19 + 0.01
        here = cos(radians(lat))
        fit: list[tuple[float, int, str]] = []
        for _, at_lat, at_lon, narrow, idle_since, id_, has in self._each:
            # The distance is at least the difference of the latitudes.
            if abs(at_lat - lat) > up or not wanted <= has:
                continue
            rise, run = sin(radians(at_lat - lat) / 2), sin(radians(at_lon - lon) / 2)
            km = 2 * 6371.0088 * asin(sqrt(min(rise * rise + here * narrow * run * run, 1.0)))
            if km <= radius_km:
                fit.append((km, idle_since, id_))
        return [
            Candidate(id=id_, distance_km=km, idle_since=at) for km, at, id_ in sorted(fit)[:most]
        ]
