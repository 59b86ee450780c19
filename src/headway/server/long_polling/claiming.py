"""Claims for clients that may disconnect at any moment: then nothing stays claimed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from headway.contract.claims import Claimed, ClaimReply, ClaimRequest, LaneOrder
from headway.contract.outcomes import Released, SettleRequest
from headway.contract.store import Store
from headway.core.errors import InvalidValue, OutcomeUnknown, StoreError
from headway.core.naming import check_name
from headway.runtime.chores import log_dead
from headway.runtime.timing import Timing, persist
from headway.server.long_polling.waiters import ClaimAttempt

LEASE_MS = 30_000
"""How long a worker's runs live without a beat, if it does not say."""
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 86_400_000


def check_lease(lease_ms: int) -> int:
    """Validate the length of a lease.

    Raises:
        InvalidValue: it is too short to be kept, or so long that a dead worker blocks its jobs.
    """
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        message = f"a lease of {lease_ms} ms"
        raise InvalidValue(message, hint="from 1s to 24h; 30s is usual")
    return lease_ms


MAX_WANTED = 256
"""The most lanes and patterns of one pull."""
MAX_WEIGHT = 1_000
"""The largest weight of a lane."""

Lanes = tuple[tuple[str, int], ...]
"""Names of lanes, each with its weight."""
Key = TypeVar("Key", bound=Hashable)

_MAGIC = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Return whether a name stands for any number of lanes, such as `send_*`."""
    return not _MAGIC.isdisjoint(name)


def read_lanes(text: str) -> Lanes:
    """Read lanes as one line says them, such as `send_*,enrich:2`.

    Args:
        text: names or patterns with commas between them, each with its weight after a colon.

    Returns:
        Each with its weight; 1 if none is said. What follows the last colon is a weight only if
        it is a number.
    """
    lanes: list[tuple[str, int]] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, colon, weight = part.rpartition(":")
        if colon and name and weight.isascii() and weight.isdigit() and len(weight) < 10:
            lanes.append((name, int(weight)))
        else:
            lanes.append((part, 1))
    return tuple(lanes)


def check_lanes(lanes: Sequence[tuple[str, int]]) -> Lanes:
    """Validate the lanes of a claim.

    Returns:
        The same, each once.

    Raises:
        InvalidValue: there are none or too many, or a name or a weight is unusable.
    """
    if not 1 <= len(lanes) <= MAX_WANTED:
        message = f"a pull from {len(lanes)} lanes"
        raise InvalidValue(message, hint=f"from 1 to {MAX_WANTED} names or patterns")
    for name, weight in lanes:
        check_name("lane", name)
        if not 1 <= weight <= MAX_WEIGHT:
            message = f"the weight of the lane {name[:80]!r} is {weight}"
            raise InvalidValue(message, hint=f"from 1 to {MAX_WEIGHT}")
    return tuple(dict(lanes).items())


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSelection:
    """The lanes that a pull asks for.

    Attributes:
        lanes: each name or pattern with its weight, each once; in strict order if `order` says so.
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        reach: which of the lanes that fit a pattern are the caller's; None for all. Names were
            checked before.
    """

    lanes: Lanes
    order: LaneOrder = "weighted"
    reach: tuple[str, ...] | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those of its lanes that are patterns."""
        return tuple(name for name, _ in self.lanes if is_pattern(name))

    @property
    def group(self) -> tuple[object, ...]:
        """Equal for pulls that the same jobs can serve."""
        names = tuple(name for name, _ in self.lanes)
        if self.order == "weighted":
            names = tuple(sorted(names))
        return names, self.order, self.reach if self.patterns else None

    def among(self, known: Iterable[str]) -> Lanes:
        """Return the lanes that are meant, if these exist.

        Args:
            known: names of lanes; those that are wanted by name need not be among them.

        Returns:
            Each lane once, with the weight of the first that names or fits it; those that fit
            one pattern by name.
        """
        met: dict[str, int] = {}
        sorted_names: list[str] | None = None
        for name, weight in self.lanes:
            if not is_pattern(name):
                met.setdefault(name, weight)
                continue
            sorted_names = sorted(known) if sorted_names is None else sorted_names
            for lane in filter(self._fits(name), sorted_names):
                met.setdefault(lane, weight)
        return tuple(met.items())

    def meets(self, lane: str) -> bool:
        """Return whether a new lane matches one of the patterns."""
        return any(self._fits(pattern)(lane) for pattern in self.patterns)

    def _fits(self, pattern: str) -> Callable[[str], bool]:
        def fits(lane: str) -> bool:
            reach = self.reach
            covered = reach is None or any(fnmatchcase(lane, one) for one in reach)
            return covered and fnmatchcase(lane, pattern)

        return fits


