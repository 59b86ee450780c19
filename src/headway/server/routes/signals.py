"""POST /v1/signals/{key}: what the outside world says of a job that awaits it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Request, Response

from headway.contract.signals import Signal, SignalReply
from headway.contract.views import JobQuery
from headway.core.errors import UnknownJob
from headway.server.access.caller import Caller
from headway.server.bodies.signal import SignalBody
from headway.server.hooks.callback import read_callback
from headway.server.hooks.delivery import deliver
from headway.server.hooks.request import HookRequest
from headway.server.hooks.seen_url import seen_url
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply_model
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.server.signal_urls import by_token_or_signature

ROUTES = router("signals")

_REFERENCE = re.compile(r"([0-9a-f-]{36})(?::[0-9]{1,9})?", re.ASCII)
_SCHEMA: dict[str, Any] = SignalBody.model_json_schema()
_SIGNED = "Of a signed URL, as `job.signal_url` gives it; no token is needed then."


def _parameter(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind}, "description": _SIGNED}


@ROUTES.post(
    "/v1/signals/{key:path}",
    operation_id="signal",
    summary="Signal a job",
    response_model=reply_model(SignalReply),
    openapi_extra={
        "parameters": [_parameter("expires", "integer"), _parameter("signature", "string")],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _SCHEMA,
                    "example": {"event": "evt-7", "final": "succeeded", "body": {"seconds": 42}},
                },
                "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
            },
        },
    },
)
async def hear(
    request: Request,
    service: TheService,
    caller: Annotated[Caller, by_token_or_signature()],
    key: Annotated[
        str,
        Path(description="A run's reference `id:run`, or a key that it is known as."),
    ],
) -> Response:
    """Tells what the outside world says of a job; each event is applied once.

    The answer is definite: `applied`, `already`, `kept` (no run awaits this key yet; kept for an
    hour) or `late` (the run awaits it no longer). A form is read too: with these fields, or as
    Twilio's status callback. With `final`, `progress` or `note` in the URL, the body is whatever
    is to be recorded.
    """
    came = HookRequest(
        method=request.method,
        url=seen_url(request.scope, service.options.public_url),
        headers=tuple(request.headers.items()),
        body=await request.body(),
    )
    signals = read_callback(key, came)
    await _check_scope(service, caller, signals)
    replies = await deliver(service.store, signals)
    return answer(replies[-1])


async def _check_scope(service: Service, caller: Caller, signals: Sequence[Signal]) -> None:
    """Lets signals pass whose job is the caller's.

    Raises:
        UnknownJob: it is not, or is not known yet; another's job is not told from none.
    """
    if caller.tenants is None and caller.lanes is None:
        return
    key = signals[0].key
    found = _REFERENCE.fullmatch(key)
    job = None if found is None else await service.store.read(JobQuery(id=found[1]))
    if job is None or not caller.sees(job):
        message = f"there is no job of the token {caller.name!r} under the key {key[:80]!r}"
        raise UnknownJob(message, hint="a token for some tenants signals by the reference id:run")
