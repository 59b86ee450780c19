"""Operations on single or many jobs: cancel, retry, run now, edit, succeed, kill."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
from fastapi import Response

from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.views import JobsQuery
from headway.core.errors import InvalidState, InvalidValue, PayloadTooLarge, UnknownJob
from headway.core.job import MAX_ARGS, MAX_BATCH, derived_id
from headway.core.state import FINAL, QUEUED, State
from headway.server.access import needs
from headway.server.bodies.jobs import EditBody, FilterBody, MovesBody, ReasonBody
from headway.server.caller import Caller, Permission
from headway.server.finding import bounded_page, ended_since
from headway.server.paging import RepeatKey, check_repeat_key
from headway.server.replies import MOVED_MANY, MOVED_ONE, answer
from headway.server.routing import TheService, router
from headway.server.service import Service
from headway.server.visibility import visible_ids

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, object]).decode

APPLIES: dict[Verb, tuple[State, ...]] = {
    Verb.CANCEL: tuple(one for one in State if one not in FINAL),
    Verb.RETRY: (State.DEAD,),
    Verb.RUN_NOW: tuple(one for one in State if one in QUEUED),
    Verb.EDIT: tuple(one for one in State if one in QUEUED),
    Verb.SUCCEED: tuple(one for one in State if one not in FINAL),
    Verb.KILL: tuple(one for one in State if one not in FINAL),
}
"""The states that a filter without states applies to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """An operation on jobs, its author and the reason.

    Attributes:
        repeat: id under which repeats of the request are applied once; None without an
            Idempotency-Key.
        states: those of the jobs; a job in another state by now is refused. Empty for any.
    """

    verb: Verb
    edit: Edit
    caller: Caller
    reason: str
    repeat: str | None = None
    states: tuple[State, ...] = ()

    def under(self, key: str | None, what: object) -> Move:
        """Return the operation with `repeat` derived from an Idempotency-Key and the request.

        Args:
            what: the content of the request, except the verb.
        """
        if key is None:
            return self
        digest = hashlib.sha256(_encode((self.verb, what))).hexdigest()
        repeat = derived_id("act", self.caller.id, check_repeat_key(key), digest)
        return replace(self, repeat=repeat)

    def request(self, ids: Sequence[str], step: int = 0) -> ActRequest:
        """Return the request to the store for up to 1000 jobs."""
        name = str(uuid.uuid4()) if self.repeat is None else f"{self.repeat}.{step}"
        return ActRequest(
            request=name,
            ids=tuple(ids),
            verb=self.verb,
            edit=self.edit,
            states=self.states,
            author=self.caller.name,
            reason=self.reason,
        )


async def edit_of(service: Service, body: EditBody) -> Edit:
    """Return the changes of a body.

    Raises:
        PayloadTooLarge: the arguments are above the limit.
    """
    args = None if body.args is None else msgspec.json.encode(body.args)
    if args is not None and len(args) > MAX_ARGS:
        message = f"the arguments have {len(args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, and send a reference")
    due_at = None
    if body.due is not None:
        counts = body.due.at is None
        due_at = body.due.resolved(await service.now() if counts else 0)
    return Edit(priority=body.priority, due_at=due_at, args=args)


async def move_one(service: Service, move: Move, id: str) -> ActReply:
    """Move one job.

    Raises:
        UnknownJob: there is no such job, or the caller does not see it.
        InvalidState: the move does not apply to the job's state.
    """
    reply = (await move_named(service, move, [id]))[0]
    if reply.answer is Acted.UNKNOWN:
        message = f"there is no job {id[:64]!r}"
        raise UnknownJob(message, hint="GET /v1/jobs lists them; final ones are kept for a while")
    if reply.answer is Acted.REFUSED:
        message = f"{move.verb} does not apply: the job is {reply.state}"
        raise InvalidState(message, hint="GET /v1/jobs/{id} shows what happened to it")
    return reply


async def move_named(service: Service, move: Move, ids: Sequence[str]) -> list[ActReply]:
    """Move jobs by id in batches of a thousand; return replies in the order of the ids.

    Raises:
        InvalidArguments: new arguments do not match a kind's handler; its batch moved nothing.
    """
    replies: list[ActReply] = []
    for step, start in enumerate(range(0, len(ids), MAX_BATCH)):
        asked = ids[start : start + MAX_BATCH]
        seen = await visible_ids(service, move.caller, asked)
        wanted = [one for one in dict.fromkeys(asked) if one in seen]
        await _check_args(service, move, wanted)
        acted = await service.store.act(move.request(wanted, step)) if wanted else []
        by_id = {one.id: one for one in acted}
        replies += [
            by_id.get(one) or ActReply(id=one, answer=Acted.UNKNOWN, state=None) for one in asked
        ]
    return replies


