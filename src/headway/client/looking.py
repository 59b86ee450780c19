"""What a program sees of its jobs, and what it may do to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, TypeVar, Unpack, assert_never
from uuid import uuid4

from headway.client.connected import Connected
from headway.contract.operate import Acted, ActReply, ActRequest, Edit, Verb
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, Query, WhyQuery, WhyView
from headway.core.errors import InvalidState, InvalidValue, UnknownJob
from headway.core.state import State
from headway.runtime.encoding import encode

Answer = TypeVar("Answer")


class JobsAsked(TypedDict, total=False):
    """Which jobs; what is left out stands for any.

    Attributes:
        lane: only of this lane.
        tenant: only of this tenant.
        kind: only of this kind.
        states: only in these.
        key: only the job that has this key.
        subject: only about this.
        newest: newest arrival first.
        cursor: of the page before.
        limit: 1 to 1000.
    """

    lane: str
    tenant: str
    kind: str
    states: tuple[State, ...]
    key: str
    subject: str
    newest: bool
    cursor: str | None
    limit: int


class Looking(Connected):
    """Reads jobs, and makes an operator's moves on them."""

    def job(self, job: str) -> JobView | None:
        """A job and its whole record; None if there is none of this id."""
        return self.wait_for(self.job_async(job))

    async def job_async(self, job: str) -> JobView | None:
        """As `job`, for callers that can await."""
        return await self.remote.read(JobQuery(id=job))

    def jobs(self, **asked: Unpack[JobsAsked]) -> Page[JobView]:
        """A page of jobs, oldest arrival first.

        Args:
            asked: see `JobsAsked`.

        Returns:
            Up to `limit` jobs, and the cursor of the next page.
        """
        return self.wait_for(self.jobs_async(**asked))

    async def jobs_async(self, **asked: Unpack[JobsAsked]) -> Page[JobView]:
        """As `jobs`, for callers that can await."""
        return await self.remote.read(_jobs_query(asked))

    def why(self, job: str) -> WhyView | None:
        """Why a job stands where it stands; None if there is none of this id."""
        return self.wait_for(self.why_async(job))

    async def why_async(self, job: str) -> WhyView | None:
        """As `why`, for callers that can await."""
        return await self.remote.read(WhyQuery(id=job))

    def read(self, query: Query[Answer]) -> Answer:
        """Answers one of the contract's questions, such as `LanesQuery()`.

        Raises:
            CallerError: only a store can be asked that.
        """
        return self.wait_for(self.remote.read(query))

    async def read_async(self, query: Query[Answer]) -> Answer:
        """As `read`, for callers that can await."""
        return await self.remote.read(query)

    def cancel(self, job: str, *, reason: str = "") -> str | None:
        """Cancels a queued job, and asks a running or awaiting one to end.

        Args:
            job: its id.
            reason: stands on the trail.

        Returns:
            Its state now.

        Raises:
            UnknownJob: there is none.
            InvalidState: it is final.
        """
        return self.wait_for(self.cancel_async(job, reason=reason))

    async def cancel_async(self, job: str, *, reason: str = "") -> str | None:
        """As `cancel`, for callers that can await."""
        return await self._move(Verb.CANCEL, job, reason, Edit())

    def retry(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """Gives a dead or cancelled job a new life.

        Args:
            job: its id.
            reason: stands on the trail.
            args: new arguments, in place of all the old.

        Returns:
            Its state now.

        Raises:
            UnknownJob: there is none.
            InvalidState: it is neither dead nor cancelled.
        """
        return self.wait_for(self.retry_async(job, reason=reason, args=args))

    async def retry_async(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """As `retry`, for callers that can await."""
        edit = Edit() if args is None else Edit(args=encode("arguments", args))
        return await self._move(Verb.RETRY, job, reason, edit)

    async def _move(self, verb: Verb, job: str, reason: str, edit: Edit) -> str | None:
        request = ActRequest(
            request=uuid4().hex, ids=(job,), verb=verb, edit=edit, author="client", reason=reason
        )
        return _moved(verb, (await self.remote.act(request))[0])


def _jobs_query(asked: JobsAsked) -> JobsQuery:
    unknown = sorted(asked.keys() - JobsAsked.__annotations__.keys())
    if unknown:
        message = f"jobs are not asked for by {unknown[0]!r}"
        raise InvalidValue(message, hint=f"by {', '.join(JobsAsked.__annotations__)}")
    return JobsQuery(**asked)


def _moved(verb: Verb, reply: ActReply) -> str | None:
    match reply.answer:
        case Acted.DONE | Acted.ASKED:
            return reply.state
        case Acted.REFUSED:
            message = f"the job {reply.id} is {reply.state}: no {verb}"
            raise InvalidState(message)
        case Acted.UNKNOWN:
            message = f"there is no job {reply.id}"
            raise UnknownJob(message)
        case _:
            assert_never(reply.answer)
