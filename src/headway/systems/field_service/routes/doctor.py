"""GET /field-service/doctor: what somebody should look at."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply, reply_model
from headway.server.routes.router import router
from headway.systems.field_service.desk import TheDesk
from headway.systems.field_service.doctor import Concern, look_over_system

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
