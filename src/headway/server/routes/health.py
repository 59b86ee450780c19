"""/healthz and /readyz: whether this server lives, and whether it can do its work."""

from __future__ import annotations

import logging
from inspect import getdoc
from typing import Annotated, Literal

from fastapi import Request, Response

from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.replies.answer import answer
from headway.server.replies.problem import RETRY_AFTER_S, problem
from headway.server.replies.schema import reply
from headway.server.routes.router import PROBLEM, TheService, router

ROUTES = router("observe")

_HEALTH = reply("Health", "That all is well.", status=(Literal["ok"], "Always ok."))
_log = logging.getLogger("headway.server")


@ROUTES.get("/healthz", operation_id="healthz", summary="Alive", response_model=_HEALTH)
async def healthz(_: Annotated[Caller, public()]) -> Response:
    """Whether the process answers at all; never asks the store."""
    return answer({"status": "ok"})


@ROUTES.get(
    "/readyz",
    operation_id="readyz",
    summary="Ready",
    response_model=_HEALTH,
    responses={503: PROBLEM},
)
async def readyz(request: Request, service: TheService, _: Annotated[Caller, public()]) -> Response:
    """Whether requests should come here: the store answers within two seconds and is current.

    The code of the problem says what is missing: `store_unavailable`, `schema_mismatch`,
    `store_changed`, `stopping`.
    """
    if service.stopping.is_set():
        return _not_ready(request, "stopping", "The server is about to stop.")
    fault = await service.readiness.fault()
    if fault is None:
        return answer({"status": "ok"})
    _log.warning("not ready: %s", fault)
    # Anybody may ask: what is told is of which kind the fault is, not where the store is.
    return _not_ready(request, fault.code, (getdoc(type(fault)) or "").partition("\n")[0])


def _not_ready(request: Request, code: str, detail: str) -> Response:
    return problem(
        503, code=code, detail=detail, request=request, headers={"Retry-After": str(RETRY_AFTER_S)}
    )
