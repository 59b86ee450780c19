"""`headway cancel`, `headway retry`: operators' actions on jobs, by id or filter."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.commands.send import read_object
from headway.cli.failures import NO
from headway.cli.options import PAGE, JobFilter, Signed, Yes
from headway.cli.progress import Meter, progress
from headway.cli.session import CommandSession
from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.core.naming import counted
from headway.core.state import FINAL, State


def move_jobs(
    session: CommandSession, move: ActRequest, ids: Sequence[str], wanted: JobFilter, *, yes: bool
) -> None:
    """Act on the given jobs, or on all that match the filter, and print the outcome.

    Args:
        move: The action; its jobs and request id are filled in for each step.
        ids: Ids of the jobs; empty to use the filter.
        wanted: The filter, including the states to which the action applies.

    Raises:
        InvalidValue: neither or both were given, or the action was not confirmed.
        Exit: with code 1, a job given by id is unknown or refused the action.
    """
    if bool(ids) == wanted.has_criteria:
        message = f"no job to {move.verb} was named"
        hint = "pass ids, or options such as --lane; --state alone is not enough"
        if ids:
            message, hint = "jobs were named together with a filter", "pass either of them"
        raise InvalidValue(message, hint=hint)
    if ids:
        replies = session.with_store(lambda store: _on_ids(store, move, ids))
        _print_outcome(session, Counter(reply.answer for reply in replies), replies)
        if any(reply.answer in {Acted.REFUSED, Acted.UNKNOWN} for reply in replies):
            raise typer.Exit(NO)
        return
    _ask_first(session, move, wanted, yes=yes)
    with progress(session.terminal, f"{move.verb} jobs") as meter:
        counts = session.with_store(lambda store: _on_filter(store, move, wanted, meter))
    _print_outcome(session, counts, None)
    if not counts:
        session.notes(session.with_store(wanted.unknown_names))


async def _act(store: Store, move: ActRequest, ids: Sequence[str]) -> list[ActReply]:
    """Act on up to 1000 jobs; return the replies in the order of the ids."""
    return await store.act(replace(move, request=str(uuid.uuid4()), ids=tuple(ids)))


async def _on_ids(store: Store, move: ActRequest, ids: Sequence[str]) -> list[ActReply]:
    replies: list[ActReply] = []
    for start in range(0, len(ids), PAGE):
        replies += await _act(store, move, ids[start : start + PAGE])
    return replies


async def _on_filter(
    store: Store, move: ActRequest, wanted: JobFilter, meter: Meter
) -> Counter[Acted]:
    counts: Counter[Acted] = Counter()
    # A job that has been claimed since its page was read, for example, no longer matches.
    move = replace(move, states=wanted.query.states)
    async for page in wanted.pages(store):
        if page.rows:
            replies = await _act(store, move, [job.id for job in page.rows])
            counts.update(reply.answer for reply in replies)
            meter(counts.total())
    return counts


def _ask_first(session: CommandSession, move: ActRequest, wanted: JobFilter, *, yes: bool) -> None:
    number = "" if yes else session.with_store(lambda store: _how_many(store, wanted))
    jobs = counted(number, "job")
    if number and not session.terminal.confirmed(f"{move.verb} {jobs}?"):
        message = f"to {move.verb} {jobs} needs confirmation"
        raise InvalidValue(message, hint="answer y, or pass --yes")


async def _how_many(store: Store, wanted: JobFilter) -> str:
    """Return how many jobs match, such as "3" or "1000 or more"; "" for none."""
    async for page in wanted.pages(store):
        if page.rows:
            return f"{len(page.rows)}{' or more' if page.cursor else ''}"
    return ""


def _print_outcome(
    session: CommandSession, counts: Counter[Acted], replies: list[ActReply] | None
) -> None:
    if session.json:
        document: dict[str, object] = {answer.value: counts[answer] for answer in Acted}
        if replies is not None:
            document["jobs"] = [
                {"id": one.id, "answer": one.answer.value, "state": one.state} for one in replies
            ]
        session.terminal.document(document)
        return
    for one in replies or []:
        session.terminal.line(f"{one.id}  {_WORDS[one.answer]}{_state(one)}")
    if replies is None or len(replies) > 1:
        said = ", ".join(f"{counts[answer]} {answer}" for answer in Acted if counts[answer])
        session.terminal.line(said or "no jobs match")


_WORDS = {
    Acted.DONE: "done",
    Acted.ASKED: "asked: it is cancelled when its run or its deadline ends",
    Acted.REFUSED: "refused",
    Acted.UNKNOWN: "unknown",
}


def _state(reply: ActReply) -> str:
    if reply.state is None:
        return ""
    return f": the job is {reply.state}" if reply.answer is Acted.REFUSED else f", {reply.state}"


def _move(session: CommandSession, verb: Verb, signed: Signed) -> ActRequest:
    """Return an action whose jobs are filled in later."""
    author = session.author(signed.author)
    return ActRequest(request="", ids=(), verb=verb, author=author, reason=signed.reason)


cancel_app = new_command()


@command(cancel_app)
def cancel(
    session: CommandSession,
    wanted: JobFilter,
    signed: Signed,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the jobs.")] = None,
    yes: Yes = False,
) -> None:
    """Cancel jobs by id, or all non-final jobs that match a filter.

    A queued job is cancelled at once. For a running or awaiting job, the worker is notified, and
    the job becomes cancelled when its run ends or its deadline passes. Exits with 1 if a job given
    by id is unknown or already final.
    """
    if wanted.state is None:
        wanted = replace(wanted, state=[state for state in State if state not in FINAL])
    move_jobs(session, _move(session, Verb.CANCEL, signed), ids or [], wanted, yes=yes)


retry_app = new_command()


@command(retry_app)
def retry(
    session: CommandSession,
    wanted: JobFilter,
    signed: Signed,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the jobs.")] = None,
    args: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="New arguments; they replace all the old ones."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Retry dead or cancelled jobs by id, or all dead jobs that match a filter.

    The job keeps its id and past runs, and gets all its attempts again. A filter includes cancelled
    jobs only with --state cancelled. Exits with 1 if a job given by id is unknown, or neither dead
    nor cancelled.
    """
    if wanted.state is None:
        wanted = replace(wanted, state=[State.DEAD])
    edit = Edit(args=None if args is None else read_object("--args", args))
    move = replace(_move(session, Verb.RETRY, signed), edit=edit)
    move_jobs(session, move, ids or [], wanted, yes=yes)