async def _check_args(service: Service, move: Move, ids: Sequence[str]) -> None:
    """Check new arguments for jobs whose kinds the server's App declares."""
    if move.edit.args is None or service.app is None or not ids:
        return
    page = await service.store.read(JobsQuery(ids=tuple(ids), limit=MAX_BATCH))
    for name in sorted({job.kind for job in page.rows}):
        kind = service.app.kinds.get(name)
        if kind is not None:
            kind.check_arguments(_decode(move.edit.args))


async def move_matching(
    service: Service, move: Move, which: FilterBody, limit: int
) -> tuple[Counter[Acted], bool]:
    """Move up to `limit` jobs that match a filter, oldest arrival first.

    Returns:
        The number of jobs by result, and whether more jobs match.
    """
    move = replace(move, states=_states(move, which))
    steps, more = _Steps(service, move, limit), False
    async for ids in _matching(service, move, which, limit + 1):
        if not await steps.take(ids):
            more = steps.room == 0
            break
    if move.repeat is not None:
        await steps.end()
    return steps.counts, more


class _Steps:
    """The steps of a request by filter; a repeat continues where the first one was interrupted.

    Moved jobs no longer match when the request is repeated, so its pages differ; but the store
    remembers its reply to each step. A final step without jobs records that the request was
    completed: a repeat then moves nothing more, whatever matches by then.

    Attributes:
        counts: number of jobs by result.
    """

    def __init__(self, service: Service, move: Move, limit: int) -> None:
        self.counts: Counter[Acted] = Counter()
        self._service = service
        self._move = move
        self._limit = limit
        self._step = 0
        self._done: set[str] = set()
        self._completed = False

    @property
    def room(self) -> int:
        """How many more jobs the request may move."""
        return max(0, self._limit - self.counts.total())

    async def take(self, ids: Sequence[str]) -> bool:
        """Move a page of jobs; return False if there is no room, or the request was completed."""
        await _check_args(self._service, self._move, ids)
        while left := [one for one in ids if one not in self._done]:
            if self._completed or not self.room:
                return False
            await self._act(left[: self.room])
        return True

    async def end(self) -> None:
        """Count the remaining steps of an earlier request, and record that it is completed."""
        while not self._completed:
            await self._act(())

    async def _act(self, ids: Sequence[str]) -> None:
        replies = await self._service.store.act(self._move.request(ids, self._step))
        self._step += 1
        self._done.update(one.id for one in replies)
        self.counts.update(one.answer for one in replies)
        self._completed = not replies


def _states(move: Move, which: FilterBody) -> tuple[State, ...]:
    return tuple(which.states or APPLIES[move.verb])


async def _matching(
    service: Service, move: Move, which: FilterBody, limit: int
) -> AsyncIterator[list[str]]:
    """Yield pages of ids of the matching jobs that the caller sees."""
    caller, cursor, left = move.caller, None, limit
    since = None if which.finished_since is None else which.finished_since.ago(await service.now())
    if which.lane is not None:
        caller.check_lane(which.lane)
    query = JobsQuery(
        lane=which.lane,
        tenant=caller.tenant(which.tenant),
        kind=which.kind,
        subject=which.subject,
        key=which.key,
        states=_states(move, which),
    )
    while left > 0:
        wanted = replace(query, cursor=cursor, limit=min(left, MAX_BATCH))
        page = await bounded_page(service.store, wanted)
        ids = [job.id for job in page.rows if caller.sees(job) and ended_since(job, since)]
        if ids:
            yield ids
        left -= len(ids)
        cursor = page.cursor
        if cursor is None:
            return


ROUTES = router("moves", prefix="/v1")

Operator = Annotated[Caller, needs(Permission.ACT)]
_NOTHING = ReasonBody()


