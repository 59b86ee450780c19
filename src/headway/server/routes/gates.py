"""/v1/gates, /v1/closures, /v1/permits: reading and changing gates."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Response
from fastapi.openapi.models import Example
from pydantic import Field

from headway.contract.definitions import DeclareGate, OpenGate, ResetGate
from headway.contract.views import GatesQuery, GateState, StatsQuery
from headway.core.errors import UnknownGate
from headway.core.gates.spec import is_implicit
from headway.core.job import derived_id
from headway.core.local_time import MAX_AT
from headway.server.access import Definer, WholeObserver, needs
from headway.server.bodies.base import Name
from headway.server.bodies.definitions import AnyGate, ClosureBody, GateNumbersBody, PermitBody
from headway.server.caller import Caller, Permission
from headway.server.paging import (
    DEFINED,
    IfMatch,
    PageQuery,
    RepeatKey,
    WhichPage,
    check_repeat_key,
    close_gate,
    decode_cursor,
    define,
    encode_cursor,
    etag,
    listed,
)
from headway.server.problems import named_by_body
from headway.server.replies import CLOSED, CLOSURES, GATE, GATES, RELEASED, answer
from headway.server.routing import TheService, router
from headway.server.visibility import visible_job

ROUTES = router("gates", prefix="/v1")

_EXAMPLES: dict[str, Example] = {
    "slots": {"summary": "A fixed number of permits", "value": {"kind": "slots", "capacity": 1}},
    "rate": {
        "summary": "A number of starts in a window",
        "value": {"kind": "rate", "limit": 7, "per": "1h"},
    },
    "pool": {
        "summary": "One of several members",
        "value": {"kind": "pool", "members": {"+15550001": 4, "+15550002": 8}},
    },
    "hours": {
        "summary": "Only at certain times",
        "value": {
            "kind": "hours",
            "hours": "09:00-18:00",
            "days": "mon-fri",
            "tz": "Europe/Berlin",
            "exceptions": {"2026-12-25": None},
        },
    },
}


class GatesParams(PageQuery):
    """Which gates."""

    name: list[Name] | None = Field(
        default=None,
        max_length=1_000,
        description="Only gates with this name, in the order given; repeatable.",
    )
    parked: bool = Field(default=False, description="Only gates at which jobs are parked.")


@ROUTES.get("/gates", summary="List gates", response_model=GATES)
async def list_gates(
    params: Annotated[GatesParams, Query()], service: TheService, _: WholeObserver
) -> Response:
    """List gates that are declared, capped, closed or held, by name."""
    stats = await service.store.read(StatsQuery())
    names = None if params.name is None else tuple(params.name)
    query = GatesQuery(
        names=names,
        parked=params.parked,
        cursor=decode_cursor(params.cursor),
        limit=params.limit,
    )
    page = await service.store.read(query)
    return listed(stats, page.rows, encode_cursor(page.cursor))


@ROUTES.get("/gates/{name:path}", summary="Get a gate", response_model=GATE)
async def get_gate(name: Name, service: TheService, _: WholeObserver) -> Response:
    """Return the current state of a gate: how full it is, who holds it, when it opens.

    Raises:
        UnknownGate: there is no gate of that name.
    """
    revision = (await service.store.read(StatsQuery())).revision
    page = await service.store.read(GatesQuery(names=(name,)))
    if not page.rows or (page.rows[0].implicit and not is_implicit(name)):
        message = f"there is no gate {name[:80]!r}"
        raise UnknownGate(message, hint="GET /v1/gates lists them")
    return answer(page.rows[0], headers=etag(revision))


@ROUTES.put("/gates/{name:path}", summary="Declare a gate", response_model=DEFINED)
async def declare_gate(
    name: Name,
    body: Annotated[AnyGate, Body(openapi_examples=_EXAMPLES)],
    service: TheService,
    caller: Definer,
    if_match: IfMatch = None,
) -> Response:
    """Declare a gate, as a program's code does; an operator's numbers take precedence.

    The name may be a template over arguments, such as `customer:{phone}`. The kind of a gate can
    never be changed, because jobs wait at it.
    """
    caller.check_gate(name)
    item = DeclareGate(spec=body.spec(name))
    return await define(service, caller, item, if_match=if_match)


@ROUTES.patch("/gates/{name:path}", summary="Change a gate's numbers", response_model=DEFINED)
async def set_gate(
    name: Name,
    body: GateNumbersBody,
    service: TheService,
    caller: Definer,
    if_match: IfMatch = None,
) -> Response:
    """Change a gate's numbers; they take precedence over what is declared until reset.

    This works for any gate: a declared one, an instance of a template, a pool member as
    pool/member, or all, lane:NAME, tenant:NAME and kind:NAME.
    """
    caller.check_gate(name)
    return await define(service, caller, body.change(name), reason=body.reason, if_match=if_match)


@ROUTES.delete("/gates/{name:path}", summary="Reset a gate's numbers", response_model=DEFINED)
async def reset_gate(
    name: Name, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """Remove an operator's numbers; what is declared applies again. The gate itself stays."""
    caller.check_gate(name)
    return await define(service, caller, ResetGate(name=name), if_match=if_match)


@ROUTES.get("/closures", summary="List closed gates", response_model=CLOSURES)
async def list_closures(params: WhichPage, service: TheService, _: WholeObserver) -> Response:
    """List closed gates, by name; a page examines `limit` gates."""
    stats = await service.store.read(StatsQuery())
    page = await service.store.read(
        GatesQuery(cursor=decode_cursor(params.cursor), limit=params.limit)
    )
    gates = [one for gate in page.rows for one in (gate, *gate.members)]
    closed = [_closure(one) for one in gates if (one.closed_until or 0) > stats.now]
    return listed(stats, closed, encode_cursor(page.cursor))


@ROUTES.post("/closures", operation_id="close_gate", summary="Close a gate", response_model=CLOSED)
async def close(
    body: ClosureBody, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """Close any gate, indefinitely or until a given time: nothing more passes.

    This affects jobs that already wait, but does not stop running ones. Closing `all` is the kill
    switch. A repeat replaces the previous closing.
    """
    with named_by_body():
        return await close_gate(service, caller, body.gate, body, if_match)


@ROUTES.delete("/closures/{gate:path}", summary="Open a closed gate", response_model=DEFINED)
async def open_gate(
    gate: Name, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """End a closing by any author; a gate that is not closed stays unchanged."""
    caller.check_gate(gate)
    return await define(service, caller, OpenGate(name=gate), if_match=if_match)


@ROUTES.delete("/permits", summary="Take a permit by force", response_model=RELEASED)
async def release_permit(
    body: PermitBody,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.ACT)],
    repeat_key: RepeatKey = None,
) -> Response:
    """Take a permit from its holder by force, with a line in the trail; the job stays unchanged."""
    with named_by_body():
        await visible_job(service, caller, body.job)
    request = ""
    if repeat_key is not None:
        key = check_repeat_key(repeat_key)
        request = derived_id("release", caller.id, key, body.gate, body.job)
    released = await service.store.release_permit(
        body.gate, body.job, caller.name, body.reason, request=request
    )
    return answer({"released": released})


def _closure(gate: GateState) -> dict[str, object]:
    until = gate.closed_until
    return {
        "gate": gate.name,
        "until_at": None if until is None or until > MAX_AT else until,
        "by": gate.closed_by,
        "reason": gate.closed_reason,
    }
