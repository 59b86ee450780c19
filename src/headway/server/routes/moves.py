"""Moves: what an operator does with jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated

from fastapi import Response

from headway.contract.operate import Acted, ActReply, Edit, Verb
from headway.core.errors import InvalidValue
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import RepeatKey
from headway.server.bodies.move import EditBody, MovesBody, ReasonBody
from headway.server.for_callers.moving import (
    Move,
    count_fitting,
    edit_of,
    move_fitting,
    move_named,
    move_one,
)
from headway.server.replies.answer import answer
from headway.server.replies.jobs import MOVED_MANY, MOVED_ONE
from headway.server.routes.router import TheService, router
from headway.server.service import Service

ROUTES = router("moves", prefix="/v1")

Operator = Annotated[Caller, needs(Permission.ACT)]
_NOTHING = ReasonBody()


@ROUTES.post(
    "/jobs/{id}/cancel", operation_id="cancel", summary="Cancel a job", response_model=MOVED_ONE
)
async def cancel(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Operator,
    body: ReasonBody = _NOTHING,
    repeat_key: RepeatKey = None,
) -> Response:
    """A queued job is cancelled at once.

    A running or awaiting one is asked: its worker is told, and it ends cancelled when its run or
    its deadline ends. A final one is refused with 409.
    """
    return await _one(service, _move(Verb.CANCEL, caller, body), id, body, repeat_key)


@ROUTES.post(
    "/jobs/{id}/retry", operation_id="retry", summary="Retry a job", response_model=MOVED_ONE
)
async def retry(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Operator,
    body: EditBody = EditBody(),  # noqa: B008  (frozen)
    repeat_key: RepeatKey = None,
) -> Response:
    """Gives a dead or cancelled job a new life, also with other arguments.

    It keeps its id and its runs, and has all its attempts again. In any other state: 409.
    """
    edit = await edit_of(service, body)
    return await _one(service, _move(Verb.RETRY, caller, body, edit), id, body, repeat_key)


@ROUTES.post(
    "/jobs/{id}/run-now",
    operation_id="run_now",
    summary="Make a job due now",
    response_model=MOVED_ONE,
)
async def run_now(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Operator,
    body: ReasonBody = _NOTHING,
    repeat_key: RepeatKey = None,
) -> Response:
    """Makes a queued job due at once; every gate still holds."""
    return await _one(service, _move(Verb.RUN_NOW, caller, body), id, body, repeat_key)


@ROUTES.post(
    "/jobs/{id}/edit", operation_id="edit", summary="Change a job", response_model=MOVED_ONE
)
async def edit(
    id: str,  # noqa: A002  (the path's word)
    body: EditBody,
    service: TheService,
    caller: Operator,
    repeat_key: RepeatKey = None,
) -> Response:
    """Changes the priority, the due time or the arguments of a queued job.

    Raises:
        InvalidValue: nothing to change was given.
    """
    if body.says_nothing:
        message = "nothing to change was given"
        raise InvalidValue(message, hint="args, priority or due")
    change = await edit_of(service, body)
    return await _one(service, _move(Verb.EDIT, caller, body, change), id, body, repeat_key)


@ROUTES.post(
    "/jobs/{id}/succeed",
    operation_id="succeed",
    summary="Say that a job succeeded",
    response_model=MOVED_ONE,
)
async def succeed(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Operator,
    body: ReasonBody = _NOTHING,
    repeat_key: RepeatKey = None,
) -> Response:
    """Ends a job that is not final as succeeded, by force; its permits are given back."""
    return await _one(service, _move(Verb.SUCCEED, caller, body), id, body, repeat_key)


@ROUTES.post(
    "/jobs/{id}/kill",
    operation_id="kill",
    summary="Say that a job is dead",
    response_model=MOVED_ONE,
)
async def kill(
    id: str,  # noqa: A002  (the path's word)
    service: TheService,
    caller: Operator,
    body: ReasonBody = _NOTHING,
    repeat_key: RepeatKey = None,
) -> Response:
    """Ends a job that is not final as dead, by force; its permits are given back."""
    return await _one(service, _move(Verb.KILL, caller, body), id, body, repeat_key)


@ROUTES.post(
    "/moves",
    operation_id="move_jobs",
    summary="One move on many jobs",
    response_model=MOVED_MANY,
)
async def moves(
    body: MovesBody,
    service: TheService,
    caller: Operator,
    repeat_key: RepeatKey = None,
) -> Response:
    """Does one move on the jobs named, or on those that fit a filter.

    Jobs that the caller does not see count as unknown. By filter at most `limit` jobs are moved,
    oldest arrival first; ask again for more. `dry` only counts how many fit. With the header
    `Idempotency-Key` a repeat tells what the first did, and goes on where it was cut off.
    """
    edit = await edit_of(service, body)
    move = _move(body.move, caller, body, edit).under(repeat_key, body.model_dump())
    if body.filter is None:
        replies = await move_named(service, move, body.ids or ())
        return answer(_told(Counter(one.answer for one in replies), jobs=replies))
    if body.dry:
        fits = await count_fitting(service, move, body.filter, body.limit)
        return answer(_told(Counter(), fits=fits))
    return answer(_told(await move_fitting(service, move, body.filter, body.limit)))


def _move(verb: Verb, caller: Caller, body: ReasonBody, edit: Edit | None = None) -> Move:
    return Move(verb=verb, edit=edit or Edit(), caller=caller, reason=body.reason)


async def _one(
    service: Service,
    move: Move,
    id: str,  # noqa: A002  (the path's word)
    body: ReasonBody,
    repeat_key: str | None,
) -> Response:
    said = (id, body.model_dump())
    return answer(asdict(await move_one(service, move.under(repeat_key, said), id)))


def _told(
    counts: Counter[Acted], *, jobs: list[ActReply] | None = None, fits: int | None = None
) -> dict[str, object]:
    return {
        **{str(one): counts[one] for one in Acted},
        "fits": fits,
        "jobs": jobs,
    }
