"""Directories with only this system's tables, and the technicians in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import delete

from headway.systems.directory.database import Directory
from headway.systems.field_service.cells import check_position, distance_km
from headway.systems.field_service.nearby import Candidate
from headway.systems.field_service.records import SCHEMAS, Channel, Technician, skill_key
from headway.systems.field_service.technicians import TECHNICIANS

SCHEMA = SCHEMAS[0]


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Directory]:
    directory = Directory(url)
    directory.needs(SCHEMA)
    await directory.open()
    try:
        yield directory
    finally:
        await directory.close()


def technician(number: int, lat: float, lon: float, **fields: Any) -> Technician:
    """Return a technician at a position; id, phone and idle time are derived from the number."""
    lat, lon = check_position(lat, lon)
    given: dict[str, Any] = {
        "id": f"t{number:06}",
        "name": f"T. {number}",
        "phone": f"+4930{number:08}",
        "skills": [],
        "on_duty": True,
        "channel": Channel.VOICE,
        "idle_since": 1_000_000 + number,
        "version": 1,
    }
    return Technician(lat=lat, lon=lon, **(given | fields))


async def fill(directory: Directory, technicians: Iterable[Technician]) -> None:
    """Replace all technicians with these."""
    all_ = list(technicians)
    async with directory.change() as session:
        await session.execute(delete(Technician))
        for first in range(0, len(all_), 500):
            batch = all_[first : first + 500]
            session.add_all(batch)
            await session.flush()
            await TECHNICIANS.derive(session, batch)


def brute_force(
    technicians: Iterable[Technician],
    *,
    lat: float,
    lon: float,
    skills: Iterable[str] = (),
    radius_km: float = 21_000,
    most: int = 50,
) -> list[Candidate]:
    """Return the expected result of `nearby`, by examining every technician."""
    lat, lon = check_position(lat, lon)
    wanted = {skill_key(one) for one in skills}
    fit = [
        (distance_km(lat, lon, one.lat, one.lon), one.idle_since, one.id)
        for one in technicians
        if one.on_duty and wanted <= {skill_key(skill) for skill in one.skills}
    ]
    near = sorted(one for one in fit if one[0] <= radius_km)
    return [Candidate(id=id_, distance_km=km, idle_since=idle) for km, idle, id_ in near[:most]]
