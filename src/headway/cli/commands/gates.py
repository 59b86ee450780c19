"""`headway gates`: the gates as they stand, and changing them."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.completing import complete_gate
from headway.cli.defining import close, define
from headway.cli.exits import NO
from headway.cli.gate_numbers import GateNumbers
from headway.cli.gate_rows import GATE_COLUMNS, capacity_text, gate_facts, gate_row, gate_state
from headway.cli.options import Signed, Until
from headway.cli.session import Session
from headway.contract.definitions import OpenGate, ResetGate
from headway.contract.store import Store
from headway.contract.views import GatesQuery, GateState, StatsQuery
from headway.core.errors import UnknownGate
from headway.runtime.records import record

app = new_command()

GateName = Annotated[
    str, typer.Argument(metavar="GATE", help="The gate's name.", autocompletion=complete_gate)
]


@command(app, default=True)
def gates(
    session: Session,
    cursor: Annotated[str | None, typer.Option(help="Go on where a page ended.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
) -> None:
    """Lists gates that are declared, capped, closed or held, by name.

    With --json: {"gates": [...], "cursor": ...}, the cursor null at the end.
    """

    async def work(store: Store) -> tuple[tuple[GateState, ...], str | None, int]:
        page = await store.read(GatesQuery(cursor=cursor, limit=limit))
        return page.rows, page.cursor, (await store.read(StatsQuery())).now

    found, more, now = session.with_store(work)
    if session.json:
        session.terminal.document({"gates": [record(gate) for gate in found], "cursor": more})
        return
    session.terminal.table(
        GATE_COLUMNS,
        [gate_row(session.clock, gate, now) for gate in found],
        empty="no gates: they come with the App that declares them",
    )
    if more is not None:
        session.terminal.remark(f"there are more: --cursor {more}", "dim")


@command(app, "show")
def show(session: Session, name: GateName) -> None:
    """Shows one gate: how full, who holds it, when it opens.

    Raises:
        UnknownGate: there is no gate of that name.
    """

    async def work(store: Store) -> tuple[tuple[GateState, ...], int]:
        page = await store.read(GatesQuery(names=(name,)))
        return page.rows, (await store.read(StatsQuery())).now

    found, now = session.with_store(work)
    if not found or (found[0].kind == "implicit" and not _is_implicit(name)):
        message = f"there is no gate {name!r}"
        raise UnknownGate(message, hint="headway gates lists them")
    gate = found[0]
    if session.json:
        session.terminal.document(record(gate))
        return
    session.terminal.facts(gate_facts(session.clock, gate, now))
    if gate.members:
        session.terminal.line("")
        session.terminal.table(
            ["MEMBER", "STATE", "USED", "OF", "CLOSED BY", "REASON"],
            [
                (m.name, gate_state(m), str(m.used), capacity_text(m), m.closed_by, m.closed_reason)
                for m in gate.members
            ],
            empty="",
        )
    if gate.holders:
        session.terminal.line("")
        session.terminal.table(
            ["HELD BY", "RUN", "MEMBER", "PERMITS", "SINCE"],
            [
                (h.job, str(h.run), h.member, str(h.amount), session.clock.around(h.since, now))
                for h in gate.holders
            ],
            empty="",
        )
        if gate.holder_count > len(gate.holders):
            session.terminal.line(f"and {gate.holder_count - len(gate.holders)} more")


def _is_implicit(name: str) -> bool:
    """Whether it is one of the gates that every job passes, declared or not."""
    return name == "all" or name.startswith(("lane:", "tenant:", "kind:"))


@command(app, "set")
def set_(
    session: Session,
    name: GateName,
    numbers: GateNumbers,
    signed: Signed,
) -> None:
    """Changes a gate's numbers; they win over what code declares until `gates reset`.

    Any gate can be set: a declared one, one instance of a template, a pool's member as
    pool/member, or all, lane:NAME, tenant:NAME, kind:NAME.

    Raises:
        InvalidValue: nothing to change was given, or a number is none.
    """
    item = numbers.change(name)
    define(session, item, signed, done=f"{name} is set")


@command(app, "reset")
def reset(session: Session, name: GateName, signed: Signed) -> None:
    """Forgets an operator's numbers; what code declares holds again."""
    define(session, ResetGate(name=name), signed, done=f"{name} is as declared")


@command(app, "close")
def close_(session: Session, name: GateName, signed: Signed, until: Until = None) -> None:
    """Closes a gate, for good or until a moment; the same as `headway pause`."""
    close(session, name, until=until, signed=signed)


@command(app, "open")
def open_(session: Session, name: GateName, signed: Signed) -> None:
    """Ends a closing; the same as `headway resume`."""
    define(session, OpenGate(name=name), signed, done=f"{name} is not closed any more")


@command(app, "release")
def release(
    session: Session,
    name: GateName,
    job: Annotated[str, typer.Argument(help="The id of the job that holds it.")],
    signed: Signed,
) -> None:
    """Takes a permit from its holder by force. The job itself is left as it is.

    Raises:
        Exit: with code 1, the job held no permit there.
    """
    author = session.author(signed.author)

    async def work(store: Store) -> bool:
        return await store.release_permit(name, job, author, signed.reason)

    released = session.with_store(work)
    if session.json:
        session.terminal.document({"released": released})
    else:
        session.terminal.line("released" if released else f"{job} held no permit of {name}")
    if not released:
        raise typer.Exit(NO)
