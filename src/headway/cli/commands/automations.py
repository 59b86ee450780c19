"""`headway automations`: recurring sessions against git repositories."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.failures import NO
from headway.cli.session import CommandSession
from headway.cli.terminal import rounded_duration
from headway.contract.store import Store
from headway.contract.views import EntryView
from headway.core.duration import format_duration
from headway.core.errors import InvalidValue, StoreError, UnknownJob
from headway.core.job import MAX_BATCH
from headway.core.naming import counted
from headway.core.timetable.schedule import Every
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.timing import REAL
from headway.stores import open_store

with needs_extra("server"):
    from headway.core.timetable.plan import Plan, make_plan
    from headway.systems.automations.config import read_config
    from headway.systems.automations.dispatcher import (
        LANE,
        Dispatcher,
        anchored,
        entries_of,
    )
    from headway.systems.automations.folders import read_folders, read_settings
    from headway.systems.automations.reports import (
        concurrency,
        dispatch_result,
        listing,
        locks,
        release,
        remaining_work,
        session_of,
        set_concurrency,
        start_marker,
    )
    from headway.systems.automations.session import session_id

app = new_command()

FileName = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Path of automations.toml. Defaults to the one in the settings.",
    ),
]
_Name = Annotated[str, typer.Argument(metavar="AUTOMATION", help="Id of the automation.")]
LONGEST_SESSION = "365d"


@command(app, default=True)
@command(app, "list")
def automations(session: CommandSession, file: FileName = None) -> None:
    """List the entries of automations.toml with their next fire and latest session.

    An invalid entry is shown with its file and line; it does not affect the others. Exits with 1 if
    there are any.
    """
    dispatcher = _dispatcher(session, file)
    rows = session.with_app(_app(session, dispatcher), lambda store: listing(store, dispatcher))
    faults = [str(one) for one in dispatcher.faults]
    now = REAL.wall_at()
    session.terminal.listing(
        {"automations": rows, "errors": faults},
        ["AUTOMATION", "REPOSITORY", "SCHEDULE", "NEXT", "NEWEST", "WHY"],
        [
            (
                one["id"],
                one["repository"],
                one["schedule"],
                session.clock.around(one["next"], now) if one["enabled"] else "off",
                one["status"] or "",
                one["reason"],
            )
            for one in rows
        ],
        empty="the file has no valid entry",
    )
    _end(session, faults)


@command(app, "plan")
def plan(
    session: CommandSession,
    file: FileName = None,
    fires: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of fires to show for each entry.")
    ] = 3,
) -> None:
    """Show when each entry fires, and how often cron would have to run `dispatch`.

    The tick is the longest time between two runs that misses no fire: the greatest common divisor
    of all periods and offsets, where a schedule without a constant period counts as 1 minute.
    `headway serve --system automations` needs no tick: it fires each entry on time.

    An interval counts from when the store first saw its entry. Without a store, or before it has
    seen the entry, the fires are unknown and do not count towards the tick. Exits with 1 if there
    are invalid entries.
    """
    dispatcher = _dispatcher(session, file)
    now = REAL.wall_at()
    entries, why = _known_entries(session)
    each = {one.id: anchored(one, entries.get(one.id)) for one in dispatcher.enabled()}
    made = make_plan({name: one for name, one in each.items() if one}, now, fires=fires)
    unseen = [name for name, one in each.items() if one is None]
    faults = [str(one) for one in dispatcher.faults]
    if session.json:
        session.terminal.document({"plan": made, "unseen": unseen, "errors": faults})
        _end(session, faults)
        return
    rows = {
        one.name: (
            one.name,
            "none" if one.period_ms is None else format_duration(one.period_ms),
            ", ".join(
                f"{session.clock.at(at)} (in {rounded_duration(at - now)})" for at in one.next
            ),
        )
        for one in made.entries
    }
    for one in dispatcher.enabled():
        if one.id in unseen and isinstance(one.schedule, Every):
            period = format_duration(one.schedule.interval_ms)
            rows[one.id] = (one.id, period, "counts from when the entry is first seen")
    session.terminal.table(
        ["AUTOMATION", "PERIOD", "NEXT"],
        [rows[name] for name in each],
        empty="no entry is enabled",
    )
    if made.entries or not unseen:
        _print_ticks(session, made)
    if unseen:
        because = f": {why}" if why else ", which the store does not have yet"
        session.terminal.remark(f"without the fires of {', '.join(unseen)}{because}", "yellow")
    _end(session, faults)


def _end(session: CommandSession, faults: list[str]) -> None:
    if not session.json:
        for fault in faults:
            session.terminal.remark(fault, "red")
    if faults:
        raise typer.Exit(NO)


def _known_entries(session: CommandSession) -> tuple[dict[str, EntryView], str]:
    """Return the timetable's entries of this system; without a store, none and the reason."""
    try:
        return session.with_store(entries_of), ""
    except StoreError as error:
        return {}, error.message


def _misses(tick_ms: int, missed: int) -> str:
    return f"{format_duration(tick_ms)}: misses {counted(missed, 'fire')}"


