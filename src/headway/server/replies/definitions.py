"""Replies about lanes, gates, closings and the timetable, described."""

from __future__ import annotations

from pydantic import BaseModel

from headway.contract.views import EntryView, GateState, LaneView, TrailView, WorkerView
from headway.runtime.latency import LaneLatency
from headway.server.replies.schema import and_more, page_model, reply, reply_model

_REVISION = (int, "Of the definitions; for If-Match.")


def _listing(name: str, doc: str, row: type[BaseModel], note: str) -> type[BaseModel]:
    """The model of what `listed` answers."""
    return reply(
        name,
        doc,
        rows=(list[row], note),
        cursor=(str | None, "Give it to the next call; null at the end."),
        revision=_REVISION,
        now=(int, "The store's time."),
    )


GATE = reply_model(GateState)
GATES = _listing(
    "Gates", "Gates by name.", GATE, "Those that are declared, capped, closed or held."
)
CLOSURE = reply(
    "Closure",
    "A gate that somebody closed.",
    gate=(str, "Its name."),
    until_at=(int | None, "When it opens by itself; null for when somebody opens it."),
    by=(str, "Who closed it."),
    reason=(str, "Why."),
)
CLOSURES = _listing(
    "Closures", "Closed gates, by name.", CLOSURE, "May be empty though there is a cursor."
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
LANES = _listing("Lanes", "Lanes by name.", LANE, "With what each holds.")
ENTRY = and_more(
    EntryView,
    "Entry",
    name=(str, "Of the entry."),
    when=(str, "Its schedule in words."),
    next_at=(list[int], "When it fires next; none while it is off."),
)
ENTRIES = _listing("Entries", "The timetable, by name.", ENTRY, "With the next fires of each.")
WORKERS = page_model(WorkerView)
TRAIL = page_model(TrailView)