def _operate(verb: Verb, summary: str, description: str) -> Callable[..., Awaitable[Response]]:
    """Add the route of an operation that takes only a reason, and return its function."""

    async def operate(
        id: str,
        service: TheService,
        caller: Operator,
        body: ReasonBody = _NOTHING,
        repeat_key: RepeatKey = None,
    ) -> Response:
        return await _one(service, _move(verb, caller, body), id, body, repeat_key)

    ROUTES.add_api_route(
        f"/jobs/{{id}}/{verb.replace('_', '-')}",
        operate,
        methods=["POST"],
        name=verb,
        operation_id=verb,
        summary=summary,
        description=description,
        response_model=MOVED_ONE,
    )
    return operate


cancel = _operate(
    Verb.CANCEL,
    "Cancel a job",
    "Cancel a queued job at once.\n\n"
    "For a running or awaiting job, its worker is notified, and the job is cancelled when its run "
    "or\n"
    "its deadline ends. For a final job, the reply is 409.",
)


@ROUTES.post("/jobs/{id}/retry", summary="Retry a job", response_model=MOVED_ONE)
async def retry(
    id: str,
    service: TheService,
    caller: Operator,
    body: EditBody = EditBody(),  # noqa: B008  (frozen)
    repeat_key: RepeatKey = None,
) -> Response:
    """Give a dead or cancelled job a new life, optionally with other arguments.

    It keeps its id and its runs, and gets all its attempts again. In any other state, the reply is
    409.
    """
    edit = await edit_of(service, body)
    return await _one(service, _move(Verb.RETRY, caller, body, edit), id, body, repeat_key)


run_now = _operate(
    Verb.RUN_NOW,
    "Make a job due now",
    "Make a queued job due at once; it must still pass every gate.",
)


@ROUTES.post("/jobs/{id}/edit", summary="Change a job", response_model=MOVED_ONE)
async def edit(
    id: str, body: EditBody, service: TheService, caller: Operator, repeat_key: RepeatKey = None
) -> Response:
    """Change the priority, the due time or the arguments of a queued job.

    Raises:
        InvalidValue: the body changes nothing.
    """
    if body.says_nothing:
        message = "the body changes nothing"
        raise InvalidValue(message, hint="pass args, priority or due")
    change = await edit_of(service, body)
    return await _one(service, _move(Verb.EDIT, caller, body, change), id, body, repeat_key)


_operate(
    Verb.SUCCEED,
    "Mark a job as succeeded",
    "Force a job that is not final to end as succeeded; its permits are returned.",
)


_operate(
    Verb.KILL,
    "Mark a job as dead",
    "Force a job that is not final to end as dead; its permits are returned.",
)


@ROUTES.post("/moves", summary="Move many jobs", response_model=MOVED_MANY)
async def move_jobs(
    body: MovesBody,
    service: TheService,
    caller: Operator,
    repeat_key: RepeatKey = None,
) -> Response:
    """Apply one move to the jobs listed, or to those that match a filter.

    Jobs that the caller does not see count as unknown. With a filter, at most `limit` jobs are
    moved, oldest arrivals first; if `more` is true, repeat the request to move the next ones. `dry`
    only counts how many match. With the `Idempotency-Key` header, a repeat returns the result of
    the first request, and continues where that was interrupted; to move more, use another key.
    """
    edit = await edit_of(service, body)
    move = _move(body.move, caller, body, edit).under(repeat_key, body.model_dump())
    if body.filter is None:
        replies = await move_named(service, move, body.ids or ())
        return answer(_outcome_body(Counter(one.answer for one in replies), jobs=replies))
    if body.dry:
        pages = _matching(service, move, body.filter, body.limit + 1)
        fits = sum([len(ids) async for ids in pages])
        return answer(_outcome_body(Counter(), fits=min(fits, body.limit), more=fits > body.limit))
    counts, more = await move_matching(service, move, body.filter, body.limit)
    return answer(_outcome_body(counts, more=more))


def _move(verb: Verb, caller: Caller, body: ReasonBody, edit: Edit | None = None) -> Move:
    return Move(verb=verb, edit=edit or Edit(), caller=caller, reason=body.reason)


async def _one(
    service: Service, move: Move, id: str, body: ReasonBody, repeat_key: str | None
) -> Response:
    content = (id, body.model_dump())
    return answer(await move_one(service, move.under(repeat_key, content), id))


def _outcome_body(
    counts: Counter[Acted],
    *,
    jobs: list[ActReply] | None = None,
    fits: int | None = None,
    more: bool | None = None,
) -> dict[str, object]:
    return {
        **{str(one): counts[one] for one in Acted},
        "fits": fits,
        "more": more,
        "jobs": jobs,
    }
