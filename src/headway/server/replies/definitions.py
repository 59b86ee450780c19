"""Replies about lanes, gates, closings and the timetable, described."""

from __future__ import annotations

from headway.contract.views import EntryView, GateState, LaneView, TrailView, WorkerView
from headway.runtime.latency import LaneLatency
from headway.server.replies.schema import and_more, page_model, reply, reply_model

_REVISION = (int, "Of the definitions; for If-Match.")
_NOW = (int, "The store's time.")
_CURSOR = (str | None, "Give it to the next call; null at the end.")

GATE = reply_model(GateState)
GATES = reply(
    "Gates",
    "Gates by name.",
    rows=(list[GATE], "Those that are declared, capped, closed or held."),
    cursor=_CURSOR,
    revision=_REVISION,
    now=_NOW,
)
CLOSURE = reply(
    "Closure",
    "A gate that somebody closed.",
    gate=(str, "Its name."),
    until_at=(int | None, "When it opens by itself; null for when somebody opens it."),
    by=(str, "Who closed it."),
    reason=(str, "Why."),
)
CLOSURES = reply(
    "Closures",
    "Closed gates, by name.",
    rows=(list[CLOSURE], "May be empty though there is a cursor."),
    cursor=_CURSOR,
    revision=_REVISION,
    now=_NOW,
)
CLOSED = reply(
    "Closed",
    "A closing that holds.",
    revision=_REVISION,
    gate=(str, "Its name."),
    until_at=(int | None, "When it opens by itself; null for when somebody opens it."),
)
RELEASED = reply("Released", "Whether a permit was taken.", released=(bool, "The job held one."))
LANE = and_more(
    LaneView,
    "Lane",
    unfinished=(int, "Jobs that are not final."),
    latency=(reply_model(LaneLatency) | None, "If it was asked for."),
)
LANES = reply(
    "Lanes",
    "Lanes by name.",
    rows=(list[LANE], "With what each holds."),
    cursor=_CURSOR,
    revision=_REVISION,
    now=_NOW,
)
ENTRY = and_more(
    EntryView,
    "Entry",
    name=(str, "Of the entry."),
    when=(str, "Its schedule in words."),
    next_at=(list[int], "When it fires next; none while it is off."),
)
ENTRIES = reply(
    "Entries",
    "The timetable, by name.",
    rows=(list[ENTRY], "With the next fires of each."),
    cursor=_CURSOR,
    revision=_REVISION,
    now=_NOW,
)
WORKERS = page_model(WorkerView)
TRAIL = page_model(TrailView)
