"""Replies about jobs, described."""

from __future__ import annotations

from typing import Literal

from headway.contract.operate import Acted
from headway.contract.views import JobView, WhyView
from headway.server.replies.schema import and_more, page_model, reply

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
WHY = and_more(
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
    "What became of a move on one job.",
    id=(str, "The job."),
    answer=(Acted, '"asked": the job is held; it ends when its run or its deadline says so.'),
    state=(str | None, "Its state now; null for an unknown one."),
)
MOVED_ONE = reply(
    "MovedOne",
    "What became of a move.",
    id=(str, "The job."),
    answer=(
        Literal["done", "asked"],
        '"asked": the job is held; it ends when its run or its deadline says so.',
    ),
    state=(str, "Its state now."),
)
MOVED_MANY = reply(
    "MovedMany",
    "What became of a move on many jobs.",
    done=(int, "Moved."),
    asked=(int, "Held; each ends when its run or its deadline says so."),
    refused=(int, "The move does not apply to its state."),
    unknown=(int, "There is no such job that the caller sees."),
    fits=(int | None, "Of a dry move: how many fit, up to the limit; else null."),
    jobs=(list[MOVED] | None, "In the order of the ids; null for a move by filter."),
)
