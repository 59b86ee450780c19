"""/users: who is told things."""

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
from headway.server.replies.answer import answer
from headway.server.replies.schema import page_model, reply_model
from headway.server.routes.router import router
from headway.systems.field_service.callers import check_caller
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.importing.asked import ImportAsked
from headway.systems.field_service.importing.report import ImportReport
from headway.systems.field_service.importing.run import run_import
from headway.systems.field_service.importing.upload import CSV_BODY, uploaded
from headway.systems.field_service.records import MAX_ID, MAX_SKILL, RoleHeld, User
from headway.systems.field_service.skills import skill_key
from headway.systems.field_service.users.bodies import UserBody, UserChange
from headway.systems.field_service.users.book import find_user
from headway.systems.field_service.users.keeping import add_user, change_user
from headway.systems.field_service.users.rows import UserRows
from headway.systems.field_service.users.view import UserView, told
from headway.systems.field_service.versions import IfVersion, check_version, version_tag

ROUTES = router("system: field_service", prefix="/users")

Observer = Annotated[Caller, needs(Permission.OBSERVE)]
Definer = Annotated[Caller, needs(Permission.DEFINE)]
TheId = Annotated[str, Path(max_length=MAX_ID, description="The user's.", examples=["bo"])]
USER = reply_model(UserView)


class UsersAsked(PageAsked):
    """Which users."""

    role: str | None = Field(
        default=None, max_length=MAX_SKILL, description="Only who has it, in any case."
    )


@ROUTES.get(
    "", operation_id="field_users", summary="List users", response_model=page_model(UserView)
)
async def listing(
    asked: Annotated[UsersAsked, Query()], desk: TheDesk, caller: Observer
) -> Response:
    """Lists users by id."""
    check_caller(caller)
    rows = select(User).order_by(User.id).limit(asked.limit + 1)
    if (after := unwrapped(asked.cursor)) is not None:
        rows = rows.where(User.id > after)
    if asked.role is not None:
        held = RoleHeld.role == skill_key(asked.role)
        rows = rows.join(RoleHeld, RoleHeld.user_id == User.id).where(held)
    async with desk.directory.read() as session:
        found = list(await session.scalars(rows))
    cut = found[: asked.limit]
    cursor = wrapped(cut[-1].id) if len(found) > len(cut) else None
    return answer({"rows": [told(one, caller) for one in cut], "cursor": cursor})


@ROUTES.get("/{id}", operation_id="field_user", summary="One user", response_model=USER)
async def one(id: TheId, desk: TheDesk, caller: Observer) -> Response:  # noqa: A002  (the path's word)
    """A user."""
    check_caller(caller)
    async with desk.directory.read() as session:
        found = await find_user(session, id)
    return answer(told(found, caller), headers=version_tag(found.version))


@ROUTES.post(
    "",
    operation_id="field_add_user",
    summary="Add a user",
    status_code=201,
    response_model=USER,
)
async def add(body: UserBody, desk: TheDesk, caller: Definer) -> Response:
    """Adds a user; one with the role Dispatcher, in any case, is told when nobody takes a job.

    Raises:
        IdConflict: the id is another's.
    """
    check_caller(caller)
    try:
        async with desk.directory.change() as session:
            added = await add_user(session, body)
    except IntegrityError:
        message = "somebody else took this id at the same moment"
        raise IdConflict(message, hint="GET /users lists them") from None
    return answer(told(added, caller), 201, headers=version_tag(added.version))


@ROUTES.patch(
    "/{id}", operation_id="field_change_user", summary="Change a user", response_model=USER
)
async def change(
    id: TheId,  # noqa: A002  (the path's word)
    body: UserChange,
    desk: TheDesk,
    caller: Definer,
    if_match: IfVersion = None,
) -> Response:
    """Changes a user; it holds for the next alert.

    Raises:
        UnknownRecord: there is no such user.
        RevisionConflict: If-Match named another version.
    """
    check_caller(caller)
    async with desk.directory.change() as session:
        found = await find_user(session, id, to_change=True)
        check_version(f"the user {id!r}", found.version, if_match)
        await change_user(session, found, body.values)
    return answer(told(found, caller), headers=version_tag(found.version))


@ROUTES.delete(
    "/{id}",
    operation_id="field_remove_user",
    summary="Remove a user",
    status_code=204,
    response_class=Response,
)
async def remove(
    id: TheId,  # noqa: A002  (the path's word)
    desk: TheDesk,
    caller: Definer,
    if_match: IfVersion = None,
) -> Response:
    """Forgets a user.

    Raises:
        UnknownRecord: there is no such user.
        RevisionConflict: If-Match named another version.
    """
    check_caller(caller)
    async with desk.directory.change() as session:
        found = await find_user(session, id, to_change=True)
        check_version(f"the user {id!r}", found.version, if_match)
        await session.delete(found)
    return Response(status_code=204)


@ROUTES.post(
    "/import",
    operation_id="field_import_users",
    summary="Import users",
    response_model=reply_model(ImportReport),
    openapi_extra=CSV_BODY,
)
async def imported(
    request: Request,
    asked: Annotated[ImportAsked, Query()],
    desk: TheDesk,
    caller: Definer,
) -> Response:
    """Imports CSV with the column name, and id, roles, channels if any.

    Whoever is there already, by id, is changed. All rows or none, unless `partial`.

    Raises:
        InvalidValue: the file is unusable, or rows are; each is told with its number.
    """
    check_caller(caller)
    async with uploaded(request) as file:
        report = await run_import(desk.directory, file, UserRows(), partial=asked.partial)
    return answer(report)
