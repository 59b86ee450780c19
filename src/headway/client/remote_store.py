"""A server as a store: what workers and producers ask of a store, asked over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec

from headway.client.address import Address
from headway.client.by_hand import request_call, settle_call
from headway.client.calls import Call, Calls, Reply
from headway.client.claim_reply import ClaimBody, read_claim
from headway.client.definitions import DECLARED, definition
from headway.client.job_body import Fields, job_body
from headway.client.pull import Pull
from headway.client.questions import question
from headway.client.read_record import read_record
from headway.client.signal_body import signal_body
from headway.contract.claims import BeatReply, BeatRequest, Claimed, ClaimReply, ClaimRequest
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.enqueue import Enqueued, InFlight
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import Released, SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.sweeps import SweepReply
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, Query
from headway.core.errors import (
    CallerError,
    Forbidden,
    HeadwayError,
    StoreUnavailable,
    TooManyRequests,
    UnknownJob,
)
from headway.core.job import NewJob
from headway.runtime.background import Background
from headway.runtime.timing import Timing

Answer = TypeVar("Answer")
Result = TypeVar("Result")

MOST_WORKERS = 1_000
"""Workers of which it is known what they wait for."""
MOST_URLS = 10_000
"""Runs whose signal URL is known; the oldest is forgotten."""
HINT_S = 1.0
"""Seconds after which a wait for nobody's claim returns."""

_log = logging.getLogger("headway.client")