@dataclass(frozen=True, kw_only=True, slots=True)
class LongPoll:
    """A claim that may wait.

    Attributes:
        worker: as the store knows it.
        n: the most jobs, 1 to 1000.
        free: the most jobs with gates.
        lease_ms: how long the worker's runs live without a beat.
        request: the number of the claim; None lets the registry number each try.
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
    """What a pull brought.

    Attributes:
        worker: as the store knows it.
        request: the number of the claim that brought it; of one that brought nothing, for what it
            is worth.
        jobs: in the order to be started.
        now: the store's time; about, where this pull waited behind others and never claimed.
        lease_until: when the worker's runs lapse without a beat; None if this pull never claimed.
        next_at: when it is worth asking again; None for not before something happens.
        again: ask again at once.
        after: to be given to the worker's next pull.
        is_repeat: the jobs were handed out before, in answer to the same number.
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
"""The largest number of a claim: the largest that every JSON reader keeps exactly."""
MOST_TRIES = 32
"""After so many numbers that were used before, the clock is not what is wrong."""


class RequestNumbers:
    """Gives numbers that grow, and are seldom below those that another server gave."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._last = 0

    def next(self, turn: int, of: int, tries: int = 0) -> int:
        """Return a number above all that were given before.

        Args:
            turn: the number is this one's next, by its remainder, for a claim shares its places
                by that; see `share`.
            of: turns until they begin again.
            tries: how many before it were used up, by a server whose clock is ahead or by another
                pull of the same worker; each makes the number jump further.

        Returns:
            Microseconds since 1970, or more.
        """
        ahead = 1_000_000 << tries if tries > 1 else 0
        least = max(self._last + 1, self._timing.wall_at() * 1_000 + ahead)
        self._last = least + (turn + 1 - least) % of
        return self._last


MOST_LANES = 256
"""Lanes of one claim; where more fit a pull's patterns, claims follow one another."""
MOST_REMEMBERED = 10_000
"""Workers of which it is remembered which of their numbers brought jobs."""
MOST_TURNS = 1_000
"""Selections of lanes whose turns are counted."""
GIVE_BACK_WITHIN = 60.0
"""Seconds for which a giving back is repeated; then the lease brings the jobs back."""

_log = logging.getLogger("headway.server")


