"""The options of a worker."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from headway.contract.claims import LaneOrder
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.naming import check_name
from headway.runtime.chores import Sweepers
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.signals import SignalUrls, read_signing_keys
from headway.runtime.timing import Timing
from headway.runtime.worker.endings import OnFailure, check_hook
from headway.runtime.worker.plans import Middleware, Unknown

MOST_AHEAD = 2_000
SHORTEST_LEASE_MS = 1_000

Duty = Callable[[], Coroutine[Any, Any, None]]
"""Runs until it is cancelled."""

SignalUrl = Callable[[str], str | None]
"""Where the outside world signals the run of a reference; None while no server is configured."""


class WorkerOptions(TypedDict, total=False):
    """The options of `App.worker` and `Worker`.

    Attributes:
        lanes: what it serves, in text as "calls,mail:2"; all lanes of the app if not given.
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        concurrency: handlers that run at once.
        prefetch: the most jobs without gates that are held ready beyond these.
        lease: how long its runs live without a beat; it beats three times as often.
        until_idle: whether `run` ends by itself, once none of its jobs runs and no job can start
            now; for tests and scripts. What is due later, waits at a gate or awaits a signal stays.
        grace: how long handlers may go on after `stop`.
        name: a label, such as "host:pid".
        chores: whether it also sweeps and keeps the timetable's fires ahead. Workers of one store
            share the sweeps, and count on each other to do them.
        sweepers: its app's workers, of which one sweeps for all of them.
        keep_trail: how long its sweeps keep lines of the trail; 90 days if not given.
        signal_base: the address that receives signals.
        signing_key: signs the signal URLs of its jobs, as the server's does; several are read
            as there, and the first signs.
        signal_url: makes the signal URL of a run's reference, instead of these two.
        timing: the simulator's.
        heartbeat: "thread" for a thread of its own; "task" beats in the worker's loop.
        middleware: around each handler; the first one is the outermost.
        on_failure: called with the `Failure` of each failed attempt, in the worker's loop.
        before: awaited before the first claim.
        rebuild: awaited when the store is found lost or older than it was; then the worker goes
            on as a new one. Without it, the worker ends.
        duties: chores of the app, beside those of `chores`.
        unknown: what it does with a job whose kind it does not know: "retry" fails the attempt,
            so that another worker may have it, "dead" ends the job.
    """

    lanes: Lanes
    order: LaneOrder
    concurrency: int
    prefetch: int
    lease: object
    until_idle: bool
    grace: object
    name: str
    chores: bool
    sweepers: Sweepers
    keep_trail: object
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
    unknown: Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """The same, read."""

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
    unknown: Unknown


def read_worker_options(options: WorkerOptions) -> WorkerSettings:
    """Read the options of a worker.

    Raises:
        InvalidValue: one is unusable.
    """
    refuse_unknown(options, WorkerOptions, "a worker has no option")
    lease_ms = parse_duration(options.get("lease", "30s"))
    if lease_ms < SHORTEST_LEASE_MS:
        message = f"a worker's lease is {lease_ms} ms"
        raise InvalidValue(message, hint="at least 1s")
    order = options.get("order", "weighted")
    if order not in {"weighted", "strict"}:
        message = f"a worker's order is {order!r:.40}"
        raise InvalidValue(message, hint='"weighted" or "strict"')
    timing = options.get("timing") or Timing()
    unknown = options.get("unknown", "retry")
    if unknown not in {"retry", "dead"}:
        message = f"a worker's unknown is {unknown!r:.40}"
        raise InvalidValue(message, hint='"retry" or "dead"')
    return WorkerSettings(
        lanes=read_lanes(options.get("lanes", ("main",))),
        order=order,
        concurrency=check_count("concurrency", options.get("concurrency", 10), least=1),
        prefetch=check_count("prefetch", options.get("prefetch", MOST_AHEAD), least=0),
        lease_ms=lease_ms,
        until_idle=options.get("until_idle", False),
        grace=parse_duration(options.get("grace", "30s")) / 1000,
        name=options.get("name") or f"{socket.gethostname()}:{os.getpid()}",
        chores=options.get("chores", True),
        sweepers=options.get("sweepers") or Sweepers(),
        keep_trail_ms=parse_duration(options.get("keep_trail", "90d")),
        signal_url=options.get("signal_url") or _signal_url(options, timing),
        timing=timing,
        heartbeat=options.get("heartbeat", "thread"),
        middleware=tuple(options.get("middleware", ())),
        on_failure=tuple(check_hook(hook) for hook in options.get("on_failure", ())),
        before=options.get("before"),
        rebuild=options.get("rebuild"),
        duties=tuple(options.get("duties", ())),
        unknown=unknown,
    )


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

    Args:
        lanes: names, each with its weight or without; in text, a colon stands before it.

    Returns:
        Each lane and its weight, in the order given.

    Raises:
        InvalidValue: there is none, one is named twice, or a weight is unusable.
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
    if not (weight.isascii() and weight.isdigit() and len(weight) < 10):
        message = f"the weight of the lane {name!r} is {weight[:40]!r}, not a number from 1"
        hint = f"write {name}:2; a lane with a colon in its name needs a weight behind it: {part}:1"
        raise InvalidValue(message, hint=hint)
    return name, int(weight)


def _lane(one: str | tuple[str, int]) -> tuple[str, int]:
    pair = (one, 1) if isinstance(one, str) else one
    if not isinstance(cast("object", pair), tuple | list) or len(pair) != 2:
        raise _no_lanes(one)
    name, weight = pair
    check_name("lane", name)
    return name, check_count(f"the weight of the lane {name!r}", weight, least=1)
