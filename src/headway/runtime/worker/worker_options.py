"""The options of a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from headway.contract.claims import LaneOrder
from headway.core.duration import Duration, check_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.naming import check_name, check_note, whole_number
from headway.runtime.chores import Sweepers
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.signals import SignalUrls, read_signing_keys
from headway.runtime.timing import Timing
from headway.runtime.worker.outcomes import Function, OnFailure, check_function, check_hook
from headway.runtime.worker.plans import Middleware, UnknownKindAction

MOST_AHEAD = 2_000
LEASE_MS = 30_000
"""Default lease of a worker's runs."""
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 86_400_000

Duty = Callable[[], Coroutine[Any, Any, None]]
"""A chore that runs until it is cancelled."""

SignalUrl = Callable[[str], str | None]
"""Returns the signal URL for a run's reference; None if no server is configured."""


class WorkerOptions(TypedDict, total=False):
    """Options of `App.worker` and `Worker`.

    Attributes:
        lanes: lanes to serve, as text such as "calls,mail:2"; defaults to all lanes of the app.
        order: "weighted" shares claims by weight, "strict" drains an earlier lane first.
        concurrency: maximum number of handlers running at once.
        prefetch: maximum number of ungated jobs claimed ahead of free handlers.
        lease: how long its runs stay valid without a heartbeat; it sends three heartbeats in that
            time.
        until_idle: whether `run` returns once none of its jobs is running and no job can start now;
            for tests and scripts. Jobs that are due later, wait at a gate or await a signal are
            left.
        grace: how long handlers may keep running after `stop`.
        name: label of the worker, such as "host:pid".
        chores: whether it also sweeps and creates the timetable's fires. The workers of a store
            share the sweeps, so some of them must do them.
        sweepers: workers of the same app, one of which sweeps for all.
        keep_trail: how long its sweeps keep lines of the trail; defaults to 90 days.
        signal_base: base URL that receives signals.
        signing_key: key that signs the signal URLs of its jobs, as on the server; of several keys,
            the first signs.
        signal_url: function that returns the signal URL for a run's reference, in place of these
            two.
        timing: the simulator's.
        heartbeat: "thread" for a thread of its own; "task" beats in the worker's loop.
        middleware: functions that wrap each handler; the first is the outermost.
        on_failure: functions called with the `Failure` of each failed attempt, in the worker's
            loop.
        before: awaited before the first claim.
        rebuild: awaited when the store turns out to be lost or restored to an older state; the
            worker then continues as a new one. Without it, the worker stops.
        duties: maintenance of the app, in addition to that of `chores`.
        unknown: what to do with a job of an unknown kind: "retry" fails the attempt, so that
            another worker may get it; "dead" makes the job dead.
    """

    lanes: Lanes
    order: LaneOrder
    concurrency: int
    prefetch: int
    lease: Duration
    until_idle: bool
    grace: Duration
    name: str
    chores: bool
    sweepers: Sweepers
    keep_trail: Duration
    signal_base: str | None
    signing_key: str | Sequence[str] | None
    signal_url: SignalUrl
    timing: Timing
    heartbeat: Literal["thread", "task"]
    middleware: Sequence[Middleware]
    on_failure: Sequence[OnFailure]
    before: Callable[[], Awaitable[None]]
    rebuild: Callable[[], Awaitable[None]]
    duties: Sequence[Duty]
    unknown: UnknownKindAction


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """`WorkerOptions`, validated and with defaults; durations in seconds, or in ms where named."""

    lanes: tuple[tuple[str, int], ...]
    order: LaneOrder
    concurrency: int
    prefetch: int
    lease_ms: int
    until_idle: bool
    grace: float
    name: str
    chores: bool
    sweepers: Sweepers
    keep_trail_ms: int
    signal_url: SignalUrl
    timing: Timing
    heartbeat: Literal["thread", "task"]
    middleware: tuple[Middleware, ...]
    on_failure: tuple[OnFailure, ...]
    before: Callable[[], Awaitable[None]] | None
    rebuild: Callable[[], Awaitable[None]] | None
    duties: tuple[Duty, ...]
    unknown: UnknownKindAction


def read_lease(what: str, value: object) -> int:
    """Parse a lease; an error begins with `what`.

    Raises:
        InvalidValue: it is not a duration, or not valid.
    """
    return check_lease(what, check_duration(what, value))


def check_lease(what: str, lease_ms: int) -> int:
    """Validate a lease; an error begins with `what`.

    Raises:
        InvalidValue: it is too short to be renewed in time, or so long that a dead worker would
            block its jobs.
    """
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        message = f"{what} is {lease_ms} ms"
        raise InvalidValue(message, hint="use 1s to 24h; the default is 30s")
    return lease_ms


