"""Models of replies about jobs, lanes, gates, closings and the timetable."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from headway.contract.operate import Acted
from headway.contract.views import (
    EntryView,
    GateState,
    JobView,
    LaneView,
    TrailView,
    WaitingFlow,
    WhyView,
    WorkerView,
)
from headway.runtime.latency import LaneLatency
from headway.server.replies.reply import extended_model, page_model, reply, reply_model

_REVISION = (int, "Of the definitions; for If-Match.")


def _listing(name: str, doc: str, row: type[BaseModel], note: str) -> type[BaseModel]:
    """Return the model of what `listed` answers."""
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
    "A closed gate.",
    gate=(str, "Its name."),
    until_at=(int | None, "When it opens by itself; null if it must be opened."),
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
    until_at=(int | None, "When it opens by itself; null if it must be opened."),
)
RELEASED = reply("Released", "Whether a permit was taken.", released=(bool, "The job held one."))
LANE = extended_model(
    LaneView,
    "Lane",
    unfinished=(int, "Jobs that are not final."),
    latency=(reply_model(LaneLatency) | None, "If it was asked for."),
)
LANES = _listing("Lanes", "Lanes by name.", LANE, "With what each holds.")
ENTRY = extended_model(
    EntryView,
    "Entry",
    name=(str, "Of the entry."),
    when=(str, "Its schedule in words."),
    next_at=(list[int], "When it fires next; none while it is off."),
)
ENTRIES = _listing("Entries", "The timetable, by name.", ENTRY, "With the next fires of each.")
WORKERS = page_model(WorkerView)
TRAIL = page_model(TrailView)


MADE = reply(
    "Made",
    "Which job exists now.",
    id=(str, "The job: the one asked for, or the one that has its key."),
    created=(bool, "Whether this call made it."),
)
MADE_MANY = reply(
    "MadeMany", "Which jobs exist now, in the order asked for.", jobs=(list[MADE], "")
)
JOBS = page_model(JobView)
FLOWS = page_model(WaitingFlow)
WHY = extended_model(
    WhyView,
    "Why",
    kind=(str, "Of the job."),
    lane=(str, "Of the job."),
    tenant=(str, "Of the job."),
    due_at=(int, "When the job is due."),
    blocked=(bool, "Whether it waits for anything but a free handler."),
)
MOVED = reply(
    "Moved",
    "The result of a move on one job.",
    id=(str, "The job."),
    answer=(Acted, '"asked": the job is held; it ends when its run or its deadline says so.'),
    state=(str | None, "Its state now; null for an unknown one."),
)
MOVED_ONE = reply(
    "MovedOne",
    "The result of a move.",
    id=(str, "The job."),
    answer=(
        Literal["done", "asked"],
        '"asked": the job is held; it ends when its run or its deadline says so.',
    ),
    state=(str, "Its state now."),
)
MOVED_MANY = reply(
    "MovedMany",
    "The result of a move on many jobs.",
    done=(int, "Moved."),
    asked=(int, "Held; each ends when its run or its deadline says so."),
    refused=(int, "The move does not apply to its state."),
    unknown=(int, "There is no such job that the caller sees."),
    fits=(int | None, "Of a dry move: how many fit, up to the limit; else null."),
    jobs=(list[MOVED] | None, "In the order of the ids; null for a move by filter."),
)
