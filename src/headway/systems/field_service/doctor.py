"""What keeps requests from being dealt with, though everything runs: told before it matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply, reply_model
from headway.server.routes.router import router
from headway.systems.directory.database import Directory
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.kinds.after import DISPATCHER
from headway.systems.field_service.settings import FieldSettings
from headway.systems.field_service.users import users_with_role


@dataclass(frozen=True, kw_only=True, slots=True)
class Concern:
    """Something that somebody should look at.

    Attributes:
        subject: what was looked at.
        found: what was seen.
        hint: how to mend it.
    """

    subject: str
    found: str
    hint: str


async def look_over_system(directory: Directory, settings: FieldSettings) -> list[Concern]:
    """What somebody should look at; empty if all is well.

    Args:
        directory: of technicians and users; open.
        settings: of the system.

    Raises:
        StoreUnavailable: the directory is away.
    """
    return [*await _dispatchers(directory), *_reach(settings)]


async def _dispatchers(directory: Directory) -> list[Concern]:
    async with directory.read() as session:
        users = await users_with_role(session, DISPATCHER)
    if not users:
        return [
            Concern(
                subject="dispatchers",
                found="no user has the role Dispatcher: nobody is told when nobody takes a request",
                hint='POST /users {"roles": ["Dispatcher"], "channels": [...], ...}',
            )
        ]
    return [
        Concern(
            subject="dispatchers",
            found=f"{one.name} is a dispatcher and has no channel: alerts do not arrive",
            hint=f'PATCH /users/{one.id} {{"channels": ["text:+1…"]}}',
        )
        for one in users
        if not one.channels
    ]


def _reach(settings: FieldSettings) -> list[Concern]:
    if settings.lines or settings.texts:
        return []
    return [
        Concern(
            subject="telephony",
            found="there is no line and nobody sends texts: technicians are not asked",
            hint="set [field_service.lines] and a table of [telephony]; the API can answer offers",
        )
    ]


ROUTES = router("system: field_service")

CONCERNS = reply(
    "Concerns",
    "What somebody should look at.",
    warnings=(list[reply_model(Concern)], "Empty if all is well."),
)


@ROUTES.get(
    "/field-service/doctor",
    operation_id="field_doctor",
    summary="What somebody should look at",
    response_model=CONCERNS,
)
async def doctor(desk: TheDesk, caller: Annotated[Caller, needs(Permission.OBSERVE)]) -> Response:
    """What keeps requests from being dealt with, though everything runs.

    Such as: no user has the role Dispatcher, so that nobody is alerted.
    """
    caller.every_tenant()
    concerns = await look_over_system(desk.directory, desk.settings)
    return answer({"warnings": concerns})
