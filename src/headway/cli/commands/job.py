"""`headway job`: one job and its whole record."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.local_clock import rough
from headway.cli.session import Session
from headway.contract.views import JobQuery, JobView, RunView
from headway.core.errors import UnknownJob
from headway.runtime.records import job_record

app = new_command()

UNBOUNDED = 1_000
"""A kind that allows so many attempts decides by itself which is the last: no number says it."""

_RUN_COLUMNS = (
    "RUN", "TRY", "STAGE", "STARTED", "HANDED OVER", "ENDED", "OUTCOME", "PERMITS", "ERROR",
)  # fmt: skip


@command(app)
def job(session: Session, id: Annotated[str, typer.Argument(help="The job's id.")]) -> None:  # noqa: A002  (the argument's name in the help)
    """Shows a job: what it is, its runs, its trail.

    With --json: the fields of `headway export`, with the trail.

    Raises:
        UnknownJob: there is no such job.
    """
    found = session.ask(JobQuery(id=id))
    if found is None:
        message = f"there is no job {id!r}"
        raise UnknownJob(message, hint="headway jobs lists them; final ones are kept for a time")
    if session.json:
        session.terminal.document(job_record(found))
        return
    session.terminal.facts(_facts(session, found))
    if found.runs:
        session.terminal.line("")
        session.terminal.table(
            _RUN_COLUMNS,
            [_run(session, run) for run in found.runs],
            empty="",
        )
    if found.trail:
        session.terminal.line("")
        session.terminal.table(
            ["AT", "WHAT", "BY", "REASON"],
            [(session.clock.at(n.at), n.what, n.author, n.reason) for n in found.trail],
            empty="",
        )
    lines = found.error.rstrip().splitlines()
    if len(lines) > 1:
        session.terminal.line("")
        for line in lines[1:]:
            session.terminal.line(line, "dim")


def _facts(session: Session, job: JobView) -> list[tuple[str, str]]:
    at = session.clock.at
    gates = ", ".join(
        use.name if use.amount == 1 else f"{use.name} ({use.amount})" for use in job.gates
    )
    asked = ", cancel requested" if job.cancel_requested else ""
    doubt = ", in doubt" if job.in_doubt else ""
    return [
        ("id", job.id),
        ("kind", job.kind),
        ("state", f"{job.shown}{asked}{doubt}"),
        ("reason", job.reason),
        ("last error", _first_line(job.error)),
        ("lane", job.lane),
        ("tenant", job.tenant),
        ("subject", job.subject or ""),
        ("stage", job.stage),
        ("priority", str(job.priority)),
        ("due", at(job.due_at)),
        ("created", at(job.created_at)),
        ("expires", at(job.expires_at)),
        ("deadline", at(job.deadline_at)),
        ("finished", at(job.finished_at)),
        ("gates", gates),
        ("parked at", job.parked_at or ""),
        ("key", job.key or ""),
        ("timetable", job.entry or ""),
        ("attempt", _attempt(job)),
        ("life", str(job.life) if job.life > 1 else ""),
        ("worker", job.worker or ""),
        ("arguments", job.args.decode(errors="replace")),
        ("progress", (job.progress or b"").decode(errors="replace")),
        ("result", (job.result or b"").decode(errors="replace")),
        *_cascade(job),
    ]


def _attempt(job: JobView) -> str:
    bound = job.policy.retry.attempts
    return str(job.attempt) if bound >= UNBOUNDED else f"{job.attempt} of {bound}"


def _cascade(job: JobView) -> list[tuple[str, str]]:
    if job.cascade is None:
        return []
    return [
        ("whose turn", job.cascade.turn),
        ("to be asked", ", ".join(job.cascade.left)),
        ("asked", ", ".join(f"{one.candidate}: {one.answer}" for one in job.cascade.asked)),
    ]


def _run(session: Session, run: RunView) -> list[str]:
    permits = ", ".join(f"{gate}={who}" if who else gate for gate, who in run.permits.items())
    ended = session.clock.at(run.ended_at, exact=True)
    if run.ended_at is not None:
        ended = f"{ended} (after {rough(run.ended_at - run.claimed_at)})"
    return [
        str(run.run),
        str(run.attempt),
        run.stage,
        session.clock.at(run.claimed_at, exact=True),
        session.clock.at(run.handed_at, exact=True),
        ended,
        run.outcome,
        permits,
        _first_line(run.error),
    ]


def _first_line(error: str) -> str:
    """What went wrong; the lines after it say where."""
    return next(iter(error.splitlines()), "")[:200]
