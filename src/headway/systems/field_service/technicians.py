"""Technicians, who are offered jobs: stored, changed, imported, and searched by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Query, Response
from pydantic import AfterValidator, ConfigDict, Field
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from headway.contract.store import Store
from headway.core.errors import InvalidState, InvalidValue
from headway.server.access import Observer
from headway.server.bodies.base import FailFastList, QueryModel
from headway.server.paging import PageQuery
from headway.server.replies import answer, reply, reply_model
from headway.server.routing import router
from headway.systems.directory.importing import split_by
from headway.systems.directory.record_routes import RouteDescriptions, add_routes
from headway.systems.directory.records import NewRecord, PersonName, RecordChange, Records
from headway.systems.field_service.cells import cell_of, rounded, rounded_lon
from headway.systems.field_service.context import TheContext, check_caller
from headway.systems.field_service.nearby import MOST, Candidate, nearby
from headway.systems.field_service.passing_over import request_held_by
from headway.systems.field_service.records import (
    Channel,
    Technician,
    TechnicianPosition,
    Word,
    join_skills,
    skill_key,
)
from headway.systems.field_service.request import NAME, acceptor
from headway.systems.telephony.phone import Phone

MOST_SKILLS = 50
_WORDS = {
    **dict.fromkeys(("true", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("false", "no", "n", "0", "off"), False),
}


Lat = Annotated[float, Field(ge=-90, le=90, examples=[52.52]), AfterValidator(rounded)]
Lon = Annotated[float, Field(ge=-180, le=180, examples=[13.405]), AfterValidator(rounded_lon)]
Skills = Annotated[FailFastList[Word], Field(max_length=MOST_SKILLS, examples=[["boiler", "gas"]])]
Means = Literal["voice", "text"]


class TechnicianBody(NewRecord):
    """A technician to store."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "Ada King",
                    "phone": "+4915550100",
                    "lat": 52.52,
                    "lon": 13.405,
                    "skills": ["boiler", "gas"],
                }
            ]
        }
    )

    name: PersonName = Field(description="Name, for people.", examples=["Ada King"])
    phone: Phone = Field(description="Phone number, in E.164 format; unique.")
    lat: Lat = Field(description="Latitude in degrees north.")
    lon: Lon = Field(description="Longitude in degrees east.")
    skills: Skills = Field(default=[], description="Skills; case-insensitive.")
    on_duty: bool = Field(default=True, description="Whether the technician gets offers.")
    channel: Means = Field(default="voice", description="Whether to call or to send messages.")


class TechnicianChange(RecordChange):
    """Changes to a technician; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"on_duty": False}]})

    name: PersonName | None = Field(default=None, description="Name, for people.")
    phone: Phone | None = Field(default=None, description="Phone number, in E.164 format; unique.")
    lat: Lat | None = Field(default=None, description="Latitude in degrees north.")
    lon: Lon | None = Field(default=None, description="Longitude in degrees east.")
    skills: Skills | None = Field(
        default=None, description="New skills, which replace all the old ones; case-insensitive."
    )
    on_duty: bool | None = Field(default=None, description="Whether the technician gets offers.")
    channel: Means | None = Field(default=None, description="Whether to call or to send messages.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TechnicianView:
    """A technician.

    Attributes:
        id: id, as used for candidates and in the lock `technician:<id>`.
        phone: phone number in E.164 format.
        lat: latitude in degrees north.
        lon: longitude in degrees east.
        on_duty: whether the technician gets offers.
        idle_since: since when the technician has had no job, ms since 1970 UTC.
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


class TechniciansParams(PageQuery):
    """Filters for technicians."""

    on_duty: bool | None = Field(
        default=None, description="Only technicians who are on duty, or who are not."
    )
    phone: str | None = Field(
        default=None, max_length=16, description="Only the technician with this phone number."
    )


class NearbyParams(QueryModel):
    """Position, skills and limits of a search."""

    lat: float = Field(ge=-90, le=90, description="Latitude in degrees north.")
    lon: float = Field(ge=-180, le=180, description="Longitude in degrees east.")
    skill: list[Word] = Field(default=[], max_length=50, description="Required skill; repeatable.")
    radius_km: float = Field(default=50, ge=0, le=21_000, description="Maximum distance in km.")
    limit: int = Field(default=50, ge=1, le=MOST, description="Maximum number of technicians.")


def _number(what: str) -> Callable[[str], object]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = nan
        if not isfinite(number):
            message = f"{what} is {text[:40]!r}, which is not a number"
            raise InvalidValue(message, hint="use degrees with a decimal point, such as 52.52")
        return number

    return read