class RemoteStore:
    """A server as a store, for workers and producers.

    What concerns the store alone (sweeps, fires, terms, restoring) is the server's own, and is
    refused with a `CallerError`: a worker runs without chores here.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 10.0,
        timing: Timing | None = None,
    ) -> None:
        """Makes it; nothing is asked yet.

        Args:
            address: of the server.
            timeout_s: how long one try of a call may take.
            patience_s: for how long a call is repeated while the server is away. What a worker
                asks is not: workers repeat it themselves.
            timing: for limits and pauses.
        """
        self._address = address
        self._timing = timing or Timing()
        self._patience_s = patience_s
        self._calls = Calls(address, timeout_s=timeout_s, timing=self._timing)
        # One loop for all callers: a worker's heart beats from a loop of its own.
        self._background = Background()
        self._pulls: OrderedDict[str, Pull] = OrderedDict()
        self._seen: dict[int, Pull] = {}
        self._signal_urls: OrderedDict[str, str] = OrderedDict()
        if address.is_open:
            _log.warning(
                "the token goes to %s unencrypted: whoever is on the way can read it", self
            )

    def __repr__(self) -> str:
        """Where it is."""
        return f"<RemoteStore {self._address.url}>"

    @property
    def runs_inline(self) -> bool:
        """Never: each call goes over the network."""
        return False

    def wall_at(self) -> int:
        """This machine's own time, in ms UTC."""
        return self._timing.wall_at()

    def signal_url(self, ref: str) -> str | None:
        """Where the outside world signals a run that was claimed here; None if none was told."""
        return self._signal_urls.get(ref)

    # ------------------------------------------------------------------------------ producers

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As `Store.enqueue`."""
        if not jobs:
            return []
        now = self._timing.wall_at()
        call = Call(
            method="POST",
            path="/v1/jobs",
            body=[job_body(job, now) for job in jobs],
            patience_s=self._patience_s,
        )
        said = (await self.ask(call)).json
        return [Enqueued(one["id"], one["created"]) for one in said["jobs"]]

    async def signal(self, signal: Signal) -> SignalReply:
        """As `Store.signal`."""
        call = Call(
            method="POST",
            path=f"/v1/signals/{quote(signal.key, safe='')}",
            body=signal_body(signal),
            patience_s=self._patience_s,
        )
        return read_record(SignalReply, (await self.ask(call)).json)

    # -------------------------------------------------------------------------------- workers

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """As `Store.claim`; it may bring what a `wait` has found."""
        return await self._there(self._claim(request))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """As `Store.wait`, for the worker whose claim gave `seen`: by a long poll."""
        del lanes, until_at  # the server knows them of the claim
        pull = self._seen.get(seen)
        if pull is None:
            await self._timing.pause(HINT_S)
        else:
            await self._there(pull.wait())

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """As `Store.settle`."""
        return await self._there(self._settle(request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        """As `Store.beat`."""
        return await self._there(self._beat(request))

    # ------------------------------------------------------------------------------ operators

    async def act(self, request: ActRequest) -> list[ActReply]:
        """As `Store.act`; the author is the token's name."""
        body: Fields = {"verb": str(request.verb), "ids": list(request.ids)}
        edit = request.edit
        said = {
            "reason": request.reason or None,
            "priority": edit.priority,
            "due": edit.due_at,
            "args": None if edit.args is None else msgspec.Raw(edit.args),
        }
        call = Call(
            method="POST",
            path="/v1/moves",
            body=body | {name: value for name, value in said.items() if value is not None},
            headers=(("Idempotency-Key", request.request),),
            patience_s=self._patience_s,
        )
        replies = (await self.ask(call)).json["jobs"]
        return [read_record(ActReply, one) for one in replies]

    async def define(self, request: DefineRequest) -> int:
        """As `Store.define`, but one after the other.

        What code declares is passed over where the token may not define: what the server has
        holds then, and a gate that it lacks is told when a job needs it.

        Raises:
            CallerError: a server is not told that; those before it hold.
            Forbidden: the token may not define; those before it hold.
        """
        if request.revision is not None:
            message = "a server is not told many definitions under one revision"
            raise CallerError(message, hint="use the HTTP API, with If-Match for each")
        calls = [definition(one, request.reason, self._patience_s) for one in request.items]
        only_declared = all(isinstance(one, DECLARED) for one in request.items)
        revision = 0
        for call in calls:
            try:
                said = (await self.ask(call)).json
            except Forbidden as error:
                if not only_declared:
                    raise
                _log.info("what the program declares is left to the server: %s", error)
                return revision
            revision = _revision(said) or revision
        return revision

    async def release_permit(self, gate: str, job: str, author: str, reason: str) -> bool:
        """As `Store.release_permit`; the author is the token's name."""
        del author
        call = Call(
            method="DELETE",
            path="/v1/permits",
            body={"gate": gate, "job": job, "reason": reason},
            patience_s=self._patience_s,
        )
        return bool((await self.ask(call)).json["released"])

    # -------------------------------------------------------------------------------- reading

    async def read(self, query: Query[Answer]) -> Answer:
        """As `Store.read`, for what a server tells; else refused.

        Raises:
            CallerError: only a store can be asked that.
            UnknownJob: the server says so where there may be other reasons for no answer.
        """
        if isinstance(query, JobsQuery) and query.ids is not None:
            return await self._jobs_by_id(query.ids)  # pyright: ignore[reportReturnType]  (a page)
        asked = question(query, self._patience_s)
        try:
            said = (await self.ask(asked.call)).json
            while asked.whole and said["cursor"] is not None:
                page = (await self.ask(asked.call.at(said["cursor"]))).json
                said = {"rows": said["rows"] + page["rows"], "cursor": page["cursor"]}
        except UnknownJob:
            if not asked.missing:
                raise
            return None  # pyright: ignore[reportReturnType]  (the query's answer may be None)
        return asked.read(said)  # pyright: ignore[reportReturnType]  (made by the query's type)

    async def _jobs_by_id(self, ids: Sequence[str]) -> Page[JobView]:
        found = [await self.read(JobQuery(id=one)) for one in ids]
        return Page(rows=tuple(one for one in found if one is not None), cursor=None)

    # ---------------------------------------------------------------- what is the server's own

    async def restore(self, jobs: Sequence[InFlight]) -> list[Enqueued]:
        """Refused."""
        _refuse("restore", jobs)

    async def fire(self, request: FireRequest) -> FireReply:
        """Refused."""
        _refuse("fire", request)

    async def sweep(self, n: int) -> SweepReply:
        """Refused."""
        _refuse("sweep", n)

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        """Refused."""
        _refuse("lead", (role, holder, lease_ms))

    # -------------------------------------------------------------------------------- the end

    async def close(self) -> None:
        """Ends polls, gives back what they brought, and closes all connections."""
        await self._there(self._shut())
        self._background.close()

    async def ask(self, call: Call) -> Reply:
        """Makes any call."""
        return await self._there(self._calls.ask(call))

    async def _shut(self) -> None:
        pulls, self._pulls = self._pulls, OrderedDict()
        self._seen = {}
        for worker, pull in pulls.items():
            await pull.leave(worker)
        await self._calls.close()

    # ------------------------------------------------------------------ in the background loop

    async def _there(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs something in the loop that has the connections."""
        return await asyncio.wrap_future(self._background.submit(work))

    def _pull(self, worker: str) -> Pull:
        pull = self._pulls.get(worker)
        if pull is None:
            seen = uuid4().int >> 66
            pull = Pull(self._claim_over_http, self._give_back, self._timing, seen=seen)
            self._pulls[worker] = self._seen[seen] = pull
            if len(self._pulls) > MOST_WORKERS:
                _, oldest = self._pulls.popitem(last=False)
                self._seen = {seen: one for seen, one in self._seen.items() if one is not oldest}
        return pull

    async def _claim(self, request: ClaimRequest) -> ClaimReply:
        return await self._pull(request.worker).claim(request)

    async def _claim_over_http(self, request: ClaimRequest, wait_s: float) -> ClaimReply:
        claimed = read_claim((await self._work(request_call(request, wait_s))).body)
        self._note_urls(claimed)
        return claimed.reply()

    async def _settle(self, request: SettleRequest) -> list[Verdict]:
        now = self._timing.wall_at()
        reply = await self._work(settle_call(request.worker, request.outcomes, now))
        return [Verdict(word) for word in reply.json["verdicts"]]

    async def _beat(self, request: BeatRequest) -> BeatReply:
        pull = self._pulls.get(request.worker)
        told = request
        if pull is not None:
            if request.leaving:
                await pull.leave(request.worker)
            running = request.running + pull.kept
            told = replace(request, running=running, request=pull.received(request.request))
        call = Call(method="POST", path="/v1/leases", body=_beat_body(told))
        answered = await self._work(call)
        reply = _beat_reply(answered.json)
        if pull is None:
            return reply
        pull.heard(answered.asked_at, reply.now)
        pull.forget(frozenset(reply.lost))
        if request.leaving and self._pulls.pop(request.worker, None) is not None:
            self._seen = {seen: one for seen, one in self._seen.items() if one is not pull}
        mine = frozenset(request.running)
        return replace(reply, lost=tuple(one for one in reply.lost if one in mine))

    async def _give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        outcomes = tuple(Released(job.id, job.run, reason="no handler was free") for job in jobs)
        try:
            await self._settle(SettleRequest(worker=worker, outcomes=outcomes))
        except HeadwayError as error:
            _log.warning("%d jobs are given back by the next beat: %s", len(jobs), error)

    async def _work(self, call: Call) -> Reply:
        """Makes a worker's call.

        Raises:
            StoreUnavailable: there are too many calls, which heals by itself as that does.
        """
        try:
            return await self._calls.ask(call)
        except TooManyRequests as error:
            raise StoreUnavailable(error.message, hint=error.hint) from None

    def _note_urls(self, claimed: ClaimBody) -> None:
        urls = self._signal_urls
        for job in claimed.jobs:
            if job.signal_url is not None:
                urls[job.ref or f"{job.id}:{job.run}"] = job.signal_url
        while len(urls) > MOST_URLS:
            urls.popitem(last=False)


def _revision(said: object) -> int:
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    revision = fields.get("revision")
    return revision if isinstance(revision, int) else 0


def _beat_body(request: BeatRequest) -> Fields:
    progress = {(job, run): msgspec.Raw(data) for job, run, data in request.progress}
    running: list[Fields] = []
    for job, run in request.running:
        one: Fields = {"job": job, "run": run}
        if (job, run) in progress:
            one["progress"] = progress[job, run]
        running.append(one)
    body: Fields = {
        "worker": request.worker,
        "running": running,
        "request": request.request,
        "lease": request.lease_ms,
        "lanes": list(request.lanes),
    }
    if request.name:
        body["name"] = request.name
    if request.leaving:
        body["leaving"] = True
    return body


def _beat_reply(said: Mapping[str, Any]) -> BeatReply:
    return BeatReply(
        now=said["now"],
        lease_until=said["lease_until"],
        lost=tuple((one["job"], one["run"]) for one in said["lost"]),
        cancel=tuple((one["job"], one["run"]) for one in said["cancel"]),
    )


def _refuse(what: str, _: object) -> NoReturn:
    message = f"a server does not {what} for its clients"
    raise CallerError(message, hint="the server does it itself; run workers with chores=False")
