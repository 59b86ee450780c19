"""POST /v1/settlements: how runs ended, and all else that a live run may write."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response

from headway.contract.outcomes import Verdict
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.bodies.settlement import SettlementBody
from headway.server.for_callers.settling import settle as settle_for
from headway.server.replies.answer import answer
from headway.server.replies.error_members import named_by_body
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router

ROUTES = router("work")

_REPLY = reply(
    "Settlement",
    "What became of each outcome.",
    verdicts=(
        list[Verdict],
        "In the order of the outcomes. done: it is written. already: this same run had said so. "
        "lost: the run is not live any more, and nothing was written. cancelled: written, but the "
        "job ends cancelled, because somebody asked for it.",
    ),
)


@ROUTES.post("/v1/settlements", operation_id="settle", summary="Settle runs", response_model=_REPLY)
async def settle(
    service: TheService,
    caller: Annotated[Caller, needs(Permission.WORK)],
    body: SettlementBody,
) -> Response:
    """Writes what live runs say, with all that must follow in the same step.

    Each outcome is checked by itself: the job must be held by this worker of your token, in this
    run, with a live lease; else the verdict is `lost` and nothing is written. Safe to repeat. An
    error refuses all outcomes of the request; sent one by one, the others are written.
    """
    with named_by_body():
        verdicts = await settle_for(service, caller, body.worker, body.outcomes)
    return answer({"verdicts": verdicts})
