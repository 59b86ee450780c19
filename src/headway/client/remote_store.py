"""A server as a store: the operations that workers and producers need, over HTTP."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeVar, cast
from uuid import uuid4

import msgspec

from headway.client.address import ServerAddress
from headway.client.calls import HttpCall, HttpCalls, HttpReply
from headway.client.poller import WorkerPoller
from headway.client.queries import ClaimResponse, read_claim, read_record, remote_query
from headway.client.requests import (
    DECLARED,
    Fields,
    definition,
    filled,
    job_body,
    path_part,
    read_sent,
)
from headway.client.work_requests import (
    beat_body,
    read_beat,
    read_verdicts,
    request_call,
    settle_call,
    signal_body,
)
from headway.contract.claims import (
    BeatReply,
    BeatRequest,
    Claimed,
    ClaimReply,
    ClaimRequest,
    SweepReply,
)
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import Released, SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import InFlight, Sent
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, Query, WhyQuery
from headway.core.check import is_job_id
from headway.core.errors import (
    CallerError,
    Forbidden,
    HeadwayError,
    InvalidValue,
    StoreUnavailable,
    TooManyRequests,
    UnknownJob,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.runtime.event_loop import Background
from headway.runtime.timing import Timing

MOST_WORKERS = 1_000
"""Most workers whose pollers are kept; the oldest is dropped."""
MOST_IDS = 100
"""Most jobs that one request reads by id."""
MOST_URLS = 10_000
"""Most runs whose signal URL is kept; the oldest is dropped."""

_log = logging.getLogger("headway.client")


class Workers:
    """The workers of one client; use it only in the loop that owns the connections.

    Attributes:
        pollers_by_seen: the pollers, by the `seen` that their claims return.
        signal_urls: of the runs claimed here, by their reference.
    """

    def __init__(self, calls: HttpCalls, timing: Timing) -> None:
        self._calls = calls
        self._timing = timing
        self._pollers: OrderedDict[str, WorkerPoller] = OrderedDict()
        self.pollers_by_seen: dict[int, WorkerPoller] = {}
        self.signal_urls: OrderedDict[str, str] = OrderedDict()

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`; it may return jobs from a poll."""
        return await self._poller_of(request.worker).claim(request)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        now = self._timing.wall_at()
        reply = await self._work(settle_call(request.worker, request.outcomes, now))
        return reply.read(read_verdicts)

    async def beat(self, request: BeatRequest) -> BeatReply:
        """See `Store.beat`; it includes jobs from polls that no claim has taken yet."""
        poller = self._pollers.get(request.worker)
        request_sent = request
        if poller is not None:
            if request.leaving:
                await poller.leave(request.worker)
            running = request.running + poller.kept
            request_sent = replace(
                request, running=running, request=poller.received(request.request)
            )
        call = HttpCall(method="POST", path="/v1/leases", body=beat_body(request_sent))
        answered = await self._work(call)
        reply = answered.read(read_beat)
        if poller is None:
            return reply
        poller.note_time(answered.asked_at, reply.now)
        poller.forget(frozenset(reply.lost))
        if request.leaving and self._pollers.pop(request.worker, None) is not None:
            self._forget(poller)
        mine = frozenset(request.running)
        return replace(reply, lost=tuple(one for one in reply.lost if one in mine))

    async def leave(self) -> None:
        """End all polls, and release their jobs."""
        pollers, self._pollers = self._pollers, OrderedDict()
        self.pollers_by_seen = {}
        for worker, poller in pollers.items():
            await poller.leave(worker)

    def _poller_of(self, worker: str) -> WorkerPoller:
        poller = self._pollers.get(worker)
        if poller is None:
            seen = uuid4().int >> 66
            poller = WorkerPoller(self._claim_over_http, self._give_back, self._timing, seen=seen)
            self._pollers[worker] = self.pollers_by_seen[seen] = poller
            if len(self._pollers) > MOST_WORKERS:
                self._forget(self._pollers.popitem(last=False)[1])
        return poller

    def _forget(self, poller: WorkerPoller) -> None:
        by_seen = self.pollers_by_seen.items()
        self.pollers_by_seen = {seen: one for seen, one in by_seen if one is not poller}

    async def _claim_over_http(self, request: ClaimRequest, wait_s: float) -> ClaimReply:
        claimed = read_claim((await self._work(request_call(request, wait_s))).body)
        self._note_urls(claimed)
        return claimed.reply()

    async def _give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        outcomes = tuple(Released(job.id, job.run, reason="no handler was free") for job in jobs)
        try:
            await self.settle(SettleRequest(worker=worker, outcomes=outcomes))
        except HeadwayError as error:
            _log.warning("release left to the next beat jobs=%d error=%s", len(jobs), error)

    async def _work(self, call: HttpCall) -> HttpReply:
        try:
            return await self._calls.ask(call)
        except TooManyRequests as error:
            # Workers retry this error.
            raise StoreUnavailable(error.message, hint=error.hint) from None

    def _note_urls(self, claimed: ClaimResponse) -> None:
        urls = self.signal_urls
        for job in claimed.jobs:
            if job.signal_url is not None:
                urls[job.ref or f"{job.id}:{job.run}"] = job.signal_url
        while len(urls) > MOST_URLS:
            urls.popitem(last=False)


