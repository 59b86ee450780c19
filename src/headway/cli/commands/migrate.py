"""`headway migrate`, `headway copy`: upgrade a store's schema, or copy it into another store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.directory import Migrated, SystemNames, directory_url, tables_of
from headway.cli.extras import is_postgres, migrate_postgres, unmigrated_url
from headway.cli.options import Signed
from headway.cli.progress import Meter, progress
from headway.cli.session import CommandSession, store_file
from headway.cli.terminal import rounded_duration
from headway.contract.definitions import CloseGate, DefineRequest, OpenGate
from headway.contract.extensions import Movable
from headway.contract.store import Store
from headway.contract.views import (
    GatesQuery,
    LanesQuery,
    SpecsQuery,
    StatsQuery,
    StatsView,
    TimetableQuery,
    TokensQuery,
    TrailQuery,
    WorkersQuery,
)
from headway.core.duration import parse_duration
from headway.core.errors import InvalidState, InvalidValue, StoreError, StoreUnavailable
from headway.core.job import MAX_BATCH, TRAIL_KEPT_MS
from headway.core.naming import counted
from headway.core.state import State
from headway.stores import open_store
from headway.stores.ledger.gaterows import FOREVER
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES
from headway.stores.sqlite import parse_url
from headway.stores.sqlite.connection import migrate as migrate_file

app = new_command()


DirectoryUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database of the systems, as a role that may alter its tables."
    ),
]


@command(app)
def migrate(
    session: CommandSession, system: SystemNames = None, directory: DirectoryUrl = None
) -> None:
    """Create the store if it does not exist, or upgrade its schema to this version.

    Stop the workers of a SQLite store first; workers on PostgreSQL can keep running. Redis has no
    schema: its server and data format are checked. A store newer than this program is refused, and
    nothing is written.

    With --system, also create or upgrade that system's tables in the directory database. Its
    servers and workers then need no permission to create tables.

    With --json: {"before", "now", "systems": [{"system", "before", "now"}]}: schema versions (0 if
    there was no schema), and revisions of the systems' tables (null if there were none).

    Raises:
        InvalidValue: this type of store is not durable, there is no such system, or --directory
            was passed without a system.
    """
    if directory is not None and not system:
        message = "--directory was passed without --system"
        raise InvalidValue(message, hint="name the system, for example --system calls")
    url = session.store_url
    # Before the store is touched: a wrong name must not create anything.
    tables = None
    if system:
        tables = tables_of(system, directory or directory_url(session.settings, url))
    before, now = _migrate_store(url)
    # Opening it applies settings outside the schema, such as the journal mode.
    session.ask(StatsQuery())
    done = asyncio.run(tables.migrate()) if tables is not None else ()
    if session.json:
        session.terminal.document({"before": before, "now": now, "systems": done})
        return
    session.terminal.line(_store_line(before, now))
    for one in done:
        session.terminal.line(_migrated_line(one))


def _migrate_store(url: str) -> tuple[int, int]:
    if is_postgres(url):
        return migrate_postgres(url)
    if url.startswith("sqlite:"):
        return migrate_file(parse_url(url))
    if url.partition("://")[0] in REDIS_SCHEMES:
        return 0, 0
    message = f"a {url.partition(':')[0]}:// store is not durable"
    raise InvalidValue(message, hint="use sqlite:///headway.db, postgresql://… or redis://…")


def _store_line(before: int, now: int) -> str:
    if not now:
        return "the store is ready: it needs no schema"
    if before == now:
        return f"the store is current: schema {now}"
    return f"the store is ready: its schema went from {before} to {now}"


def _migrated_line(one: Migrated) -> str:
    if one.before == one.now:
        return f"the tables of {one.system} are current: {one.now}"
    return f"the tables of {one.system} are ready: {one.before or 'none'} became {one.now}"


EVERYTHING = "all"
"""The gate of all jobs, which is closed while a store is copied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """The result of a copy.

    Attributes:
        rows: Number of copied rows by part.
        counts: Number of jobs in the new store by state.
        closed: Whether the new store is closed, as the old one was before.
    """

    rows: dict[str, int]
    counts: dict[str, int]
    closed: bool


