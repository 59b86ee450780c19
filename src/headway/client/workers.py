"""The workers of one client: what they ask of a server, each with a pull of its own."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from headway.client.beat_body import beat_body, read_beat
from headway.client.by_hand import request_call, settle_call
from headway.client.calls import Call, Calls, Reply
from headway.client.claim_reply import ToldClaim, read_claim
from headway.client.pull import Pull
from headway.contract.claims import BeatReply, BeatRequest, Claimed, ClaimReply, ClaimRequest
from headway.contract.outcomes import Released, SettleRequest, Verdict
from headway.core.errors import HeadwayError, StoreUnavailable, TooManyRequests
from headway.runtime.timing import Timing

MOST_WORKERS = 1_000
"""Workers of which it is known what they wait for."""
MOST_URLS = 10_000
"""Runs whose signal URL is known; the oldest is forgotten."""

_log = logging.getLogger("headway.client")


class Workers:
    """The workers of one client; used in the loop that has its connections."""

    def __init__(self, calls: Calls, timing: Timing) -> None:
        """Knows none yet.

        Args:
            calls: to the server.
            timing: clocks and pauses.
        """
        self._calls = calls
        self._timing = timing
        self._pulls: OrderedDict[str, Pull] = OrderedDict()
        self._seen: dict[int, Pull] = {}
        self._signal_urls: OrderedDict[str, str] = OrderedDict()

    def signal_url(self, ref: str) -> str | None:
        """Where the outside world signals a run that was claimed here; None if none was told."""
        return self._signal_urls.get(ref)

    def pull(self, seen: int) -> Pull | None:
        """The pull whose claims gave `seen`; None if that was nobody's."""
        return self._seen.get(seen)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """As `Store.claim`; it may bring what a poll has found."""
        return await self._pull_of(request.worker).claim(request)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """As `Store.settle`."""
        now = self._timing.wall_at()
        reply = await self._work(settle_call(request.worker, request.outcomes, now))
        return [Verdict(word) for word in reply.json["verdicts"]]

    async def beat(self, request: BeatRequest) -> BeatReply:
        """As `Store.beat`, also for what polls have brought and nobody has claimed yet."""
        pull = self._pulls.get(request.worker)
        told = request
        if pull is not None:
            if request.leaving:
                await pull.leave(request.worker)
            running = request.running + pull.kept
            told = replace(request, running=running, request=pull.received(request.request))
        call = Call(method="POST", path="/v1/leases", body=beat_body(told))
        answered = await self._work(call)
        reply = read_beat(answered.json)
        if pull is None:
            return reply
        pull.heard(answered.asked_at, reply.now)
        pull.forget(frozenset(reply.lost))
        if request.leaving and self._pulls.pop(request.worker, None) is not None:
            self._seen = {seen: one for seen, one in self._seen.items() if one is not pull}
        mine = frozenset(request.running)
        return replace(reply, lost=tuple(one for one in reply.lost if one in mine))

    async def leave(self) -> None:
        """Ends all polls, and gives back what they brought."""
        pulls, self._pulls = self._pulls, OrderedDict()
        self._seen = {}
        for worker, pull in pulls.items():
            await pull.leave(worker)

    def _pull_of(self, worker: str) -> Pull:
        pull = self._pulls.get(worker)
        if pull is None:
            seen = uuid4().int >> 66
            pull = Pull(self._claim_over_http, self._give_back, self._timing, seen=seen)
            self._pulls[worker] = self._seen[seen] = pull
            if len(self._pulls) > MOST_WORKERS:
                _, oldest = self._pulls.popitem(last=False)
                self._seen = {seen: one for seen, one in self._seen.items() if one is not oldest}
        return pull

    async def _claim_over_http(self, request: ClaimRequest, wait_s: float) -> ClaimReply:
        claimed = read_claim((await self._work(request_call(request, wait_s))).body)
        self._note_urls(claimed)
        return claimed.reply()

    async def _give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        outcomes = tuple(Released(job.id, job.run, reason="no handler was free") for job in jobs)
        try:
            await self.settle(SettleRequest(worker=worker, outcomes=outcomes))
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

    def _note_urls(self, claimed: ToldClaim) -> None:
        urls = self._signal_urls
        for job in claimed.jobs:
            if job.signal_url is not None:
                urls[job.ref or f"{job.id}:{job.run}"] = job.signal_url
        while len(urls) > MOST_URLS:
            urls.popitem(last=False)