Answer = TypeVar("Answer")
Result = TypeVar("Result")

HINT_S = 1.0
"""Seconds after which a wait returns if no claim preceded it."""


class RemoteStore:
    """A server as a store, for workers and producers.

    The server itself does the store's maintenance (sweeps, fires, terms, restoring), so these
    operations raise `CallerError`, and workers must run without chores.
    """

    def __init__(
        self,
        address: ServerAddress,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 10.0,
        timing: Timing | None = None,
    ) -> None:
        """Create the store; it connects with the first call.

        Args:
            timeout_s: time limit of one attempt of a call.
            patience_s: how long a call is retried while the server is unavailable. Calls of
                workers are not retried here, because workers do it themselves.
        """
        self._address = address
        self._timing = timing or Timing()
        self._patience_s = patience_s
        self._calls = HttpCalls(address, timeout_s=timeout_s, timing=self._timing)
        # One loop for all callers, because a worker's heartbeat runs in a separate loop.
        self._background = Background()
        self._process = os.getpid()
        self._workers = Workers(self._calls, self._timing)
        if address.is_open:
            _log.warning("the token is sent unencrypted to %s", self)

    def __repr__(self) -> str:
        """Return the server's URL."""
        return f"<RemoteStore {self._address.url}>"

    @property
    def runs_inline(self) -> bool:
        """Always false: each call goes over the network."""
        return False

    def wall_at(self) -> int:
        """Return this machine's own time, ms UTC."""
        return self._timing.wall_at()

    def signal_url(self, ref: str) -> str | None:
        """Return the URL that signals a run claimed here, if it is known."""
        return self._workers.signal_urls.get(ref)

    # ------------------------------------------------------------------------------ producers

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        if not jobs:
            return []
        now = self._timing.wall_at()
        reply = await self.post("/v1/jobs", [job_body(job, now) for job in jobs])
        return reply.read(read_sent)

    async def signal(self, signal: Signal) -> SignalReply:
        path = f"/v1/signals/{path_part(signal.key)}"
        reply = await self.post(path, signal_body(signal))
        return reply.read(partial(read_record, SignalReply))

    # -------------------------------------------------------------------------------- workers

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """See `Store.claim`; it may return jobs that a `wait` has found."""
        return await self._in_loop(self._workers.claim(request))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """See `Store.wait`; this is a long poll for the worker whose claim returned `seen`."""
        del lanes, until_at  # the server knows them from the claim
        poller = self._workers.pollers_by_seen.get(seen)
        if poller is None:
            await self._timing.pause(HINT_S)
        else:
            await self._in_loop(poller.wait())

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        return await self._in_loop(self._workers.settle(request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        return await self._in_loop(self._workers.beat(request))

    # ------------------------------------------------------------------------------ operators

    async def act(self, request: ActRequest) -> list[ActReply]:
        """See `Store.act`; the author is the token's name.

        Raises:
            InvalidValue: it edits stage, gates or candidates, or has a condition, which the HTTP
                API does not support.
        """
        edit = request.edit
        unsupported = (edit.stage, edit.gates, edit.candidates, edit.if_run, edit.if_args)
        if request.states or any(one is not None for one in unsupported):
            message = "the HTTP API has no stage, gates or candidates of an edit, and no conditions"
            raise InvalidValue(message, hint="do it in a program that opens the store directly")
        body: Fields = {
            "verb": str(request.verb),
            "ids": list(request.ids),
            "reason": request.reason,
            "priority": edit.priority,
            "due": edit.due_at,
            "args": None if edit.args is None else msgspec.Raw(edit.args),
        }
        repeat = ("Idempotency-Key", request.request)
        reply = await self.post("/v1/moves", filled(body), repeat)
        return reply.read(lambda moves: [read_record(ActReply, one) for one in moves["jobs"]])

    async def define(self, request: DefineRequest) -> int:
        """See `Store.define`; each item is a separate request.

        Declarations by code are skipped if the token may not define: the server's own definitions
        apply, and a missing gate is reported when a job needs it.

        Raises:
            CallerError: the HTTP API has no such definition; those before it apply.
            Forbidden: the token may not define; those before it apply.
        """
        if request.revision is not None:
            message = "the HTTP API takes one definition under a revision"
            raise CallerError(message, hint="use the HTTP API, with If-Match for each")
        calls = [definition(one, request.reason, self._patience_s) for one in request.items]
        only_declared = all(isinstance(one, DECLARED) for one in request.items)
        revision = 0
        for call in calls:
            try:
                reply = await self.ask(call)
            except Forbidden as error:
                if not only_declared:
                    raise
                _log.info("declarations skipped, the server's own apply: %s", error)
                return revision
            revision = reply.read(_revision) or revision
        return revision

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        """See `Store.release_permit`; the author is the token's name."""
        del author
        call = HttpCall(
            method="DELETE",
            path="/v1/permits",
            body={"gate": gate, "job": job, "reason": reason},
            headers=(("Idempotency-Key", request or str(uuid4())),),
            patience_s=self._patience_s,
        )
        return (await self.ask(call)).read(lambda reply: bool(reply["released"]))

    # -------------------------------------------------------------------------------- reading

    async def read(self, query: Query[Answer]) -> Answer:
        """See `Store.read`; only queries that the HTTP API supports are possible.

        Raises:
            CallerError: the HTTP API does not support the query.
            UnknownJob: the query names an unknown job, and is not one that returns None for it.
        """
        if isinstance(query, JobsQuery) and query.ids is not None:
            rows = await self._jobs_by_id(query, query.ids)
            return Page(rows=rows, cursor=None)  # pyright: ignore[reportReturnType]  (a page)
        return await self._read_remote(query)  # pyright: ignore[reportReturnType, reportArgumentType]  (not narrowed)

    async def _jobs_by_id(self, query: JobsQuery, ids: Sequence[str]) -> tuple[JobView, ...]:
        if query.trail:
            # Only the route of a single job returns its trail.
            found = [await self._read_remote(JobQuery(id=one)) for one in ids]
            return tuple(one for one in found if one is not None)
        parts = [ids[n : n + MOST_IDS] for n in range(0, len(ids), MOST_IDS)]
        pages = [await self._read_remote(replace(query, ids=tuple(part))) for part in parts]
        return tuple(job for page in pages for job in page.rows)

    async def _read_remote(self, query: Query[Answer]) -> Answer:
        if isinstance(query, JobQuery | WhyQuery) and not is_job_id(query.id):
            # No job has it, and a path with it, such as `..`, could be that of another resource.
            return None  # pyright: ignore[reportReturnType]  (the query's answer may be None)
        remote = remote_query(query, self._patience_s)
        try:
            reply = await self.ask(remote.call)
        except UnknownJob:
            if not remote.missing:
                raise
            return None  # pyright: ignore[reportReturnType]  (the query's answer may be None)
        rows: list[object] = []
        while remote.whole:
            page, cursor = reply.read(lambda one: (list(one["rows"]), one["cursor"]))
            rows += page
            if cursor is None:
                return remote.read({"rows": rows})  # pyright: ignore[reportReturnType]  (see below)
            reply = await self.ask(remote.call.at(cursor))
        return reply.read(remote.read)  # pyright: ignore[reportReturnType]  (made by the query's type)

    # ------------------------------------------------------------------ done by the server itself

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        _refuse("restore", jobs)

    async def fire(self, request: FireRequest) -> FireReply:
        _refuse("fire", request)

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        _refuse("sweep", (n, keep_trail_ms))

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        _refuse("lead", (role, holder, lease_ms))

    # ----------------------------------------------------------------------- calls and closing

    async def close(self) -> None:
        """End the polls, release their jobs, and close all connections.

        Do nothing in a forked process, because all of this belongs to its parent.
        """
        if self._process == os.getpid():
            try:
                await self._in_loop(self._end())
            finally:
                self._background.close()

    async def ask(self, call: HttpCall) -> HttpReply:
        """Make any call."""
        return await self._in_loop(self._calls.ask(call))

    async def post(self, path: str, body: object, *headers: tuple[str, str]) -> HttpReply:
        """POST an idempotent request."""
        call = HttpCall(
            method="POST", path=path, body=body, headers=headers, patience_s=self._patience_s
        )
        return await self.ask(call)

    async def _end(self) -> None:
        await self._workers.leave()
        await self._calls.close()

    async def _in_loop(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._process != os.getpid():
            work.close()
            message = "the store was opened before this process was forked"
            raise StoreUnavailable(message, hint="open a store in each process")
        return await self._background.run_async(work)


def _revision(reply_json: object) -> int:
    fields = cast("dict[str, object]", reply_json) if isinstance(reply_json, dict) else {}
    revision = fields.get("revision")
    return revision if isinstance(revision, int) else 0


def _refuse(what: str, _: object) -> NoReturn:
    message = f"a server does not {what} for its clients"
    raise CallerError(message, hint="the server does it; run workers with chores=False")