def read_worker_options(options: WorkerOptions) -> WorkerSettings:
    """Validate the options of a worker.

    Raises:
        InvalidValue: an option is unknown or not valid.
    """
    refuse_unknown(options, WorkerOptions, "a worker has no option")
    order = options.get("order", "weighted")
    if order not in ("weighted", "strict"):
        message = f"a worker's order is {order!r:.40}"
        raise InvalidValue(message, hint='use "weighted" or "strict"')
    timing = options.get("timing") or Timing()
    unknown = options.get("unknown", "retry")
    if unknown not in ("retry", "dead"):
        message = f"a worker's unknown is {unknown!r:.40}"
        raise InvalidValue(message, hint='use "retry" or "dead"')
    return WorkerSettings(
        lanes=read_lanes(options.get("lanes", ("main",))),
        order=order,
        concurrency=check_count("concurrency", options.get("concurrency", 10), least=1),
        prefetch=check_count("prefetch", options.get("prefetch", MOST_AHEAD), least=0),
        lease_ms=read_lease("a worker's lease", options.get("lease", f"{LEASE_MS}ms")),
        until_idle=options.get("until_idle", False),
        grace=check_duration("a worker's grace", options.get("grace", "30s")) / 1000,
        name=check_note(
            "a worker's name", options.get("name") or f"{socket.gethostname()}:{os.getpid()}"
        ),
        chores=options.get("chores", True),
        sweepers=options.get("sweepers") or Sweepers(),
        keep_trail_ms=check_duration("a worker's keep_trail", options.get("keep_trail", "90d")),
        signal_url=options.get("signal_url") or _signal_url(options, timing),
        timing=timing,
        heartbeat=options.get("heartbeat", "thread"),
        middleware=_functions("middleware", options.get("middleware", ())),
        on_failure=tuple(map(check_hook, _functions("on_failure", options.get("on_failure", ())))),
        before=options.get("before"),
        rebuild=options.get("rebuild"),
        duties=_functions("duties", options.get("duties", ())),
        unknown=unknown,
    )


def _functions(option: str, given: Sequence[Function]) -> tuple[Function, ...]:
    if not isinstance(cast("object", given), Iterable):
        message = f"a worker's {option} is {given!r:.80}"
        raise InvalidValue(message, hint="pass a list of functions")
    return tuple(check_function(f"each of a worker's {option}", one) for one in given)


def _signal_url(options: WorkerOptions, timing: Timing) -> SignalUrl:
    keys = read_signing_keys(options.get("signing_key"))
    base = options.get("signal_base")
    if base is None:
        return lambda _: None
    urls = SignalUrls(base=base, keys=keys)
    return lambda ref: urls.url(ref, timing.wall_at())


Lanes = str | Mapping[str, int] | Sequence[str | tuple[str, int]]
"""`"calls,mail:2"`, `{"calls": 1, "mail": 2}`, or a list of names and pairs."""


def read_lanes(lanes: Lanes) -> tuple[tuple[str, int], ...]:
    """Read the lanes that a worker serves.

    Returns:
        Each lane and its weight, in the order given; the default weight is 1.

    Raises:
        InvalidValue: there is no lane, one is named twice, or a name or weight is not valid.
    """
    found = tuple(_lane(one) for one in _parts(lanes))
    if not found:
        message = "a worker serves no lane"
        raise InvalidValue(message, hint="name at least one")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            message = f"the lane {name!r} is named twice"
            raise InvalidValue(message, hint="name it once, with a larger weight")
    return found


def _parts(lanes: Lanes) -> list[str | tuple[str, int]]:
    if isinstance(lanes, str):
        return [_split(part.strip()) for part in lanes.split(",") if part.strip()]
    if isinstance(lanes, Mapping):
        return list(lanes.items())
    if not isinstance(cast("object", lanes), Iterable):
        raise _no_lanes(lanes)
    return list(lanes)


def _no_lanes(given: object) -> InvalidValue:
    message = f"a worker's lanes are {given!r:.80}"
    return InvalidValue(message, hint='write "calls,mail:2", or a list of names and pairs')


def _split(part: str) -> str | tuple[str, int]:
    name, colon, weight = part.rpartition(":")
    if not colon:
        return part
    number = whole_number(weight)
    if number is None:
        message = f"the weight of the lane {name!r} is {weight[:40]!r}, not a number from 1"
        hint = f"write {name}:2; a lane with a colon in its name needs a weight after it: {part}:1"
        raise InvalidValue(message, hint=hint)
    return name, number


def _lane(one: str | tuple[str, int]) -> tuple[str, int]:
    pair = (one, 1) if isinstance(one, str) else one
    if not isinstance(cast("object", pair), tuple | list) or len(pair) != 2:
        raise _no_lanes(one)
    name, weight = pair
    check_name("lane", name)
    return name, check_count(f"the weight of the lane {name!r}", weight, least=1)