def _print_ticks(session: CommandSession, made: Plan) -> None:
    by = made.by_periods
    session.terminal.facts(
        [
            ("tick", _misses(made.tick_ms, made.by_tick.missed)),
            ("cycle", "none" if made.cycle_ms is None else format_duration(made.cycle_ms)),
            *(
                (what, _misses(one.tick_ms, one.missed))
                for what, one in (("gcd of periods", by), ("lcm of periods", made.by_cycle))
                if one is not None
            ),
            ("counted over", format_duration(made.counted_ms)),
        ]
    )


@command(app, "dispatch")
def dispatch(
    session: CommandSession,
    file: FileName = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the sessions to finish.")] = False,
    detached: Annotated[int | None, typer.Option("--detached", hidden=True)] = None,
) -> None:
    """Start the due sessions and return; for use with cron instead of a server.

    It returns once the sessions have started. They continue in the background, each under its own
    process, which renews its lease and exits when the session ends.
    """
    if detached is not None:
        # If the supervisor inherited it, the caller would wait until the session ends.
        os.set_inheritable(detached, False)
    dispatcher = _dispatcher(session, file)
    if detached is None:
        _refuse_to_replace(session, dispatcher.file)
    dispatcher.open()
    opened = _app(session, dispatcher)
    if detached is not None:
        event_loop.run(_keep(opened, dispatcher, detached))
    else:
        start = None if wait else partial(_in_background, session, dispatcher)
        _print_result(session, event_loop.run(_dispatch(opened, dispatcher, start)))
    if dispatcher.runner.notices is not None:
        dispatcher.runner.notices.close()


@command(app, "run")
def run(session: CommandSession, automation: _Name, file: FileName = None) -> None:
    """Make one session due now, regardless of the schedule.

    Like any session, it waits for its repository, a free slot, and a dispatcher: `headway serve
    --system automations`, or the next `headway automations dispatch`.
    """
    dispatcher = _dispatcher(session, file)
    job = session.with_app(
        _app(session, dispatcher), lambda store: dispatcher.run_now(store, automation)
    )
    name = session_id(automation, job)
    session.terminal.reply({"session_id": name, "job": job}, name)


@command(app, "logs")
def logs(
    session: CommandSession,
    which: Annotated[
        str, typer.Argument(metavar="SESSION", help="Id of a session or an automation.")
    ],
    lines: Annotated[int, typer.Option(min=1, help="Number of lines, from the end.")] = 200,
    file: FileName = None,
) -> None:
    """Show the output of a session, or of the latest session of an automation.

    Raises:
        UnknownJob: there is no such session, or its log is not on this machine any more.
    """
    dispatcher = _dispatcher(session, file)
    name, _ = session.with_app(
        _app(session, dispatcher), lambda store: session_of(store, dispatcher, which)
    )
    path = dispatcher.folders.log(name)
    try:
        text = path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        message = f"there is no log of {name} on this machine"
        raise UnknownJob(message, hint=f"it would be {path}") from None
    if session.json:
        session.terminal.document({"session_id": name, "path": str(path), "lines": text})
        return
    for line in text:
        session.terminal.line(line)


@command(app, "locks")
def locks_(session: CommandSession) -> None:
    """List the repositories locked by sessions."""
    found = session.with_store(locks)
    session.terminal.listing(
        {"locks": found},
        ["REPOSITORY", "AUTOMATION", "SINCE", "HOST", "PID", "SESSION"],
        [
            (
                one.repo_url,
                one.automation_id,
                session.clock.at(one.acquired_at),
                one.hostname or "",
                str(one.pid or ""),
                one.session_id,
            )
            for one in found
        ],
        empty="no repository is locked",
    )


@command(app, "release")
def release_(
    session: CommandSession,
    repository: Annotated[
        str,
        typer.Argument(metavar="REPOSITORY", help="URL of the repository, or its name in `locks`."),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Release the lock before the session has ended.")
    ] = False,
    file: FileName = None,
) -> None:
    """End the session that holds a repository; its lock is released once its processes are gone.

    With --force the lock is released at once: another session may start while the old one is still
    running, until its owner ends it within a third of its lease.
    """
    dispatcher = _dispatcher(session, file)
    author = session.author(None)
    done = session.with_store(
        lambda store: release(store, dispatcher, repository, author=author, force=force)
    )
    what = "is free" if force else "is free when its session has ended"
    session.terminal.reply({"released": done}, f"{done.repo_url} {what}: {done.session_id}")


@command(app, "limit")
def limit(
    session: CommandSession,
    most: Annotated[
        int | None,
        typer.Argument(metavar="N", help="Maximum number of sessions at once, 0 to 10000."),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Restore the value from the file.")
    ] = False,
    file: FileName = None,
) -> None:
    """Show or change the maximum number of sessions at once; running sessions continue.

    Raises:
        InvalidValue: a number and --reset were both passed, or the number is out of its range.
    """
    if most is not None and reset:
        message = "a number and --reset were both passed"
        raise InvalidValue(message, hint="pass one of them")
    author = session.author(None)

    async def work(store: Store) -> dict[str, Any]:
        if most is None and not reset:
            return await concurrency(store)
        return await set_concurrency(store, most, author=author)

    usage = session.with_store(work)
    with suppress(InvalidValue):
        usage["lowered"] = _dispatcher(session, file).lowered
    why = f"; lowered by the load: {usage['lowered']}" if usage.get("lowered") else ""
    session.terminal.reply(usage, f"{usage['used']} of {usage['max']} sessions{why}")