async def copy_store(
    source: Store,
    target: Store,
    author: str,
    signed: Signed,
    meter: Meter,
    keep_trail_ms: int = TRAIL_KEPT_MS,
) -> Copied:
    """Copy a stopped store into an empty one.

    The source is swept first, to reclaim the runs of workers that are gone. It is closed and stays
    closed, so that its jobs are not dispatched twice. The target stays closed until everything is
    copied, and is then opened or closed as the source was. If the copy fails, the source's gate is
    restored.

    Raises:
        InvalidValue: a store cannot be copied from or to, the source is empty, or the target is
            not empty.
        InvalidState: a worker is alive on the source, or it was changed during the copy.
        StoreUnavailable: the copy failed, and the source's gate could not be restored; or all is
            copied, but the target could not be opened.
    """
    if not isinstance(source, Movable) or not isinstance(target, Movable):
        message = "one of the two stores is not durable, so there is nothing to copy"
        raise InvalidValue(message, hint="copy between sqlite, postgresql and redis")
    if await _is_empty(source):
        message = "the store to copy from is empty"
        raise InvalidValue(message, hint="the order is FROM, then TO; check ?namespace=")
    if not await _is_empty(target):
        message = "the store to copy to is not empty"
        raise InvalidValue(message, hint="use another file, or another ?namespace=")
    await _check_stopped(source)
    while (await source.sweep(MAX_BATCH, keep_trail_ms=keep_trail_ms)).again:
        pass
    as_it_was = await _closing(source)
    reason = signed.reason or "copied to another store"
    try:
        await _define(source, CloseGate(name=EVERYTHING, reason=reason), author)
        rows, counts = await _carry_closed(source, target, meter)
    except BaseException as failure:
        try:
            await _define(source, as_it_was, author)
        except StoreError as error:
            message = f"the copy failed, and its source stays paused: {str(failure) or error}"
            hint = "copy again to an empty store"
            if isinstance(as_it_was, OpenGate):
                hint = f"resume it with `headway resume all --store FROM`, then {hint}"
            else:
                hint = f"it was paused before, too; {hint}"
            raise StoreUnavailable(message, hint=hint) from failure
        raise
    try:
        await _define(target, as_it_was, author)
    except (StoreError, asyncio.CancelledError) as failure:
        why = str(failure) or "interrupted"
        message = f"everything is copied, but TO is perhaps still paused: {why}"
        hint = "resume it with `headway resume all --store TO`; FROM stays paused"
        raise StoreUnavailable(message, hint=hint) from failure
    return Copied(rows=rows, counts=counts, closed=isinstance(as_it_was, CloseGate))


async def _carry_closed(
    source: Movable, target: Movable, meter: Meter
) -> tuple[dict[str, int], dict[str, int]]:
    before, line = await _state(source)
    if running := before.counts.get(State.RUNNING, 0):
        message = f"the store to copy from has {counted(running, 'running job')}"
        raise InvalidState(message, hint="stop its workers, then copy again")
    rows = await _carry(source, target, before, meter)
    after, last_line = await _state(source)
    there = await target.read(StatsQuery())
    is_same = line == last_line and before.totals == after.totals
    if not is_same or not _jobs(before) == _jobs(after) == _jobs(there):
        message = "the source was changed while it was copied"
        raise InvalidState(message, hint="stop its senders, then copy again to an empty store")
    return rows, _jobs(there)


async def _carry(
    source: Movable, target: Movable, before: StatsView, meter: Meter
) -> dict[str, int]:
    total = sum(before.counts.values())
    rows: dict[str, int] = {}
    cursor: str | None = None
    while True:
        chunk = await source.export_chunk(cursor)
        await target.import_chunk(chunk)
        rows[chunk.part] = rows.get(chunk.part, 0) + chunk.size
        meter(rows.get("jobs", 0), total)
        cursor = chunk.cursor
        if cursor is None:
            return rows


async def _is_empty(store: Store) -> bool:
    stats = await store.read(StatsQuery())
    return not (
        sum(stats.counts.values())
        or await store.read(SpecsQuery())
        or await store.read(LanesQuery())
        or await store.read(TimetableQuery())
        or await store.read(TokensQuery())
        or (await store.read(GatesQuery(limit=1))).rows
    )


