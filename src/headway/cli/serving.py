"""A worker in this process: runs an App's jobs until it is stopped or its lanes have drained."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, cast

import structlog
import typer

from headway.cli.extras import needs_extra
from headway.cli.options import duration_option
from headway.cli.progress import Meter
from headway.cli.settings import Settings
from headway.contract.store import Store
from headway.contract.views import LanesQuery
from headway.core.job import MAX_BATCH
from headway.core.state import FINAL, State
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.chores import TimetableChore
from headway.runtime.timing import REAL, Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

log = structlog.stdlib.get_logger("headway.worker")

SYSTEMS_AT_ONCE = 200
"""Default number of handlers running at once if systems add jobs."""

Beside = Callable[[Store, Worker], Coroutine[Any, Any, None]]
"""A task that runs alongside a worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """Options of a worker; None means the default."""

    lanes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B:2",
            help="Lanes to serve, with optional weights. Defaults to all lanes of the App.",
        ),
    ] = None
    order: Annotated[
        Literal["weighted", "strict"],
        typer.Option(
            help="Share claims between lanes by weight, or drain them in the order given."
        ),
    ] = "weighted"
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of handlers running at once (default: 10)."),
    ] = None
    prefetch: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum number of ungated jobs claimed ahead of free handlers."),
    ] = None
    lease: Annotated[
        str | None,
        duration_option(
            "How long its runs stay valid without a heartbeat. Defaults to the shortest that "
            "one of its lanes sets, or 30s."
        ),
    ] = None
    grace: Annotated[
        str | None,
        duration_option("How long handlers may keep running after a stop (default: 30s)."),
    ] = None
    unknown_kinds: Annotated[
        Literal["retry", "dead"],
        typer.Option(help="What to do with a job whose kind the App does not define."),
    ] = "retry"
    name: Annotated[
        str | None, typer.Option(help='Name of the worker in listings (default: "host:pid").')
    ] = None

    def for_worker(self) -> WorkerOptions:
        """Return the worker's options that were passed."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        given["unknown"] = given.pop("unknown_kinds")
        return cast("WorkerOptions", given)

    def for_child(self) -> list[str]:
        """Return the same options as command line arguments of a child process."""
        given = asdict(self).items()
        return [f"--{name.replace('_', '-')}={one}" for name, one in given if one is not None]


def for_systems(options: ServeOptions, lanes: list[str], *, whole: bool) -> ServeOptions:
    """Return the worker's options with defaults for running the jobs of systems.

    Args:
        lanes: Lanes of the systems; empty if there are none.
        whole: Whether the App's own jobs are run as well.
    """
    if not lanes:
        return options
    if options.lanes is None and not whole:
        options = replace(options, lanes=",".join(lanes))
    # Handlers of systems mostly wait for external services, and need little CPU.
    return options if options.concurrency else replace(options, concurrency=SYSTEMS_AT_ONCE)


async def serve(  # noqa: PLR0913  (the options of several commands)
    app: App,
    options: ServeOptions,
    *beside: Beside,
    settings: Settings,
    tether: int | None = None,
    server_url: str | None = None,
    around: AbstractAsyncContextManager[None] | None = None,
    until_idle: bool = False,
) -> int:
    """Run a worker until SIGTERM or SIGINT, or until a task beside it returns.

    The first signal lets handlers finish within the grace period; the second does not wait.

    Args:
        beside: Run as tasks; the worker stops when one of them returns.
        tether: File descriptor of a pipe; the worker stops when its other end is closed.
        server_url: Where external systems signal the jobs if the settings have no public URL.
        around: Kept open while the worker runs.
        until_idle: Whether the worker stops once no job can start.

    Returns:
        The number of settled runs.
    """
    worker_options = options.for_worker()
    worker_options["signal_base"] = settings.public_url or server_url
    worker_options["signing_key"] = settings.signing_keys
    worker_options["keep_trail"] = settings.keep_trail
    worker_options["until_idle"] = until_idle
    await app.reach(settings.store_wait)
    async with around or nullcontext(), app:
        worker = app.worker(**worker_options)
        lanes = dict(worker.settings.lanes)

        def stop(now: bool) -> None:
            if not now:
                log.info("worker stops", second_signal="does not wait for handlers")
            worker.stop(now=now)

        event_loop.on_signals(stop)
        # Only once signals are handled: a program that reads this line may send one.
        log.info("worker starts", lanes=lanes, concurrency=worker.settings.concurrency)
        if tether is not None:
            _stop_with_parent(tether, worker)
        tasks = [asyncio.create_task(each(app.store, worker)) for each in beside]
        for task in tasks:
            task.add_done_callback(lambda _: worker.stop())
        try:
            await worker.run()
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        log.info("worker stopped", settled=worker.ended)
        return worker.ended


def _stop_with_parent(tether: int, worker: Worker) -> None:
    loop = asyncio.get_running_loop()

    def untied() -> None:
        loop.remove_reader(tether)
        worker.stop()

    loop.add_reader(tether, untied)


def trace_if_enabled(app: App, settings: Settings) -> None:
    """Trace an App's jobs, if the settings enable it.

    Spans created by handlers are exported too.
    """
    if not settings.traces:
        return
    with needs_extra("otel"):
        from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415  (an extra)

        from headway.runtime.tracing.sampling import otlp_provider  # noqa: PLC0415
        from headway.runtime.tracing.trace import trace  # noqa: PLC0415
    provider = otlp_provider("headway")
    set_tracer_provider(provider)
    trace(app, provider)


_QUICK_S = 0.05
_SLOW_S = 0.5
_MANY = 5_000
_QUIET_S = 10
"""Seconds without progress after which a draining worker logs what it waits for."""


class Drain(StrEnum):
    """When a draining worker exits."""

    ALL = "all"
    """All jobs in its lanes are final."""
    DUE = "due"
    """All jobs in its lanes are final, except those that are not due yet."""
    IDLE = "idle"
    """It runs no job, and none can start now; jobs may still wait at gates or for signals."""


async def wait_until_drained(
    store: Store, lanes: Sequence[str], drain: Drain, meter: Meter, timing: Timing = REAL
) -> None:
    """Wait until the lanes have drained.

    Jobs that run on other workers or await a signal count as well.
    """
    final_before: int | None = None
    changed_at, seen, logged = timing.monotonic(), dict[str, int](), dict[str, int]()
    # A fire may be due whose job the worker's chore has not created yet.
    await TimetableChore(store, timing).create_fires()
    while True:
        states, final = await count_left(store, lanes, drain)
        left = sum(states.values())
        if final_before is None:
            final_before = final
        done = max(final - final_before, 0)
        meter(done, done + left)
        if not left:
            return
        now = timing.monotonic()
        if states != seen:
            seen, changed_at = states, now
        elif states != logged and now - changed_at >= _QUIET_S:
            logged = states
            log.info("worker draining", left=left, **states)
        await timing.pause(_SLOW_S if left > _MANY else _QUICK_S)


async def count_left(
    store: Store, lanes: Sequence[str], drain: Drain
) -> tuple[dict[str, int], int]:
    """Return how many jobs in the lanes are left to drain, by state, and how many are final."""
    if drain is Drain.DUE:
        # Jobs that are due but not promoted still count as scheduled: promote them first.
        while (await store.sweep(MAX_BATCH)).promoted:
            pass
    counts = Counter[str]()
    for lane in await store.read(LanesQuery(names=tuple(lanes))):
        counts.update(lane.counts)
    final = sum(counts.pop(state, 0) for state in FINAL)
    if drain is Drain.DUE:
        del counts[State.SCHEDULED]
    return dict(+counts), final
