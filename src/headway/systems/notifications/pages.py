"""The dashboard's pages of notifications: channels, a recipient's timeline, templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from sqlalchemy import select

from headway.contract.views import GatesQuery
from headway.core.errors import InvalidValue
from headway.server.caller import Permission
from headway.systems.jobs import count_queued, find_lane
from headway.systems.notifications.context import NotifyContext, check_caller
from headway.systems.notifications.listings import NotificationsParams, Timeline, page_of, timeline
from headway.systems.notifications.message_templates import TEMPLATES, PreviewAsked, preview
from headway.systems.notifications.metrics import Totals, overdue_ms
from headway.systems.notifications.notification import HISTORY_LANE, NAME, Channel, Status, Tallied
from headway.systems.notifications.notification_routes import cancel
from headway.systems.notifications.recipients import RECIPIENTS
from headway.systems.notifications.records import MessageTemplate, Recipient
from headway.web.page import Action, DashboardPage, PageView, RouteCall, TemplateContext

ROWS = 25
"""Notifications per list."""
RECORDS = 50
"""Templates per page."""
MOST_SHOWN = 20_000
"""Maximum characters shown of a source or a preview."""


async def read(view: PageView) -> TemplateContext:
    """Return the channels and the newest notifications, or the timeline of a recipient."""
    seen = await view.reads.overview()
    recipient = view.values["recipient"]
    sees_lines = not recipient and Permission.OBSERVE in view.caller.may
    channel, status = view.values["channel"], view.values["status"]
    asked = NotificationsParams(
        status=Status(status) if status in set(Status) else None,
        channel=Channel(channel) if channel in set(Channel) and not recipient else None,
        newest=True,
        cursor=view.values["cursor"] or None,
        limit=ROWS,
    )
    found = await view.reads.cached(
        ("notifications", recipient, asked.model_dump_json()),
        lambda: _page(view, recipient, asked, seen.stats.now),
    )
    return {
        "now": seen.stats.now,
        "channels": list(Channel),
        "css_classes": _CSS_CLASSES,
        "lines": await _lines(view) if sees_lines else None,
        "history": await _history(view) if sees_lines else None,
        "recipient": recipient,
        "person": await _person(view, recipient) if recipient else None,
        "rows": found.rows,
        "past": found.past,
        "away": found.away,
        "cursor": found.cursor,
        "statuses": [Status.QUEUED, Status.SENT, Status.DELIVERED, Status.FAILED],
    }


async def _page(view: PageView, recipient: str, asked: NotificationsParams, now: int) -> Timeline:
    store = view.service.store
    if recipient:
        return await timeline(store, _context(view).history, recipient, asked, now)
    rows, cursor = await page_of(store, asked)
    return Timeline(rows=rows, cursor=cursor)


_CSS_CLASSES = {
    Status.QUEUED: "waiting",
    Status.SENT: "running",
    Status.DELIVERED: "succeeded",
    Status.FAILED: "dead",
}
"""CSS class of each status."""


async def _lines(view: PageView) -> Sequence[Mapping[str, object]]:
    """Return the queue, the limits and the outcomes of each channel."""
    context = _context(view)
    store, seen = view.service.store, await view.reads.overview()
    names = tuple(one for channel in Channel for one in (channel.slots, channel.rate))
    page = await view.reads.cached(
        "notifications: gates", lambda: store.read(GatesQuery(names=names))
    )
    gates = {one.name: one for one in page.rows}
    lanes = {one.name: one for one in seen.lanes}
    totals: Totals = await view.reads.cached("notifications: totals", context.tally.totals)
    found: list[Mapping[str, object]] = []
    for channel in Channel:
        lane, slots = lanes.get(channel.lane), gates.get(channel.slots)
        limits = context.settings.channel(channel)
        found.append(
            {
                "channel": channel,
                "ready": channel in context.senders,
                "gate": slots,
                "closed": slots is not None and slots.closed_until is not None,
                "rate": gates.get(channel.rate) if limits.rate is not None else None,
                "limits": limits,
                "queued": count_queued(lane),
                "oldest_at": None if lane is None else lane.oldest_due_at,
                "paused": lane is not None and lane.paused,
                "ends": {
                    one: totals.get((Tallied.OUTCOME, f"{channel}:{one}"), 0) for one in Status
                },
            }
        )
    return found


async def _history(view: PageView) -> Mapping[str, object] | None:
    """Return how many ended notifications wait for the history; None if it is switched off."""
    context, seen = _context(view), await view.reads.overview()
    if context.history is None:
        return None
    behind_ms = overdue_ms(seen, HISTORY_LANE)
    return {
        "queued": count_queued(find_lane(seen, HISTORY_LANE)),
        "behind_ms": behind_ms,
        "late": behind_ms > context.thresholds.history_behind_above_ms,
        "runbooks": context.thresholds.runbooks,
    }


async def _person(view: PageView, recipient: str) -> object:
    """Return a recipient as its route shows it; None if there is none for this caller."""
    if Permission.OBSERVE not in view.caller.may:
        return None
    async with _context(view).directory.read() as session:
        found = await session.get(Recipient, recipient)
        return None if found is None else RECIPIENTS.view(found, view.caller)


def _context(view: PageView) -> NotifyContext:
    return cast("NotifyContext", view.service.system_services[NAME])


async def read_templates(view: PageView) -> TemplateContext:
    """Return a page of templates, or one template with its source and a preview of a channel."""
    context, name = _context(view), view.values["template"]
    if not name:
        rows, after = select(MessageTemplate), view.values["cursor"] or None
        async with context.directory.read() as session:
            found, last = await TEMPLATES.page(session, rows, after, RECORDS)
        shown = [TEMPLATES.view(one, view.caller) for one in found]
        return {"template": None, "rows": shown, "cursor": last}
    async with context.directory.read() as session:
        one = await TEMPLATES.find(session, name)
    asked = view.values["channel"], view.values["data"]
    preview_shown: Mapping[str, object] | None = None
    if asked[0] and Permission.READ in view.caller.may:
        key = ("notifications: preview", name, one.version, *asked)
        preview_shown = await view.reads.cached(key, lambda: _preview(view, name, *asked), 10.0)
    return {
        "template": TEMPLATES.view(one, view.caller),
        "channels": list(Channel),
        "data": asked[1] or "{}",
        "shown": preview_shown,
        "most": MOST_SHOWN,
    }


async def _preview(view: PageView, name: str, channel: str, data: str) -> Mapping[str, object]:
    """Return a channel's message, rendered by the route's own function, or the error."""
    try:
        asked = PreviewAsked.model_validate(
            {"channel": Channel(channel), "data": msgspec.json.decode(data or "{}")}
        )
    except ValueError:
        return {"wrong": "the data is not a JSON object, or there is no such channel"}
    try:
        reply = await preview(name, asked, _context(view), view.caller)
    except InvalidValue as error:
        return {"wrong": f"{error.message}: {error.hint}" if error.hint else error.message}
    return {"wrong": "", **cast("Mapping[str, object]", msgspec.json.decode(bytes(reply.body)))}


CANCEL = Action(
    name="notification-cancel",
    label="Cancel",
    title="Cancel the notification {notification}",
    explains="It will not be sent. A notification that was already sent cannot be recalled.",
    endpoint=cancel,
    call=lambda values: RouteCall(path={"id": values["notification"]}),
    done="The notification is cancelled.",
    of=("notification",),
    reach=lambda caller, _: check_caller(caller),
    danger=True,
)

PAGES = (
    DashboardPage(
        path="notifications",
        title="Notifications",
        template="notifications.html",
        fragments=("notifications",),
        read=read,
        permission=Permission.READ,
        reach=check_caller,
        params=("recipient", "channel", "status", "cursor"),
        actions=(CANCEL,),
        package="headway.systems.notifications",
    ),
    DashboardPage(
        path="notifications/templates",
        title="Message templates",
        template="message-templates.html",
        fragments=("templates",),
        read=read_templates,
        permission=Permission.OBSERVE,
        reach=check_caller,
        params=("template", "channel", "data", "cursor"),
        package="headway.systems.notifications",
    ),
)
"""The pages of this system."""
