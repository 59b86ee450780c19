"""/notifications: taking them in, finding, cancelling, and confirming them; timelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, cast
from uuid import uuid4

from fastapi import Body, Path, Query, Response
from pydantic import Field

from headway.contract.operate import ActRequest, Verb
from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.check import is_job_id
from headway.core.errors import InvalidState, UnknownRecord
from headway.core.state import FINAL, State
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import needs
from headway.server.paging import PageQuery, bounded_page, check_number_cursor
from headway.server.replies.reply import answer, json_reply, page_model, reply, reply_model
from headway.server.routes.router import TheService, router
from headway.server.service import Service
from headway.systems.directory.records import MAX_ID
from headway.systems.notifications.context import NotifyContext, TheContext, check_caller
from headway.systems.notifications.delivery import delivered as apply_delivered
from headway.systems.notifications.intake import NotificationBody, OneOrMany, take_in
from headway.systems.notifications.names import NAME, NOTIFICATION, Channel, Status, lane_of
from headway.systems.notifications.notification import Notification, notification_of, status_of

ROUTES = router("system: notifications")

Reads = Annotated[Caller, needs(Permission.READ)]
Sends = Annotated[Caller, needs(Permission.SEND)]
Which = Annotated[str, Path(description="The notification's.")]

TAKEN = reply(
    "NotificationTaken",
    "Which notification exists now.",
    id=(str, "Of it; of a duplicate, the first one's."),
    created=(bool, "Whether it is new."),
    due_at=(int | None, "When it is due, ms UTC; null for a duplicate."),
)
TAKEN_MANY = reply(
    "NotificationsTaken", "One for each, in their order.", notifications=(list[TAKEN], "Each.")
)
STATE = reply("NotificationState", "Where it stands.", id=(str, "Of it."), status=(Status, "Now."))


class NotificationsAsked(PageQuery):
    """Which notifications."""

    status: Status | None = Field(default=None, description="Only these.")
    channel: Channel | None = Field(default=None, description="Only those that begin with it.")
    newest: bool = Field(default=False, description="Newest intake first.")


@ROUTES.post(
    "/notifications",
    operation_id="notify_take",
    summary="Take in one notification, or up to 10,000",
    status_code=201,
    response_model=TAKEN,
    response_description="It was taken in.",
    responses={200: {"model": TAKEN | TAKEN_MANY, "description": "A duplicate; or: a list."}},
)
async def take(
    body: Annotated[OneOrMany, Body()], service: TheService, context: TheContext, caller: Sends
) -> Response:
    """Take notifications in; when this returns, they are stored.

    One with a dedupe key that an earlier one to this recipient and channel had within the window
    is a duplicate: the reply has the first one's id. If one of a list is not valid, nothing is
    stored, and the problem has its index as `item`.
    """
    check_caller(caller)
    if isinstance(body, NotificationBody):
        (taken,) = await take_in(service, context, [body])
        return json_reply(taken._asdict(), 201 if taken.created else 200)
    taken_in = await take_in(service, context, body)
    return json_reply({"notifications": [taken._asdict() for taken in taken_in]})


@ROUTES.get(
    "/notifications",
    operation_id="notify_list",
    summary="List notifications",
    response_model=page_model(Notification),
)
async def listing(
    asked: Annotated[NotificationsAsked, Query()], service: TheService, caller: Reads
) -> Response:
    """List notifications, oldest intake first.

    A page may be short, or even empty, and yet have a cursor: a bounded number was looked at.
    """
    check_caller(caller)
    query = JobsQuery(
        lane=None if asked.channel is None else lane_of(asked.channel),
        states=() if asked.status is None else STATES[asked.status],
        newest=asked.newest,
    )
    rows, cursor = await _page(service, asked, query)
    rows = [one for one in rows if asked.status in {None, one.status}]
    return answer({"rows": [replace(one, events=()) for one in rows], "cursor": cursor})


async def _page(
    service: Service, asked: PageQuery, query: JobsQuery
) -> tuple[list[Notification], str | None]:
    """Return the notifications of a page with their histories, and the cursor of the next one."""
    cursor = check_number_cursor(asked.cursor)
    query = replace(
        query, kind=NOTIFICATION, runs=True, trail=True, cursor=cursor, limit=asked.limit
    )
    page = await bounded_page(service.store, query)
    found = [notification_of(job) for job in page.rows if job.kind == NOTIFICATION]
    return found, page.cursor


_WAITING = (State.SCHEDULED, State.WAITING, State.PARKED, State.RUNNING, State.AWAITING)
STATES = {
    Status.QUEUED: _WAITING,
    Status.SENT: (State.AWAITING, State.SUCCEEDED, State.CANCELLED),
    # A provider's late word changes the status of whatever has ended.
    Status.DELIVERED: tuple(FINAL),
    Status.FAILED: tuple(FINAL),
    Status.SKIPPED: (State.SUCCEEDED,),
    Status.CANCELLED: (State.CANCELLED,),
}
"""Among jobs of which states those of a status are."""


@ROUTES.get(
    "/notifications/{id}",
    operation_id="notify_one",
    summary="One notification",
    response_model=reply_model(Notification),
)
async def one(id: Which, service: TheService, caller: Reads) -> Response:  # noqa: A002  (the path's word)
    """A notification with its history."""
    return answer(notification_of(await _seen(service, caller, id)))


@ROUTES.delete(
    "/notifications/{id}",
    operation_id="notify_cancel",
    summary="Cancel a notification",
    response_model=STATE,
    responses={202: {"model": STATE, "description": "It is cancelled before it is sent."}},
)
async def cancel(
    id: Which,  # noqa: A002  (as above)
    service: TheService,
    context: TheContext,
    caller: Sends,
) -> Response:
    """Cancel a notification that was not sent yet.

    Raises:
        InvalidState: it was sent, or has ended.
    """
    _check_waits(await _seen(service, caller, id))
    if context.calendar is not None:
        await context.calendar.fetch([id])
    request = ActRequest(request=str(uuid4()), ids=(id,), verb=Verb.CANCEL, author=caller.name)
    await service.store.act(request)
    job = await _seen(service, caller, id)
    status, _ = status_of(job)
    if status is Status.CANCELLED:
        return answer({"id": id, "status": status})
    _check_waits(job)
    return answer({"id": id, "status": status}, 202)


def _check_waits(job: JobView) -> None:
    if job.state in FINAL or job.state is State.AWAITING:
        message = f"the notification is {status_of(job)[0]}, and cannot be cancelled"
        raise InvalidState(message, hint="GET /notifications/{id} shows its history")


@ROUTES.post(
    "/notifications/{id}/delivered",
    operation_id="notify_delivered",
    summary="Confirm that an app has shown a notification",
    response_model=STATE,
)
async def delivered(
    id: Which,  # noqa: A002  (as above)
    service: TheService,
    context: TheContext,
    caller: Sends,
) -> Response:
    """Confirm a delivery, which providers of push do not report. A repetition changes nothing."""
    await apply_delivered(context, await _seen(service, caller, id))
    return answer({"id": id, "status": status_of(await _seen(service, caller, id))[0]})


@ROUTES.get(
    "/recipients/{id}/timeline",
    operation_id="notify_timeline",
    summary="A recipient's notifications",
    response_model=page_model(Notification),
)
async def timeline(
    id: Annotated[str, Path(max_length=MAX_ID, description="The recipient's.")],  # noqa: A002  (as above)
    asked: Annotated[PageQuery, Query()],
    service: TheService,
    caller: Reads,
) -> Response:
    """The notifications of a recipient with their histories, newest intake first."""
    check_caller(caller)
    rows, cursor = await _page(service, asked, JobsQuery(tenant="", subject=id, newest=True))
    return answer({"rows": rows, "cursor": cursor})


async def _seen(service: Service, caller: Caller, id: str) -> JobView:  # noqa: A002  (as above)
    """A notification's job with its runs and trail.

    Raises:
        UnknownRecord: there is none.
    """
    check_caller(caller)
    found = await service.store.read(JobQuery(id=id)) if is_job_id(id) else None
    calendar = cast("NotifyContext", service.system_services[NAME]).calendar
    if found is None and calendar is not None:
        found = await calendar.view(id)
    if found is None or found.kind != NOTIFICATION:
        message = f"there is no notification {id[:64]!r}"
        raise UnknownRecord(message, hint="ended ones are kept a time: [notifications] keep")
    return found
