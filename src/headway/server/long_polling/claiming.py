"""Claims for clients that may disconnect at any time; their jobs are released then."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, TypeVar

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest, LaneOrder
from headway.contract.outcomes import Released, SettleRequest
from headway.contract.store import Store
from headway.core.errors import InvalidValue, OutcomeUnknown, StoreError
from headway.core.naming import check_name, whole_number
from headway.runtime.chores import log_dead
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.worker_options import LEASE_MS
from headway.server.long_polling.waiters import ClaimAttempt

MAX_WANTED = 256
"""Maximum number of lanes and patterns in a poll."""
MAX_WEIGHT = 1_000

_Lanes = tuple[tuple[str, int], ...]
"""Names or patterns of lanes, each with its weight."""
Key = TypeVar("Key", bound=Hashable)

_MAGIC = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern, such as `send_*`."""
    return not _MAGIC.isdisjoint(name)


def read_lanes(text: str) -> _Lanes:
    """Parse a list of lanes such as `send_*,enrich:2`.

    Args:
        text: names or patterns, separated by commas; each may have a colon and a weight (default:
            1). The text after the last colon is only a weight if it is a number.
    """
    lanes: list[tuple[str, int]] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, colon, weight = part.rpartition(":")
        number = whole_number(weight) if colon and name else None
        lanes.append((part, 1) if number is None else (name, number))
    return tuple(lanes)


def check_lanes(lanes: Sequence[tuple[str, int]]) -> _Lanes:
    """Validate the lanes of a claim, and return them without duplicates.

    Raises:
        InvalidValue: there are none or too many, or a name or a weight is invalid.
    """
    if not 1 <= len(lanes) <= MAX_WANTED:
        message = f"the claim names {len(lanes)} lanes"
        raise InvalidValue(message, hint=f"pass 1 to {MAX_WANTED} names or patterns")
    for name, weight in lanes:
        check_name("lane", name)
        if not 1 <= weight <= MAX_WEIGHT:
            message = f"the weight of the lane {name[:80]!r} is {weight}"
            raise InvalidValue(message, hint=f"use 1 to {MAX_WEIGHT}")
    return tuple(dict(lanes).items())


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSelection:
    """The lanes of a poll.

    Attributes:
        lanes: names and patterns, each once; their order matters if `order` is "strict".
        order: "weighted" shares claims by weight, "strict" empties an earlier lane first.
        reach: names and patterns of the caller's scope, which restrict the patterns of `lanes`;
            None for no restriction. Names in `lanes` were checked before.
    """

    lanes: _Lanes
    order: LaneOrder = "weighted"
    reach: tuple[str, ...] | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The lanes that are patterns."""
        return tuple(name for name, _ in self.lanes if is_pattern(name))

    @property
    def group(self) -> tuple[object, ...]:
        """A key that is equal for polls that the same jobs can serve."""
        names = tuple(name for name, _ in self.lanes)
        if self.order == "weighted":
            names = tuple(sorted(names))
        return names, self.order, self.reach if self.patterns else None

    def expand(self, known: Iterable[str]) -> _Lanes:
        """Expand the patterns.

        Args:
            known: the existing lanes; lanes that are selected by name need not be among them.

        Returns:
            Each lane once, with the weight of the first name or pattern that matches it; lanes
            that match the same pattern are in order of their names.
        """
        met: dict[str, int] = {}
        sorted_names: list[str] | None = None
        for name, weight in self.lanes:
            if not is_pattern(name):
                met.setdefault(name, weight)
                continue
            sorted_names = sorted(known) if sorted_names is None else sorted_names
            for lane in sorted_names:
                if self._fits(lane, name):
                    met.setdefault(lane, weight)
        return tuple(met.items())

    def matches(self, lane: str) -> bool:
        """Return whether a new lane matches one of the patterns."""
        return any(self._fits(lane, pattern) for pattern in self.patterns)

    def _fits(self, lane: str, pattern: str) -> bool:
        covered = self.reach is None or any(fnmatchcase(lane, one) for one in self.reach)
        return covered and fnmatchcase(lane, pattern)


@dataclass(frozen=True, kw_only=True, slots=True)
class LongPoll:
    """A claim that may wait.

    Attributes:
        worker: the store's id of the worker.
        n: maximum number of jobs, 1 to 1000.
        free: maximum number of jobs with gates.
        lease_ms: how long the worker's runs stay valid without a beat.
        request: number of the claim; None to let the registry number each attempt.
        after: where the worker's last claim stopped, by lane.
    """

    worker: str
    wanted: LaneSelection
    n: int = 1
    free: int = 1
    lease_ms: int = LEASE_MS
    request: int | None = None
    after: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class PollReply:
    """The reply to a poll.

    Attributes:
        worker: the store's id of the worker.
        request: number of the claim that returned the jobs; meaningless without jobs.
        jobs: in the order in which to start them.
        now: the store's time; approximate if this poll waited behind others and never claimed.
        lease_until: when the worker's runs lapse without a beat; None if this poll never claimed.
        next_at: when it is worth polling again; None for not before a wake.
        after: to be passed to the worker's next poll.
        is_repeat: whether the jobs were handed out before, for the same number.
    """

    worker: str
    request: int
    jobs: Sequence[Claimed]
    now: int
    lease_until: int | None
    next_at: int | None
    again: bool
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    is_repeat: bool = False


MAX_REQUEST = 2**53 - 1
"""Maximum number of a claim: the largest integer that every JSON parser reads exactly."""
MOST_TRIES = 32
"""Attempts after which numbers that are already used cannot be due to a server's clock."""