def _dispatcher(session: CommandSession, file: Path | None) -> Dispatcher:
    settings = read_settings(session.settings.automations)
    dispatcher = Dispatcher(
        file=file or settings.file,
        folders=read_folders(settings.state_dir),
        lease_ms=settings.lease,
    )
    dispatcher.read()
    if dispatcher.unreadable is not None:
        message = dispatcher.unreadable.error
        raise InvalidValue(message, hint="name it with --file, or in [automations] file")
    return dispatcher


def _refuse_to_replace(session: CommandSession, file: Path) -> None:
    # A server may run the entries of the settings' file.
    own = read_settings(session.settings.automations).file
    if not own.is_file() or own.samefile(file):
        return
    kept = read_config(own).automations.keys() & session.with_store(entries_of).keys()
    if kept:
        message = f"{file} would replace {min(kept)!r} and all other entries of {own}"
        raise InvalidValue(message, hint="name it in [automations] file, or use another --store")


def _app(session: CommandSession, dispatcher: Dispatcher) -> App:
    made = App(session.store_url, opener=open_store)
    dispatcher.declare(made)
    return made


async def _dispatch(
    opened: App, dispatcher: Dispatcher, start: Callable[[], str] | None
) -> dict[str, Any]:
    """Start the due sessions, each in a process started by `start`.

    Without `start`, run them here and wait until they have ended.
    """
    async with opened:
        store = opened.store
        begun = await start_marker(store)
        await opened.declare()
        # Releases what sessions with an expired lease hold; perhaps no other process sweeps.
        while (await store.sweep(MAX_BATCH)).again:
            pass
        await dispatcher.sync(store)
        workers: set[str] = set()
        if start is None:
            workers.add(await _work(opened, lambda: False, 1_000))
        while start is not None and (left := await remaining_work(store)):
            if left == "due":
                workers.add(await asyncio.to_thread(start))
            else:
                await REAL.pause(0.1)
        return (await dispatch_result(store, dispatcher, begun, workers)).document()


async def _keep(opened: App, dispatcher: Dispatcher, started: int) -> None:
    """Start one session, report that through `started`, and renew its lease until it ends."""
    async with opened:
        await opened.declare()

        await _work(opened, lambda: dispatcher.runner.counts.spawned > 0, 1, started)


async def _work(
    opened: App, has_enough: Callable[[], bool], most: int, started: int | None = None
) -> str:
    """Run until all due sessions have started or `has_enough`, then wait until they have ended.

    Args:
        most: Maximum number of sessions at once.
        started: File descriptor to which the worker's id is written once the sessions have started.

    Returns:
        The worker's id.
    """
    worker = opened.worker(lanes=LANE, concurrency=most, prefetch=0, grace=LONGEST_SESSION)
    working = asyncio.create_task(worker.run())
    event_loop.on_signals(lambda _: worker.stop(now=True))
    while not working.done() and not has_enough() and await remaining_work(opened.store):
        await REAL.pause(0.1)
    if started is not None:
        with suppress(BrokenPipeError):
            # The dispatch may have been killed; its sessions continue.
            os.write(started, worker.id.encode())
        os.close(started)
    worker.stop()
    await working
    return worker.id


def _in_background(session: CommandSession, dispatcher: Dispatcher) -> str:
    """Start a process that runs one session and renews its lease; wait until it has started.

    Returns:
        The id of the process's worker.

    Raises:
        InvalidValue: the process exited before that.
    """
    read, write = os.pipe()
    os.set_inheritable(write, True)
    line = ["-m", "headway", "automations", "dispatch", f"--detached={write}"]
    line += [f"--file={dispatcher.file}"]
    if session.named_store is not None:
        # From the settings it is read again: it may have a password, and every user sees this line.
        line.append(f"--store={session.named_store}")
    errors = dispatcher.folders.logs / "dispatch.err"
    make, private = os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
    # It outlives this process, so `subprocess`, which waits for its children, is unsuitable.
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, *line],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, str(errors), make, private),
        ],
        setsid=True,
    )
    os.close(write)
    with os.fdopen(read, "rb") as started:
        if worker := started.read().decode():
            return worker
    os.waitpid(child, 0)
    said = ""
    with suppress(OSError):
        said = errors.read_text(encoding="utf-8").strip()
    message = f"nothing was dispatched: {said[-500:] or 'the session was killed as it started'}"
    raise InvalidValue(message)


def _print_result(session: CommandSession, result: dict[str, Any]) -> None:
    if session.json:
        session.terminal.document(result)
        return
    skipped = result["skipped"]
    words = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in skipped.items())
    session.terminal.line(f"{result['dispatched']} dispatched; skipped: {words}")
    for error in result["errors"]:
        session.terminal.remark(f"{error['automation_id'] or ''} {error['error']}".strip(), "red")