class PollClaimer:
    """Claims for pulls."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._numbers = RequestNumbers(timing)
        self._turn = 0
        # Claims that brought jobs: those that bring none must not use up a lane's turn.
        self._turns: OrderedDict[Lanes, int] = OrderedDict()
        self._brought: OrderedDict[str, int] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> int:
        """How many givings back are not done yet."""
        return len(self._tasks)

    async def look(self, pull: LongPoll, known: Collection[str]) -> ClaimAttempt:
        """Claim once from all lanes that a pull wants.

        If it is cancelled, what was claimed is given back.

        Args:
            known: the store's lanes, if the pull has patterns.

        Returns:
            What was found. If nothing, its moments hold for all of the lanes.

        Raises:
            InvalidValue: the claim is unusable.
        """
        lanes = pull.wanted.among(known)
        if not lanes:
            nothing = ClaimReply(jobs=[], now=self._timing.wall_at(), lease_until=0, next_at=None)
            return ClaimAttempt(reply=nothing, lanes=(), request=pull.request or 0)
        looks: list[ClaimAttempt] = []
        for some in self._windows(lanes, strict=pull.wanted.order == "strict"):
            look = await self._round(pull, some)
            looks.append(look)
            if look.is_final:
                break
        return _joined(looks)

    def give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        """Release jobs whose reply was not delivered, in the background."""
        if jobs:
            self._spawn(self._give_back(worker, jobs))

    async def finish(self) -> None:
        """Wait until all that is to be given back is."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _windows(self, lanes: Lanes, *, strict: bool) -> Sequence[Lanes]:
        windows = [lanes[at : at + MOST_LANES] for at in range(0, len(lanes), MOST_LANES)]
        if strict or len(windows) == 1:
            return windows
        # Each claim begins elsewhere, so that no window lives on what others leave.
        self._turn += 1
        first = self._turn % len(windows)
        return windows[first:] + windows[:first]

    async def _round(self, pull: LongPoll, lanes: Lanes) -> ClaimAttempt:
        """Claim until something is found, or all flows were looked at."""
        after = {lane: pull.after[lane] for lane, _ in lanes if lane in pull.after}
        whole = not after
        tries = 0
        weights = sum(weight for _, weight in lanes)
        while True:
            turn = self._turns.get(lanes, 0)
            request = ClaimRequest(
                worker=pull.worker,
                request=pull.request or self._numbers.next(turn, weights, tries),
                lanes=lanes,
                order=pull.wanted.order,
                n=pull.n,
                free=pull.free,
                lease_ms=pull.lease_ms,
                after=after,
            )
            reply, is_repeat = await self._claim(request)
            if reply.jobs:
                _remember(self._turns, lanes, turn + 1, MOST_TURNS)
            names = tuple(name for name, _ in lanes)
            look = ClaimAttempt(
                reply=reply, lanes=names, request=request.request, is_repeat=is_repeat
            )
            if look.is_used_up and pull.request is None and tries < MOST_TRIES:
                tries += 1
            elif look.is_final or (whole and not reply.again):
                return look
            else:
                # A round that began in the middle has not looked at what stands before.
                whole = whole or not reply.again
                after = dict(reply.after)
                await self._timing.pause(0)

    async def _claim(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        """Claims.

        Returns:
            The reply, and whether its number had brought jobs before.

        Raises:
            CancelledError: it was cancelled; what the claim brings is given back.
        """
        claim = asyncio.ensure_future(self._ask(request))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            self._spawn(self._undo(request.worker, claim))
            raise

    async def _ask(self, request: ClaimRequest) -> tuple[ClaimReply, bool]:
        is_repeat = self._brought.get(request.worker, 0) >= request.request
        try:
            reply = await self._store.claim(request)
        except OutcomeUnknown:
            # A repeat of the same number brings what the first may have claimed.
            reply = await self._store.claim(request)
        if reply.jobs and not is_repeat:
            _remember(self._brought, request.worker, request.request, MOST_REMEMBERED)
        await log_dead(self._store, reply.dead)
        return reply, is_repeat

    async def _undo(self, worker: str, claim: asyncio.Future[tuple[ClaimReply, bool]]) -> None:
        try:
            reply, is_repeat = await claim
        except StoreError as error:
            _log.warning("what a claim brought is not known, and its puller is gone: %s", error)
            return
        if not is_repeat:
            await self._give_back(worker, reply.jobs)

    async def _give_back(self, worker: str, jobs: Sequence[Claimed]) -> None:
        if not jobs:
            return
        reason = "its puller was gone"
        outcomes = tuple(Released(job.id, job.run, reason=reason) for job in jobs)
        request = SettleRequest(worker=worker, outcomes=outcomes)
        end = self._timing.monotonic() + GIVE_BACK_WITHIN
        try:
            await persist(
                self._timing,
                "give back",
                lambda: self._store.settle(request),
                until=lambda: self._timing.monotonic() >= end,
            )
        except StoreError as error:
            _log.warning("%d jobs come back at the end of their lease: %s", len(jobs), error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _remember(known: OrderedDict[Key, int], key: Key, value: int, most: int) -> None:
    """Note a value; the one that was noted longest ago is forgotten if there are too many."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)


def _joined(looks: Sequence[ClaimAttempt]) -> ClaimAttempt:
    """Return what several claims found.

    The last one's jobs, else moments that hold for all of them.
    """
    last = looks[-1]
    if len(looks) == 1 or last.is_final:
        return last
    moments = [look.reply.next_at for look in looks]
    reply = replace(
        last.reply,
        next_at=min((at for at in moments if at is not None), default=None),
        seen=min(look.reply.seen for look in looks),
    )
    return replace(last, reply=reply, lanes=tuple(name for look in looks for name in look.lanes))
