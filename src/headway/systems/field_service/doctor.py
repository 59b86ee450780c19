"""Settings and records that would keep requests from being dispatched, found in advance."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Response
from fastapi.responses import RedirectResponse

from headway.server.access import Observer, Public
from headway.server.replies import answer, reply, reply_model
from headway.server.routing import router
from headway.systems.directory.database import Directory
from headway.systems.field_service.context import TheContext, check_caller
from headway.systems.field_service.follow_ups import DISPATCHER
from headway.systems.field_service.settings import FieldSettings
from headway.systems.field_service.users import users_with_role


@dataclass(frozen=True, kw_only=True, slots=True)
class Concern:
    """A warning about the configuration."""

    subject: str
    found: str
    hint: str


async def check_system(directory: Directory, settings: FieldSettings) -> list[Concern]:
    """Return the warnings about dispatchers and telephony."""
    return [*await _dispatchers(directory), *reach_concerns(settings)]


async def _dispatchers(directory: Directory) -> list[Concern]:
    async with directory.read() as session:
        users = await users_with_role(session, DISPATCHER)
    if not users:
        return [
            Concern(
                subject="dispatchers",
                found="no user has the role Dispatcher: alerts have no recipient",
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


def reach_concerns(settings: FieldSettings) -> list[Concern]:
    """Return a warning if technicians can be neither called nor sent messages."""
    if settings.lines or settings.texts:
        return []
    return [
        Concern(
            subject="telephony",
            found="there are no lines and no provider for text messages: technicians are not asked",
            hint="set [field_service.lines] and a table of [telephony]; the API can answer offers",
        )
    ]


ROUTES = router("system: field_service", operations="field_")

CONCERNS = reply(
    "Concerns",
    "The result of a configuration check.",
    warnings=(list[reply_model(Concern)], "Warnings; empty if there are none."),
)


@ROUTES.get("/field-service/doctor", summary="Check the configuration", response_model=CONCERNS)
async def doctor(context: TheContext, caller: Observer) -> Response:
    """List what prevents requests from being dispatched although everything is running.

    For example: no user has the role Dispatcher, so alerts have no recipient.
    """
    check_caller(caller)
    concerns = await check_system(context.directory, context.settings)
    return answer({"warnings": concerns})


@ROUTES.get(
    "/field-service/live",
    summary="Open the live page",
    status_code=307,
    response_class=RedirectResponse,
)
async def live(_: Public) -> Response:
    """Redirect to the requests on the dashboard, which asks for a token if there are any."""
    return RedirectResponse("/ui/field-service", 307)
