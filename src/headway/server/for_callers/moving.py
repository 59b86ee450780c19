"""An operator's moves over HTTP: on jobs that the caller sees, once for each Idempotency-Key."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.views import JobsQuery
from headway.core.errors import InvalidState, PayloadTooLarge, UnknownJob
from headway.core.job import MAX_ARGS, MAX_BATCH, derived_id
from headway.core.state import FINAL, QUEUED, State
from headway.server.access.caller import Caller
from headway.server.asking import check_repeat_key
from headway.server.bodies.move import EditBody, FilterBody
from headway.server.for_callers.bounded_page import bounded_page
from headway.server.for_callers.sight import seen_of
from headway.server.service import Service

_encode = msgspec.json.Encoder(order="deterministic").encode

APPLIES: dict[Verb, tuple[State, ...]] = {
    Verb.CANCEL: tuple(one for one in State if one not in FINAL),
    Verb.RETRY: (State.DEAD,),
    Verb.RUN_NOW: tuple(one for one in State if one in QUEUED),
    Verb.EDIT: tuple(one for one in State if one in QUEUED),
    Verb.SUCCEED: tuple(one for one in State if one not in FINAL),
    Verb.KILL: tuple(one for one in State if one not in FINAL),
}
"""The states that a filter takes in where it names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """What is to be done, by whom and why.

    Attributes:
        verb: what.
        edit: with what changes.
        caller: by whom.
        reason: why.
        repeat: under which all repeats of the request are one; None if it may not be repeated.
    """

    verb: Verb
    edit: Edit
    caller: Caller
    reason: str
    repeat: str | None = None

    def under(self, key: str | None, what: object) -> Move:
        """The move of a request that has an Idempotency-Key; with another body it is another.

        Args:
            key: the header; None for none.
            what: all that the request says besides the verb, as it was given.

        Raises:
            InvalidValue: it is no key.
        """
        if key is None:
            return self
        digest = hashlib.sha256(_encode((self.verb, what))).hexdigest()
        repeat = derived_id("act", self.caller.id, check_repeat_key(key), digest)
        return replace(self, repeat=repeat)

    def request(self, ids: Sequence[str], step: int = 0) -> ActRequest:
        """The move on up to 1000 jobs."""
        name = str(uuid.uuid4()) if self.repeat is None else f"{self.repeat}.{step}"
        return ActRequest(
            request=name,
            ids=tuple(ids),
            verb=self.verb,
            edit=self.edit,
            author=self.caller.name,
            reason=self.reason,
        )


async def edit_of(service: Service, body: EditBody) -> Edit:
    """What to change.

    Raises:
        PayloadTooLarge: the arguments are above the limit.
    """
    args = None if body.args is None else msgspec.json.encode(body.args)
    if args is not None and len(args) > MAX_ARGS:
        message = f"the arguments have {len(args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, send a reference")
    due_at = None
    if body.due is not None:
        counts = body.due.at is None
        due_at = body.due.resolved(await service.now() if counts else 0)
    return Edit(priority=body.priority, due_at=due_at, args=args)


async def move_one(service: Service, move: Move, id: str) -> ActReply:  # noqa: A002  (the field's name)
    """Moves one job.

    Raises:
        UnknownJob: there is none that the caller sees.
        InvalidState: the move does not apply to its state.
    """
    reply = (await move_named(service, move, [id]))[0]
    if reply.answer is Acted.UNKNOWN:
        message = f"there is no job {id[:64]!r}"
        raise UnknownJob(message, hint="GET /v1/jobs lists them; final ones are kept for a time")
    if reply.answer is Acted.REFUSED:
        message = f"{move.verb} does not apply: the job is {reply.state}"
        raise InvalidState(message, hint="GET /v1/jobs/{id} shows what became of it")
    return reply


async def move_named(service: Service, move: Move, ids: Sequence[str]) -> list[ActReply]:
    """Moves the jobs named, a thousand a step; answers in the order of the ids."""
    replies: list[ActReply] = []
    for step, start in enumerate(range(0, len(ids), MAX_BATCH)):
        asked = ids[start : start + MAX_BATCH]
        seen = await seen_of(service, move.caller, asked)
        wanted = [one for one in dict.fromkeys(asked) if one in seen]
        acted = await service.store.act(move.request(wanted, step)) if wanted else []
        by_id = {one.id: one for one in acted}
        replies += [
            by_id.get(one) or ActReply(id=one, answer=Acted.UNKNOWN, state=None) for one in asked
        ]
    return replies


async def count_fitting(service: Service, move: Move, which: FilterBody, limit: int) -> int:
    """How many jobs fit a filter, up to a limit; nothing is written."""
    return sum([len(ids) async for ids in _fitting(service, move, which, limit)])


async def move_fitting(
    service: Service, move: Move, which: FilterBody, limit: int
) -> Counter[Acted]:
    """Moves the jobs that fit a filter, oldest arrival first.

    Args:
        service: whose store.
        move: what.
        which: the filter.
        limit: at most so many jobs.

    Returns:
        How many were moved, how many refused.
    """
    steps = _Steps(service, move)
    async for ids in _fitting(service, move, which, limit):
        if not await steps.take(ids):
            return steps.counts
    if move.repeat is not None:
        await steps.end()
    return steps.counts


class _Steps:
    """The steps of one request by filter; a repeat goes on where the first was cut off.

    What a request has moved fits no more when it is repeated, so that its pages are others; but
    the store knows what it answered to each step. A step without jobs says that it went to its
    end: a repeat then moves nothing more, whatever fits by then.

    Attributes:
        counts: how many were moved, how many refused.
    """

    def __init__(self, service: Service, move: Move) -> None:
        self.counts: Counter[Acted] = Counter()
        self._service = service
        self._move = move
        self._step = 0
        self._done: set[str] = set()

    async def take(self, ids: Sequence[str]) -> bool:
        """Moves a page of jobs; False if the request went to its end before."""
        while left := [one for one in ids if one not in self._done]:
            if not await self._act(left):
                return False
        return True

    async def end(self) -> None:
        """Counts what was answered before, and notes that the request went to its end."""
        while await self._act(()):
            pass

    async def _act(self, ids: Sequence[str]) -> bool:
        replies = await self._service.store.act(self._move.request(ids, self._step))
        self._step += 1
        self._done.update(one.id for one in replies)
        self.counts.update(one.answer for one in replies)
        return bool(replies)


async def _fitting(
    service: Service, move: Move, which: FilterBody, limit: int
) -> AsyncIterator[list[str]]:
    """The ids of the jobs that fit, page after page; those that the caller does not see left out.

    Raises:
        InvalidValue: the caller has several tenants, and none was named.
    """
    caller, cursor, left = move.caller, None, limit
    if which.lane is not None:
        caller.check_lane(which.lane)
    query = JobsQuery(
        lane=which.lane,
        tenant=caller.tenant(which.tenant),
        kind=which.kind,
        subject=which.subject,
        key=which.key,
        states=tuple(which.states or APPLIES[move.verb]),
    )
    while left > 0:
        wanted = replace(query, cursor=cursor, limit=min(left, MAX_BATCH))
        page = await bounded_page(service.store, wanted)
        states = frozenset(query.states)
        # By key the store goes to the job directly, and looks at nothing else.
        ids = [job.id for job in page.rows if caller.sees(job) and job.state in states]
        if ids:
            yield ids
        left -= len(ids)
        cursor = page.cursor
        if cursor is None:
            return
