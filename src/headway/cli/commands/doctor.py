"""`headway doctor`, `headway audit`: find faults, and suggest how to fix them."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.doctor import Finding, Health, ok, problem
from headway.cli.doctor.other_services import check_calendar, check_field_service, check_kafka
from headway.cli.doctor.sqlite_file import (
    check_integrity,
    check_library,
    check_machine_clock,
    check_permissions,
    check_room,
)
from headway.cli.doctor.store import (
    check_clock,
    check_gates,
    check_jobs,
    check_lanes,
    check_permits,
    check_signal_urls,
    whole_audit,
)
from headway.cli.extras import is_postgres
from headway.cli.failures import NO
from headway.cli.options import Signed
from headway.cli.progress import progress
from headway.cli.session import CommandSession, store_file
from headway.cli.terminal import rounded_duration
from headway.contract.extensions import Repairable
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue, StoreError
from headway.core.naming import counted
from headway.runtime.records import record
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES
from headway.stores.sqlite import parse_url

PLACES = frozenset({"file", "server"})
"""Subjects whose problems keep the store from being opened."""


def check_place(url: str) -> list[Finding]:
    """Check a SQLite store's file, or a PostgreSQL or Redis store's server."""
    try:
        # Imported here: a driver may not be installed.
        if is_postgres(url):
            from headway.cli.doctor.postgres_server import check_postgres  # noqa: PLC0415

            return check_postgres(url)
        if url.partition("://")[0] in REDIS_SCHEMES:
            from headway.cli.doctor.redis_server import check_redis  # noqa: PLC0415

            return check_redis(url)
    except ImportError as error:
        extra = "postgres" if is_postgres(url) else "redis"
        found = f"a package is not installed: {error.name}"
        return [problem("server", found, f"pip install 'headway[{extra}]'")]
    path = store_file(url)
    if path is None:
        return []
    if not path.is_file():
        found = f"{path} {'is not a regular file' if path.exists() else 'does not exist'}"
        hint = "create it with headway migrate, or pass --store"
        return [*check_library(), problem("file", found, hint)]
    return [
        *check_library(),
        *check_permissions(path),
        *check_room(path, parse_url(url).reserve_bytes),
        *check_machine_clock(path),
        *check_integrity(path),
    ]


async def check_store(store: Store) -> list[Finding]:
    """Check the content of an open store."""
    stats = await store.read(StatsQuery())
    total = sum(stats.counts.values())
    found = await store.suspicion() if isinstance(store, Repairable) else None
    return [
        ok("store", f"{stats.identity}, epoch {stats.epoch}, {counted(f'{total:,}', 'job')}")
        if found is None
        else problem("store", f"nothing is claimed: {found.message}", found.hint),
        *await check_clock(store),
        *await check_permits(store),
        *await check_gates(store),
        *await check_lanes(store),
        *await check_jobs(store),
    ]


app = new_command()

_STYLES = {Health.OK: "green", Health.WARNING: "yellow", Health.PROBLEM: "red"}


@command(app)
def doctor(
    session: CommandSession,
    signed: Signed,
    new_epoch: Annotated[
        bool,
        typer.Option("--new-epoch", help="After a restore: invalidate all runs from before it."),
    ] = False,
    reset_clock: Annotated[
        bool,
        typer.Option("--reset-clock", help="Reset the store's time to this machine's clock."),
    ] = False,
) -> None:
    """Check the store and its file or server: integrity, disk space, clock, gates, stuck jobs.

    With --json: {"findings": [{"subject", "health", "found", "hint"}], "problems", "warnings"}.
    Exits with 1 if there is a problem; warnings do not count.

    Raises:
        InvalidValue: this type of store has no epoch or clock to fix.
        Exit: with code 1, there is a problem.
    """
    if new_epoch or reset_clock:
        session.with_store(lambda store: _repair(session, store, signed, clock=reset_clock))
    findings = check_place(session.store_url)
    if not any(one.subject in PLACES and one.health is Health.PROBLEM for one in findings):
        try:
            findings += session.with_store(lambda store: _check_everything(session, store))
        except StoreError as error:
            findings.append(problem("store", error.message, error.hint))
    _print_findings(session, findings)
    if any(one.health is Health.PROBLEM for one in findings):
        raise typer.Exit(NO)


async def _check_everything(session: CommandSession, store: Store) -> list[Finding]:
    return [
        *await check_store(store),
        *await check_signal_urls(store, session.settings),
        *await check_kafka(session.settings),
        *await check_field_service(session.settings, session.store_url),
        *await check_calendar(session.settings, store),
    ]


async def _repair(session: CommandSession, store: Store, signed: Signed, *, clock: bool) -> None:
    if not isinstance(store, Repairable):
        message = f"the store {session.store_url} has no epoch or clock to fix"
        raise InvalidValue(message, hint="use a durable store: sqlite, postgresql or redis")
    author = session.author(signed.author)
    if clock:
        back_ms = await store.reset_clock(author, signed.reason)
        session.terminal.remark(f"the store's time went back by {rounded_duration(back_ms)}")
    else:
        await store.new_epoch(author, signed.reason)
    session.terminal.remark("a new epoch: runs from before can no longer write anything")


def _print_findings(session: CommandSession, findings: list[Finding]) -> None:
    if session.json:
        session.terminal.document(
            {
                "findings": [one._asdict() for one in findings],
                "problems": sum(one.health is Health.PROBLEM for one in findings),
                "warnings": sum(one.health is Health.WARNING for one in findings),
            }
        )
        return
    for one in findings:
        hint = f" ({one.hint})" if one.hint else ""
        line = f"{one.health.value:<8} {one.subject}: {one.found}{hint}"
        session.terminal.line(line, "" if one.health is Health.OK else _STYLES[one.health])


audit_app = new_command()


@command(audit_app)
def audit(session: CommandSession) -> None:
    """Check that permits match their holders, and counts match permits.

    Safe to run at any time; workers keep running. Exits with 1 if there is a difference, which is a
    bug in Headway: please report it with this output.

    Raises:
        Exit: with code 1, there are differences.
    """
    with progress(session.terminal, "audit") as meter:
        found = session.with_store(lambda store: whole_audit(store, meter))
    if session.json:
        session.terminal.document(record(found))
    else:
        gates, permits = counted(found.gates, "gate"), counted(found.permits, "permit")
        looked = f"{gates}, {permits}, {counted(found.held, 'held job')}"
        if found.differences:
            session.terminal.table(
                ["WHERE", "DIFFERENCE"], [(one.where, one.what) for one in found.differences], ""
            )
            differences = counted(len(found.differences), "difference")
            session.terminal.remark(f"{differences} in {looked}", "red")
        else:
            session.terminal.line(f"no difference in {looked}")
    if found.differences:
        raise typer.Exit(NO)
