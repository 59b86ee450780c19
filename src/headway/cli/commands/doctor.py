"""`headway doctor`: looks for what is wrong, and says how to fix it."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.doctor.cassandra import look_at_calendar
from headway.cli.doctor.field_service import look_at_field_service
from headway.cli.doctor.finding import Finding, Health, problem
from headway.cli.doctor.kafka import look_at_kafka
from headway.cli.doctor.rounds import PLACES, look_at_place, look_at_store
from headway.cli.doctor.signal_urls import look_at_signal_urls
from headway.cli.failures import NO
from headway.cli.local_clock import rough
from headway.cli.options import Signed
from headway.cli.session import Session
from headway.contract.repair import Repairable
from headway.contract.store import Store
from headway.core.errors import InvalidValue, StoreError

app = new_command()

_STYLES = {Health.WELL: "green", Health.WARNING: "yellow", Health.PROBLEM: "red"}


@command(app)
def doctor(
    session: Session,
    signed: Signed,
    new_epoch: Annotated[
        bool,
        typer.Option("--new-epoch", help="After a restore: fence every run from before it."),
    ] = False,
    reset_clock: Annotated[
        bool,
        typer.Option("--reset-clock", help="Set the store's time back to this machine's clock."),
    ] = False,
) -> None:
    """Look at the store and its file or server: whole, writable, room, clock, gates, stuck jobs.

    With --json: {"findings": [{"subject", "health", "found", "hint"}], "problems", "warnings"}.
    The exit code is 1 if there is a problem; a warning is none.

    Raises:
        InvalidValue: this kind of store has no epoch or clock to fix.
        Exit: with code 1, there is a problem.
    """
    if new_epoch or reset_clock:
        session.with_store(lambda store: _repair(session, store, signed, clock=reset_clock))
    findings = look_at_place(session.store_url)
    if not any(one.subject in PLACES and one.health is Health.PROBLEM for one in findings):
        try:
            findings += session.with_store(lambda store: _look(session, store))
        except StoreError as error:
            findings.append(problem("store", error.message, error.hint))
    _print_findings(session, findings)
    if any(one.health is Health.PROBLEM for one in findings):
        raise typer.Exit(NO)


async def _look(session: Session, store: Store) -> list[Finding]:
    return [
        *await look_at_store(store),
        *await look_at_signal_urls(store, session.settings),
        *await look_at_kafka(session.settings),
        *await look_at_field_service(session.settings, session.store_url),
        *await look_at_calendar(session.settings, store),
    ]


async def _repair(session: Session, store: Store, signed: Signed, *, clock: bool) -> None:
    if not isinstance(store, Repairable):
        message = f"the store {session.store_url} has no epoch or clock to fix"
        raise InvalidValue(message, hint="only a durable store has")
    author = session.author(signed.author)
    if clock:
        back_ms = await store.reset_clock(author, signed.reason)
        session.terminal.remark(f"the store's time went back by {rough(back_ms)}")
    else:
        await store.new_epoch(author, signed.reason)
    session.terminal.remark("a new epoch: what ran before can write nothing any more")


def _print_findings(session: Session, findings: list[Finding]) -> None:
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
        session.terminal.line(line, "" if one.health is Health.WELL else _STYLES[one.health])