def _yes(text: str) -> bool:
    found = _WORDS.get(text.casefold())
    if found is None:
        message = f"on_duty is {text[:40]!r}, which is neither true nor false"
        raise InvalidValue(message, hint="use true or false")
    return found


class Technicians(Records[Technician, TechnicianBody]):
    """The technicians, with unique phone numbers."""

    table = Technician
    body = TechnicianBody
    shape = TechnicianView
    system = NAME
    unique: ClassVar[str] = "phone"
    needed: ClassVar[Sequence[str]] = ("name", "phone", "lat", "lon")
    known: ClassVar[Sequence[str]] = ("id", "skills", "on_duty", "channel")
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "lat": _number("lat"),
        "lon": _number("lon"),
        "skills": split_by(r"[;,|]"),
        "on_duty": _yes,
        "channel": str.lower,
    }

    def time_values(self, values: dict[str, Any], at: int, *, new: bool) -> dict[str, Any]:
        """Start the idle time of a technician who is new or comes on duty."""
        return {"idle_since": at} if new or values.get("on_duty") else {}

    async def check_unused(self, store: Store, id: str) -> None:
        """Refuse to remove a technician with an open offer, which could no longer be answered.

        Raises:
            InvalidState: the technician has an open offer.
        """
        job = await request_held_by(store, id)
        if job is not None and acceptor(job) != id:
            message = f"{id} has an open offer of the request {job.id}"
            raise InvalidState(
                message, hint="decline it, or withdraw the service request; then try again"
            )

    async def derive(self, session: AsyncSession, records: Sequence[Technician]) -> None:
        """Rewrite the places that the search reads."""
        ids = [one.id for one in records]
        await session.execute(
            delete(TechnicianPosition).where(TechnicianPosition.technician_id.in_(ids))
        )
        places = [place for one in records if one.on_duty for place in _places(one)]
        if places:
            await session.execute(insert(TechnicianPosition), places)


TECHNICIANS = Technicians()


async def technician_of_phone(session: AsyncSession, phone: str) -> Technician | None:
    """Return the technician with a phone number; None for an unknown number."""
    found = await session.scalars(select(Technician).where(Technician.phone == phone))
    return found.one_or_none()


async def start_idle_time(session: AsyncSession, id: str, at: int) -> None:
    """Start the idle time of a technician; do nothing if there is no such technician.

    Args:
        at: ms UTC.
    """
    await session.execute(update(Technician).where(Technician.id == id).values(idle_since=at))
    await session.execute(
        update(TechnicianPosition)
        .where(TechnicianPosition.technician_id == id)
        .values(idle_since=at)
    )


def _places(technician: Technician) -> Iterator[dict[str, Any]]:
    place = {
        "cell": cell_of(technician.lat, technician.lon),
        "idle_since": technician.idle_since,
        "technician_id": technician.id,
    }
    yield place | {"skill": "", "skills": ""}
    keys = {skill_key(one) for one in technician.skills}
    for key in keys:
        yield place | {"skill": key, "skills": join_skills(sorted(keys))}


ROUTES = router("system: field_service", operations="field_", prefix="/technicians")


# Before the record routes, whose paths would take "nearby" for an id.
@ROUTES.get(
    "/nearby",
    operation_id="field_nearby",
    summary="Find nearby technicians",
    response_model=reply(
        "Candidates",
        "Technicians who could be asked.",
        rows=(list[reply_model(Candidate)], "Technicians, nearest first."),
    ),
)
async def near(
    params: Annotated[NearbyParams, Query()], context: TheContext, caller: Observer
) -> Response:
    """Return the technicians whom a request at a position would ask, in that order."""
    check_caller(caller)
    found = await nearby(
        context.directory,
        lat=params.lat,
        lon=params.lon,
        skills=params.skill,
        radius_km=params.radius_km,
        most=params.limit,
    )
    return answer({"rows": found})


HANDLERS = add_routes(
    ROUTES,
    TECHNICIANS,
    reach=check_caller,
    params=TechniciansParams,
    changed=TechnicianChange,
    texts=RouteDescriptions(
        prefix="field",
        example="ada",
        one="Return a technician; the gate `technician:<id>` shows whether they are busy.",
        add="Add a technician, who gets offers from later requests.",
        change="Change a technician, from the next offer on; an open one is not affected.",
        remove="Remove a technician, who gets no further offers but keeps an assigned request.\n"
        "\n409: the technician has an open offer.",
        imported="Import CSV with the columns name, phone, lat, lon, and optionally id, skills, "
        "on_duty, channel.\n\nTechnicians that already exist, by id or otherwise by phone, are "
        "changed.",
    ),
)
