"""The dashboard's pages of field_service: requests on a live board, and technicians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import or_, select

from headway.contract.views import GatesQuery, GateState
from headway.server.caller import Caller, Permission
from headway.server.paging import decode_cursor, encode_cursor
from headway.systems.field_service.context import FieldContext, check_caller
from headway.systems.field_service.dispatching import assign, redispatch, withdraw
from headway.systems.field_service.live_view import answer, read_live_view
from headway.systems.field_service.messages import place
from headway.systems.field_service.records import Technician
from headway.systems.field_service.request import OFFERS, Status, lock_of
from headway.systems.field_service.request_routes import complete
from headway.systems.field_service.technicians import HANDLERS, TECHNICIANS
from headway.web.page import (
    Action,
    DashboardPage,
    Field,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
)

ROWS = 50
"""Technicians per page."""
SECTIONS = (
    (Status.PENDING, "Unassigned"),
    (Status.DISPATCHING, "Being offered"),
    (Status.ASSIGNED, "Under way"),
    (Status.COMPLETED, "Completed last"),
    (Status.CANCELLED, "Withdrawn last"),
)
"""Those that a dispatcher must check come first."""


async def _board(context: FieldContext, view: PageView) -> TemplateContext:
    """Return requests by status, those that need a dispatcher first."""
    store = view.service.store
    board = await view.reads.cached("field board", lambda: read_live_view(store, context.directory))
    only = view.values["status"]
    sections = [
        (status, title, [one for one in board.requests if one.status is status])
        for status, title in SECTIONS
        if only in {"", status}
    ]
    return {
        "now": board.now,
        "board": board,
        "sections": [one for one in sections if one[2]],
        "statuses": [str(status) for status, _ in SECTIONS],
        "answer": answer,
        "place": place,
    }


async def _technicians(context: FieldContext, view: PageView) -> TemplateContext:
    """Return a page of technicians by id, each with the request that is assigned or offered."""
    rows, after = select(Technician), decode_cursor(view.values["cursor"] or None)
    if (duty := view.values["duty"]) in {"on", "off"}:
        rows = rows.where(Technician.on_duty == (duty == "on"))
    if sought := view.values["q"]:
        rows = rows.where(or_(Technician.id == sought, Technician.phone == sought))
    async with context.directory.read() as session:
        shown, last = await TECHNICIANS.page(session, rows, after, ROWS)
    store = view.service.store
    names = tuple(lock_of(one.id) for one in shown)
    locks: Mapping[str, GateState] = {}
    if names:
        page = await store.read(GatesQuery(names=names, limit=ROWS))
        locks = {one.name: one for one in page.rows}
    return {
        "rows": [(one, locks[lock_of(one.id)]) for one in shown],
        "cursor": encode_cursor(last),
    }


def _sees_requests(caller: Caller) -> None:
    caller.check_tenant("")
    caller.check_lane(OFFERS)


def _request(values: FormValues, body: Mapping[str, object] | None = None) -> RouteCall:
    return RouteCall(path={"id": values["request"], "request": values["request"]}, body=body)


ASSIGN = Action(
    name="field-assign",
    label="Assign",
    title="Assign the request to a technician",
    explains="Ends any open offer, and assigns it to a technician without asking; the technician "
    "gets a message. A busy technician is refused, unless the request waits.",
    endpoint=assign,
    call=lambda values: _request(
        values, {"technician": values["technician"], "wait": values["wait"] == "yes"}
    ),
    done="{technician} has the request.",
    of=("request",),
    fields=(
        Field(name="technician", label="Technician", required=True, hint="Id of the technician."),
        Field(
            name="wait",
            label="If they are busy",
            kind="select",
            choices=(("no", "refuse"), ("yes", "wait until they are free")),
        ),
    ),
    reach=lambda caller, _: _sees_requests(caller),
)
_move = partial(
    Action,
    call=_request,
    of=("request",),
    reach=lambda caller, _: _sees_requests(caller),
)
REDISPATCH = _move(
    name="field-redispatch",
    label="Offer again",
    title="Offer the request again",
    explains="Offers it to the technicians who are now near, on duty and skilled, nearest first.",
    endpoint=redispatch,
    done="The request is offered again.",
)
COMPLETE = _move(
    name="field-complete",
    label="Complete",
    title="Complete the request",
    explains="The work is done; the technician is free for the next request.",
    endpoint=complete,
    done="The request is completed.",
)
WITHDRAW = _move(
    name="field-withdraw",
    label="Withdraw",
    title="Withdraw the request",
    explains="Calls are hung up; a technician who answers later learns that it was withdrawn.",
    endpoint=withdraw,
    done="The request is withdrawn.",
    danger=True,
)


def _duty(name: str, label: str, *, on: bool) -> Action:
    words = "comes on duty" if on else "goes off duty"
    return Action(
        name=name,
        label=label,
        title=f"{{technician}} {words}",
        explains="This applies from the next offer on; an open one is not affected.",
        endpoint=HANDLERS.change,
        call=lambda values: RouteCall(path={"id": values["technician"]}, body={"on_duty": on}),
        done=f"{{technician}} {words}.",
        of=("technician",),
        reach=lambda caller, _: check_caller(caller),
    )


ON_DUTY = _duty("field-on-duty", "On duty", on=True)
OFF_DUTY = _duty("field-off-duty", "Off duty", on=False)


def pages_of(context: FieldContext) -> Sequence[DashboardPage]:
    """Return the system's pages, in the order of the menu."""
    return (
        DashboardPage(
            path="field-service",
            title="Service requests",
            template="field-requests.html",
            fragments=("requests",),
            read=partial(_board, context),
            permission=Permission.READ,
            reach=_sees_requests,
            params=("status",),
            actions=(ASSIGN, REDISPATCH, COMPLETE, WITHDRAW),
            package="headway.systems.field_service",
        ),
        DashboardPage(
            path="field-service/technicians",
            title="Technicians",
            template="field-technicians.html",
            fragments=("technicians",),
            read=partial(_technicians, context),
            permission=Permission.OBSERVE,
            reach=check_caller,
            params=("q", "duty", "cursor"),
            actions=(ON_DUTY, OFF_DUTY),
            package="headway.systems.field_service",
        ),
    )