async def _check_stopped(source: Store) -> None:
    stats = await source.read(StatsQuery())
    workers = await source.read(WorkersQuery())
    living = [worker for worker in workers if worker.lease_until > stats.now]
    if living:
        names = ", ".join(worker.name or worker.id for worker in living[:3])
        live = counted(len(living), "worker lives", "workers live")
        message = f"{live} on the store to copy from: {names}"
        left = rounded_duration(max(worker.lease_until for worker in living) - stats.now)
        hint = f"stop them; if they were killed, wait until their leases have ended, in {left}"
        raise InvalidState(message, hint=hint)


async def _closing(source: Store) -> CloseGate | OpenGate:
    """Return the change that opens or closes another store in the same way as this one."""
    page = await source.read(GatesQuery(names=(EVERYTHING,)))
    for gate in page.rows:
        if gate.closed_until is not None:
            until = gate.closed_until if gate.closed_until < FOREVER else None
            return CloseGate(name=EVERYTHING, until_at=until, reason=gate.closed_reason)
    return OpenGate(name=EVERYTHING)


async def _define(store: Store, item: CloseGate | OpenGate, author: str) -> None:
    await store.define(DefineRequest(items=(item,), author=author))


async def _state(source: Store) -> tuple[StatsView, int]:
    """Return the counts of a store, and the number of its trail's last line.

    Changes of definitions and operators' actions on jobs write a line, though not all of them
    change a count.
    """
    lines = (await source.read(TrailQuery(limit=1))).rows
    return await source.read(StatsQuery()), lines[0].seq if lines else 0


def _jobs(stats: StatsView) -> dict[str, int]:
    return {state: n for state, n in stats.counts.items() if n}


copy_app = new_command()


@command(copy_app)
def copy(
    session: CommandSession,
    source: Annotated[str, typer.Argument(metavar="FROM", help="URL of the store to copy from.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of the store to copy to.")],
    signed: Signed,
) -> None:
    """Copy a stopped store into an empty one, of the same or another type.

    It copies jobs in every state with their runs, keys, permits and trails, and the gates with
    their usage, closings, lanes, the timetable and kept signals. Stop workers and senders first.
    FROM is paused (`headway pause all`) and stays paused; TO is resumed once everything is copied,
    unless FROM was paused before. With --json: {"rows": {part: number}, "jobs": {state: number},
    "closed"}.

    Raises:
        InvalidValue: both are the same store, or one of them is not durable.
        StoreUnavailable: there is no store to copy from.
    """
    session.refuse_store("name both stores as arguments: headway copy FROM TO")
    if source == target:
        message = "the store to copy from and the one to copy to are the same"
        raise InvalidValue(message, hint="pass two different URLs: headway copy FROM TO")
    if "memory" in {url.partition("://")[0] for url in (source, target)}:
        message = "a memory:// store ends with this command"
        raise InvalidValue(message, hint="copy between sqlite, postgresql and redis")
    file = store_file(source)
    if file is not None and not file.exists():
        message = f"there is no store at {file}"
        raise StoreUnavailable(message, hint="the order is FROM, then TO")
    copied = asyncio.run(_copy(session, source, target, signed))
    if session.json:
        session.terminal.document(
            {"rows": copied.rows, "jobs": copied.counts, "closed": copied.closed}
        )
        return
    session.terminal.line(f"{counted(sum(copied.counts.values()), 'job')} copied")
    session.terminal.remark("FROM is paused and stays paused; point all processes to TO")
    if copied.closed:
        session.terminal.remark(
            "TO is paused, as FROM was: resume it with `headway resume all --store TO`"
        )


async def _copy(session: CommandSession, source: str, target: str, signed: Signed) -> Copied:
    author = session.author(signed.author)
    keep_trail_ms = parse_duration(session.settings.keep_trail)
    old = open_store(unmigrated_url(source))
    try:
        new = open_store(target)
        try:
            with progress(session.terminal, "copy jobs") as meter:
                return await copy_store(old, new, author, signed, meter, keep_trail_ms)
        finally:
            await new.close()
    finally:
        await old.close()
