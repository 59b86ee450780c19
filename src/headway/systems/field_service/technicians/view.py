"""A technician as replies tell him."""

from __future__ import annotations

from dataclasses import dataclass

from headway.systems.field_service.records import Channel, Technician


@dataclass(frozen=True, kw_only=True, slots=True)
class TechnicianView:
    """A technician.

    Attributes:
        id: stands in candidates and in the lock `technician:<id>`.
        name: for people.
        phone: E.164.
        lat: degrees north.
        lon: degrees east.
        skills: as they were given.
        on_duty: whether offers come.
        channel: how he is asked.
        idle_since: since when without a job, ms since 1970 UTC.
        version: counts changes; the ETag.
    """

    id: str
    name: str
    phone: str
    lat: float
    lon: float
    skills: tuple[str, ...]
    on_duty: bool
    channel: Channel
    idle_since: int
    version: int


def told(technician: Technician) -> TechnicianView:
    """What is told of a technician."""
    return TechnicianView(
        id=technician.id,
        name=technician.name,
        phone=technician.phone,
        lat=technician.lat,
        lon=technician.lon,
        skills=tuple(technician.skills),
        on_duty=technician.on_duty,
        channel=technician.channel,
        idle_since=technician.idle_since,
        version=technician.version,
    )
