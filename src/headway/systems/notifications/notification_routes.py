"""/notifications: creating, listing, cancelling and confirming notifications; timelines."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Body, Path, Query, Response

from headway.contract.operate import Verb
from headway.contract.views import JobQuery, JobView
from headway.core.check import is_job_id
from headway.core.errors import InvalidState, UnknownRecord
from headway.core.state import FINAL, QUEUED, State
from headway.server.access import Reader, Sender
from headway.server.caller import Caller
from headway.server.paging import PageQuery
from headway.server.replies import answer, json_reply, page_model, reply, reply_model
from headway.server.routing import TheService, router
from headway.systems.directory.records import MAX_ID
from headway.systems.jobs import act
from headway.systems.notifications.context import NotifyContext, TheContext, check_caller
from headway.systems.notifications.delivery import mark_delivered
from headway.systems.notifications.intake import (
    NotificationBody,
    NotificationTaken,
    OneOrMany,
    create_notifications,
)
from headway.systems.notifications.listings import NotificationsParams, page_of
from headway.systems.notifications.listings import timeline as timeline_of
from headway.systems.notifications.notification import (
    Notification,
    Status,
    is_notification,
    notification_of,
    status_of,
)

ROUTES = router("system: notifications", operations="notify_")

Which = Annotated[str, Path(description="Id of the notification.")]

TAKEN = reply_model(NotificationTaken)
TAKEN_MANY = reply(
    "NotificationsTaken",
    "The notifications that now exist.",
    notifications=(list[TAKEN], "Notifications, in the order of the request."),
)
TIMELINE = reply(
    "Timeline",
    "One page of a recipient's notifications.",
    rows=(list[reply_model(Notification)], "Notifications, newest first."),
    cursor=(str | None, "Cursor for the next request; null at the end."),
    history_away=(bool, "Whether the history is unavailable, so older ones may be missing."),
)
STATE = reply(
    "NotificationState",
    "The status of a notification.",
    id=(str, "Id of the notification."),
    status=(Status, "Current status."),
)


@ROUTES.post(
    "/notifications",
    summary="Create one notification, or up to 10,000",
    status_code=201,
    response_model=TAKEN,
    response_description="The notification was created.",
    responses={
        200: {
            "model": TAKEN | TAKEN_MANY,
            "description": "The notification is a duplicate, or the body was a list.",
        }
    },
)
async def take(
    body: Annotated[OneOrMany, Body()], service: TheService, context: TheContext, caller: Sender
) -> Response:
    """Create notifications; when this returns, they are stored.

    A notification is a duplicate if an earlier one to the same recipient and channel had the same
    dedupe key within the window: the reply has the id of the first, whether or not it was
    cancelled. If one of a list is not valid, nothing is stored, and `errors` of the problem has its
    location; if its recipient, template or channel does not exist, `item` is its index.
    """
    check_caller(caller)
    if isinstance(body, NotificationBody):
        (taken,) = await create_notifications(service, context, [body])
        return json_reply(taken, 201 if taken.created else 200)
    return json_reply({"notifications": await create_notifications(service, context, body)})


@ROUTES.get(
    "/notifications",
    operation_id="notify_list",
    summary="List notifications",
    response_model=page_model(Notification),
)
async def listing(
    params: Annotated[NotificationsParams, Query()], service: TheService, caller: Reader
) -> Response:
    """List notifications, oldest first.

    A page may be short or even empty and still have a cursor, because only a bounded number is
    examined.
    """
    check_caller(caller)
    rows, cursor = await page_of(service.store, params)
    return answer({"rows": [replace(one, events=()) for one in rows], "cursor": cursor})


@ROUTES.get(
    "/notifications/{id}", summary="Get a notification", response_model=reply_model(Notification)
)
async def one(id: Which, context: TheContext, caller: Reader) -> Response:
    """Return a notification with its history."""
    return answer(notification_of(await _visible(context, caller, id)))


@ROUTES.delete(
    "/notifications/{id}",
    summary="Cancel a notification",
    response_model=STATE,
    responses={
        202: {
            "model": STATE,
            "description": "The notification will be cancelled before it is sent.",
        }
    },
)
async def cancel(id: Which, context: TheContext, caller: Sender) -> Response:
    """Cancel a notification that has not been sent yet.

    Raises:
        InvalidState: the notification has been sent, or has ended.
    """
    _check_waits(await _visible(context, caller, id))
    if context.calendar is not None:
        await context.calendar.fetch([id])
    # Not one that has been sent since: it may have to go on with another channel.
    states = (*QUEUED, State.RUNNING)
    await act(context.store, Verb.CANCEL, id, author=caller.name, states=states)
    job = await _visible(context, caller, id)
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
    summary="Confirm that an app has shown a notification",
    response_model=STATE,
)
async def delivered(id: Which, context: TheContext, caller: Sender) -> Response:
    """Confirm a delivery, which push providers do not report. A repeat changes nothing."""
    await mark_delivered(context, await _visible(context, caller, id))
    return answer({"id": id, "status": status_of(await _visible(context, caller, id))[0]})


@ROUTES.get(
    "/recipients/{id}/timeline", summary="List a recipient's notifications", response_model=TIMELINE
)
async def timeline(
    id: Annotated[str, Path(max_length=MAX_ID, description="Id of the recipient.")],
    params: Annotated[PageQuery, Query()],
    service: TheService,
    context: TheContext,
    caller: Reader,
) -> Response:
    """List the notifications of a recipient with their histories, newest first.

    If there is a history, the list continues beyond what the store keeps. A page may be short or
    even empty and still have a cursor, because only a bounded number is examined.
    """
    check_caller(caller)
    newest = NotificationsParams(newest=True, cursor=params.cursor, limit=params.limit)
    now = await service.now()
    found = await timeline_of(service.store, context.history, id, newest, now)
    return answer({"rows": found.rows, "cursor": found.cursor, "history_away": found.away})


async def _visible(context: NotifyContext, caller: Caller, id: str) -> JobView:
    check_caller(caller)
    found = await context.store.read(JobQuery(id=id)) if is_job_id(id) else None
    if found is None and context.calendar is not None:
        found = await context.calendar.view(id)
    if found is None or not is_notification(found):
        message = f"there is no notification {id[:64]!r}"
        raise UnknownRecord(message, hint="ended notifications are kept for [notifications] keep")
    return found
