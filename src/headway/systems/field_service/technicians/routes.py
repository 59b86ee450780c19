"""/technicians: who is offered jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from headway.core.errors import IdConflict
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import PageAsked, unwrapped, wrapped
from headway.server.bodies.body import Asked
from headway.server.replies.answer import answer
from headway.server.replies.schema import page_model, reply, reply_model
from headway.server.routes.router import TheService, router
from headway.systems.field_service.callers import check_caller
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.importing.asked import ImportAsked
from headway.systems.field_service.importing.report import ImportReport
from headway.systems.field_service.importing.run import run_import
from headway.systems.field_service.importing.upload import CSV_BODY, uploaded
from headway.systems.field_service.nearby.search import MOST, Candidate, nearby
from headway.systems.field_service.record_words import Word
from headway.systems.field_service.records import MAX_ID, Technician
from headway.systems.field_service.technicians.bodies import TechnicianBody, TechnicianChange
from headway.systems.field_service.technicians.book import find_technician
from headway.systems.field_service.technicians.keeping import add_technician, change_technician
from headway.systems.field_service.technicians.rows import TechnicianRows
from headway.systems.field_service.technicians.view import TechnicianView, told
from headway.systems.field_service.versions import IfVersion, check_version, version_tag

ROUTES = router("system: field_service", prefix="/technicians")

Observer = Annotated[Caller, needs(Permission.OBSERVE)]
Definer = Annotated[Caller, needs(Permission.DEFINE)]
TheId = Annotated[str, Path(max_length=MAX_ID, description="The technician's.", examples=["ada"])]
_AT_ONCE = "somebody else took this id or this phone at the same moment"
_LISTED = "GET /technicians lists them"
TECHNICIAN = reply_model(TechnicianView)
CANDIDATES = reply(
    "Candidates", "Who could be asked.", rows=(list[reply_model(Candidate)], "Nearest first.")
)


class TechniciansAsked(PageAsked):
    """Which technicians."""

    on_duty: bool | None = Field(default=None, description="Only these.")
    phone: str | None = Field(default=None, max_length=16, description="Only whose it is.")


class NearbyAsked(Asked):
    """Around where, and what they must be able to do."""

    lat: float = Field(ge=-90, le=90, description="Degrees north.")
    lon: float = Field(ge=-180, le=180, description="Degrees east.")
    skill: list[Word] = Field(
        default=[], max_length=50, description="One that is needed; may be repeated."
    )
    radius_km: float = Field(default=50, ge=0, le=21_000, description="How far at most.")
    limit: int = Field(default=50, ge=1, le=MOST, description="At most so many.")


@ROUTES.get(
    "",
    operation_id="field_technicians",
    summary="List technicians",
    response_model=page_model(TechnicianView),
)
async def listing(
    asked: Annotated[TechniciansAsked, Query()], desk: TheDesk, caller: Observer
) -> Response:
    """Lists technicians by id."""
    check_caller(caller)
    rows = select(Technician).order_by(Technician.id).limit(asked.limit + 1)
    if (after := unwrapped(asked.cursor)) is not None:
        rows = rows.where(Technician.id > after)
    if asked.on_duty is not None:
        rows = rows.where(Technician.on_duty == asked.on_duty)
    if asked.phone is not None:
        rows = rows.where(Technician.phone == asked.phone)
    async with desk.directory.read() as session:
        found = list(await session.scalars(rows))
    cut = found[: asked.limit]
    cursor = wrapped(cut[-1].id) if len(found) > len(cut) else None
    return answer({"rows": [told(one) for one in cut], "cursor": cursor})


@ROUTES.get(
    "/nearby",
    operation_id="field_nearby",
    summary="Who could be asked",
    response_model=CANDIDATES,
)
async def near(asked: Annotated[NearbyAsked, Query()], desk: TheDesk, caller: Observer) -> Response:
    """Who is on duty around a position and has all skills, as a request there would ask them."""
    check_caller(caller)
    found = await nearby(
        desk.directory,
        lat=asked.lat,
        lon=asked.lon,
        skills=asked.skill,
        radius_km=asked.radius_km,
        most=asked.limit,
    )
    return answer({"rows": found})


@ROUTES.get(
    "/{id}", operation_id="field_technician", summary="One technician", response_model=TECHNICIAN
)
async def one(id: TheId, desk: TheDesk, caller: Observer) -> Response:  # noqa: A002  (the path's word)
    """A technician; whether he is busy is told by the gate `technician:<id>`."""
    check_caller(caller)
    async with desk.directory.read() as session:
        found = await find_technician(session, id)
    return answer(told(found), headers=version_tag(found.version))


@ROUTES.post(
    "",
    operation_id="field_add_technician",
    summary="Add a technician",
    status_code=201,
    response_model=TECHNICIAN,
)
async def add(
    body: TechnicianBody, service: TheService, desk: TheDesk, caller: Definer
) -> Response:
    """Adds a technician; requests that come from now on find him.

    Raises:
        IdConflict: the id is another's.
        KeyConflict: so is the phone.
    """
    check_caller(caller)
    try:
        async with desk.directory.change() as session:
            added = await add_technician(session, body, service.timing.wall_at())
    except IntegrityError:
        raise IdConflict(_AT_ONCE, hint=_LISTED) from None
    return answer(told(added), 201, headers=version_tag(added.version))


@ROUTES.patch(
    "/{id}",
    operation_id="field_change_technician",
    summary="Change a technician",
    response_model=TECHNICIAN,
)
async def change(
    id: TheId,  # noqa: A002  (the path's word)
    body: TechnicianChange,
    service: TheService,
    desk: TheDesk,
    caller: Definer,
    if_match: IfVersion = None,
) -> Response:
    """Changes a technician; it holds for the next offer, an open one is left alone.

    Raises:
        UnknownRecord: there is no such technician.
        RevisionConflict: If-Match named another version.
        KeyConflict: the phone is another's.
        IdConflict: it became another's at the same moment.
    """
    check_caller(caller)
    try:
        async with desk.directory.change() as session:
            found = await find_technician(session, id, to_change=True)
            check_version(f"the technician {id!r}", found.version, if_match)
            await change_technician(session, found, body.values, service.timing.wall_at())
    except IntegrityError:
        raise IdConflict(_AT_ONCE, hint=_LISTED) from None
    return answer(told(found), headers=version_tag(found.version))


@ROUTES.delete(
    "/{id}",
    operation_id="field_remove_technician",
    summary="Remove a technician",
    status_code=204,
    response_class=Response,
)
async def remove(
    id: TheId,  # noqa: A002  (the path's word)
    desk: TheDesk,
    caller: Definer,
    if_match: IfVersion = None,
) -> Response:
    """Forgets a technician: no further offer is made; a request that he has stays his.

    Raises:
        UnknownRecord: there is no such technician.
        RevisionConflict: If-Match named another version.
    """
    check_caller(caller)
    async with desk.directory.change() as session:
        found = await find_technician(session, id, to_change=True)
        check_version(f"the technician {id!r}", found.version, if_match)
        await session.delete(found)
    return Response(status_code=204)


@ROUTES.post(
    "/import",
    operation_id="field_import_technicians",
    summary="Import technicians",
    response_model=reply_model(ImportReport),
    openapi_extra=CSV_BODY,
)
async def imported(
    request: Request,
    asked: Annotated[ImportAsked, Query()],
    service: TheService,
    desk: TheDesk,
    caller: Definer,
) -> Response:
    """Imports CSV with the columns name, phone, lat, lon, and id, skills, on_duty, channel if any.

    Whoever is there already, by id, else by phone, is changed. All rows or none, unless `partial`.

    Raises:
        InvalidValue: the file is unusable, or rows are; each is told with its number.
    """
    check_caller(caller)
    rows = TechnicianRows(service.timing.wall_at())
    async with uploaded(request) as file:
        report = await run_import(desk.directory, file, rows, partial=asked.partial)
    return answer(report)
