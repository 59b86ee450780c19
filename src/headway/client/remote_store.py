"""A server as a store: what workers and producers ask of a store, asked over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote

import msgspec

from headway.client.address import Address
from headway.client.calls import Call, Calls, Reply
from headway.client.definitions import DECLARED, definition
from headway.client.fields import Fields, filled
from headway.client.job_body import job_body
from headway.client.questions import question
from headway.client.read_record import read_record
from headway.client.signal_body import signal_body
from headway.client.workers import Workers
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.enqueue import Enqueued, InFlight
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.sweeps import SweepReply
from headway.contract.views import JobQuery, JobsQuery, JobView, Page, Query
from headway.core.errors import (
    CallerError,
    Forbidden,
    InvalidValue,
    UnknownJob,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.runtime.background import Background
from headway.runtime.timing import Timing

Answer = TypeVar("Answer")
Result = TypeVar("Result")

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
        self._workers = Workers(self._calls, self._timing)
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
        return self._workers.signal_url(ref)

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
        return await self._there(self._workers.claim(request))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """As `Store.wait`, for the worker whose claim gave `seen`: by a long poll."""
        del lanes, until_at  # the server knows them of the claim
        pull = self._workers.pull(seen)
        if pull is None:
            await self._timing.pause(HINT_S)
        else:
            await self._there(pull.wait())

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """As `Store.settle`."""
        return await self._there(self._workers.settle(request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        """As `Store.beat`."""
        return await self._there(self._workers.beat(request))

    # ------------------------------------------------------------------------------ operators

    async def act(self, request: ActRequest) -> list[ActReply]:
        """As `Store.act`; the author is the token's name.

        Raises:
            InvalidValue: it edits stage, gates or candidates, which only a store is told.
        """
        edit = request.edit
        if (edit.stage, edit.gates, edit.candidates) != (None, None, None):
            message = "a server is not told to change a job's stage, gates or candidates"
            raise InvalidValue(message, hint="do so in a program that has the store")
        body: Fields = {
            "verb": str(request.verb),
            "ids": list(request.ids),
            "reason": request.reason,
            "priority": edit.priority,
            "due": edit.due_at,
            "args": None if edit.args is None else msgspec.Raw(edit.args),
        }
        call = Call(
            method="POST",
            path="/v1/moves",
            body=filled(body),
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

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        """Refused."""
        _refuse("sweep", (n, keep_trail_ms))

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
        await self._workers.leave()
        await self._calls.close()

    async def _there(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs something in the loop that has the connections."""
        return await asyncio.wrap_future(self._background.submit(work))


def _revision(said: object) -> int:
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    revision = fields.get("revision")
    return revision if isinstance(revision, int) else 0


def _refuse(what: str, _: object) -> NoReturn:
    message = f"a server does not {what} for its clients"
    raise CallerError(message, hint="the server does it itself; run workers with chores=False")