class RequestNumbers:
    """Generates increasing numbers that are seldom below those of another server."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._last = 0

    def next(self, turn: int, of: int, tries: int = 0) -> int:
        """Return a number above all earlier ones; microseconds since 1970, or more.

        Args:
            turn: the number is congruent to the turn after this one, modulo `of`, because a claim
                shares its places between lanes by the number; see `share`.
            of: number of turns in a cycle.
            tries: how many numbers before this one were already used, by a server whose clock is
                ahead or by another poll of the same worker; each doubles the distance to jump.
        """
        ahead = 1_000_000 << tries if tries > 1 else 0
        least = max(self._last + 1, self._timing.wall_at() * 1_000 + ahead)
        self._last = least + (turn + 1 - least) % of
        return self._last


MOST_LANES = 256
"""Maximum number of lanes in a claim; for more, several claims are made in turn."""
MOST_REMEMBERED = 10_000
"""Maximum number of workers whose last number that returned jobs is remembered."""
MOST_TURNS = 1_000
"""Maximum number of lane selections whose turns are counted."""
GIVE_BACK_WITHIN_S = 60.0
"""Seconds for which releasing jobs is retried; after that they return when the lease ends."""

MOST_ARGS = 16 * 1024 * 1024
"""Maximum bytes of arguments in a reply; the first job is returned whatever its size."""

_log = logging.getLogger("headway.server")


class PollClaimer:
    """Claims for long polls."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._numbers = RequestNumbers(timing)
        self._turn = 0
        # Counts only claims that returned jobs, so that empty ones do not use up a lane's turn.
        self._turns: OrderedDict[_Lanes, int] = OrderedDict()
        self._last_with_jobs: OrderedDict[str, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def releasing(self) -> int:
        """Number of releases in progress."""
        return len(self._tasks)

    async def attempt(self, poll: LongPoll, known: Collection[str]) -> ClaimAttempt:
        """Claim once from all lanes of a poll; if cancelled, release the claimed jobs.

        Args:
            known: the store's lanes, if the poll has patterns.

        Returns:
            The claim; if it is empty, its times apply to all of the lanes.

        Raises:
            InvalidValue: the claim is invalid.
        """
        lanes = poll.wanted.expand(known)
        if not lanes:
            nothing = ClaimReply(jobs=[], now=self._timing.wall_at(), lease_until=0, next_at=None)
            return ClaimAttempt(reply=nothing, lanes=(), request=poll.request or 0)
        attempts: list[ClaimAttempt] = []
        for window in self._windows(lanes, strict=poll.wanted.order == "strict"):
            attempt = await self._claim_window(poll, window)
            attempts.append(attempt)
            if attempt.is_final:
                break
        return _combined(attempts)

    def give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        """Release jobs whose reply was not delivered, in the background."""
        if jobs:
            self._spawn(self._give_back(worker, jobs, "its client had disconnected"))

    async def finish(self) -> None:
        """Wait until all undelivered jobs are released."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _windows(self, lanes: _Lanes, *, strict: bool) -> Sequence[_Lanes]:
        windows = [lanes[at : at + MOST_LANES] for at in range(0, len(lanes), MOST_LANES)]
        if strict or len(windows) == 1:
            return windows
        # Each claim starts with another window, so that none gets only what the others leave.
        self._turn += 1
        first = self._turn % len(windows)
        return windows[first:] + windows[:first]

    async def _claim_window(self, poll: LongPoll, lanes: _Lanes) -> ClaimAttempt:
        """Claim until there are jobs, or all flows have been examined."""
        after = {lane: poll.after[lane] for lane, _ in lanes if lane in poll.after}
        whole = not after
        tries = 0
        weights = sum(weight for _, weight in lanes)
        while True:
            turn = self._turns.get(lanes, 0)
            request = ClaimRequest(
                worker=poll.worker,
                request=poll.request or self._numbers.next(turn, weights, tries),
                lanes=lanes,
                order=poll.wanted.order,
                n=poll.n,
                free=poll.free,
                lease_ms=poll.lease_ms,
                after=after,
            )
            reply, is_repeat = await self._claim(request)
            if reply.jobs:
                _remember(self._turns, lanes, turn + 1, MOST_TURNS)
            names = tuple(name for name, _ in lanes)
            attempt = ClaimAttempt(
                reply=reply, lanes=names, request=request.request, is_repeat=is_repeat
            )
            if attempt.is_used_up and poll.request is None and tries < MOST_TRIES:
                tries += 1
            elif attempt.is_final or (whole and not reply.again):
                return attempt
            else:
                # A round that started in the middle has not examined the flows before.
                whole = whole or not reply.again
                after = dict(reply.after)
                await self._timing.pause(0)

    async def _claim(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        """Claim, and return the reply and whether the number had returned jobs before.

        Raises:
            CancelledError: the task was cancelled; the claimed jobs will be released.
        """
        claim = asyncio.ensure_future(self._claim_jobs(request))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            self._spawn(self._undo(request.worker, claim))
            raise

    async def _claim_jobs(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        is_repeat = self._last_with_jobs.get(request.worker, 0) >= request.request
        try:
            reply = await self._store.claim(request)
        except OutcomeUnknown:
            # Repeating the same number returns the jobs that the first call may have claimed.
            reply = await self._store.claim(request)
        if reply.jobs and not is_repeat:
            _remember(self._last_with_jobs, request.worker, request.request, MOST_REMEMBERED)
        await log_dead(self._store, reply.dead)
        fits = sum(size <= MOST_ARGS for size in accumulate(len(job.args) for job in reply.jobs))
        surplus = reply.jobs[max(fits, 1) :]
        if surplus:
            # A repeat drops the same jobs, so none of them was ever handed out.
            reply = replace(reply, jobs=reply.jobs[: max(fits, 1)], again=True)
            self._spawn(self._give_back(request.worker, surplus, "the reply was full"))
        return reply, is_repeat

    async def _undo(self, worker: str, claim: asyncio.Future[tuple[ClaimReply, bool]]) -> None:
        try:
            reply, is_repeat = await claim
        except StoreError as error:
            _log.warning("claim of a disconnected client has an unknown result: %s", error)
            return
        if not is_repeat:
            self.give_back(worker, reply.jobs)

    async def _give_back(self, worker: str, jobs: Sequence[Claimed], reason: str) -> None:
        outcomes = tuple(Released(job.id, job.run, reason=reason) for job in jobs)
        request = SettleRequest(worker=worker, outcomes=outcomes)
        end = self._timing.monotonic() + GIVE_BACK_WITHIN_S
        try:
            await persist(
                self._timing,
                "give back",
                lambda: self._store.settle(request),
                until=lambda _: self._timing.monotonic() >= end,
            )
        except StoreError as error:
            _log.warning("%d jobs remain claimed until their lease ends: %s", len(jobs), error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _remember(known: OrderedDict[Key, int], key: Key, value: int, most: int) -> None:
    """Set a value; if there are too many, remove the one that was set longest ago."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)


def _combined(attempts: Sequence[ClaimAttempt]) -> ClaimAttempt:
    """Combine claims: the jobs of the last one, or else times that apply to all of them."""
    last = attempts[-1]
    if len(attempts) == 1 or last.is_final:
        return last
    times = [attempt.reply.next_at for attempt in attempts]
    reply = replace(
        last.reply,
        next_at=min((at for at in times if at is not None), default=None),
        seen=min(attempt.reply.seen for attempt in attempts),
    )
    lanes = tuple(name for attempt in attempts for name in attempt.lanes)
    return replace(last, reply=reply, lanes=lanes)
