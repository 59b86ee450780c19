"""`headway gates`, `pause`, `resume`: the state of gates, and changing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.defining import close, define, similar_gates
from headway.cli.facts import GATE_COLUMNS, capacity_text, gate_facts, gate_row, gate_state
from headway.cli.failures import NO
from headway.cli.options import (
    Signed,
    Until,
    complete_gate,
    complete_target,
    duration_option,
    read_number,
)
from headway.cli.session import CommandSession
from headway.contract.definitions import OpenGate, ResetGate, SetGate
from headway.contract.views import GatesQuery
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.spec import is_implicit
from headway.runtime.records import record

app = new_command()

GateName = Annotated[
    str, typer.Argument(metavar="GATE", help="Name of the gate.", autocompletion=complete_gate)
]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateNumbers:
    """New limits; None leaves a limit unchanged."""

    capacity: Annotated[int | None, typer.Option(help="Number of permits.")] = None
    limit: Annotated[
        int | None, typer.Option(help="Number of starts a rate allows in its window.")
    ] = None
    per: Annotated[str | None, duration_option('Window of a rate, such as "1h".')] = None
    member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="A member of a pool and its permits; repeat for all members."
        ),
    ] = None

    def change(self, name: str) -> SetGate:
        """Return the requested change of a gate.

        Raises:
            InvalidValue: no option was passed, or a member does not have the form NAME=N.
        """
        if self.capacity is None and self.limit is None and self.per is None and not self.member:
            message = f"there is nothing to change about {name!r}"
            raise InvalidValue(message, hint="pass --capacity, --limit, --per or --member")
        return SetGate(
            name=name,
            capacity=self.capacity,
            limit=self.limit,
            per_ms=None if self.per is None else parse_duration(self.per),
            members=tuple(read_number("member", "NAME", one) for one in self.member)
            if self.member
            else None,
        )


@command(app, default=True)
def gates(
    session: CommandSession,
    cursor: Annotated[str | None, typer.Option(help="Cursor of the previous page.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of rows.")] = 100,
    parked: Annotated[bool, typer.Option("--parked", help="Only gates with parked jobs.")] = False,
) -> None:
    """List gates that are declared, changed, closed or held, by name.

    With --json: {"gates": [...], "cursor": ...}; the cursor is null on the last page.
    """
    page, now = session.ask_at(GatesQuery(parked=parked, cursor=cursor, limit=limit))
    if cursor is not None:
        empty = "no more gates"
    elif parked:
        empty = "no job is parked"
    else:
        empty = "no gates: an App declares them with its first send, or when its worker starts"
    session.terminal.listing(
        {"gates": [record(gate) for gate in page.rows], "cursor": page.cursor},
        GATE_COLUMNS,
        [gate_row(session.clock, gate, now) for gate in page.rows],
        empty=empty,
    )
    if page.cursor is not None and not session.json:
        session.terminal.remark(f"there are more: --cursor {page.cursor}", "dim")


@command(app, "show")
def show(session: CommandSession, name: GateName) -> None:
    """Show a gate: its usage, its holders, and when it opens.

    Raises:
        UnknownGate: there is no such gate.
    """
    page, now = session.ask_at(GatesQuery(names=(name,)))
    found = page.rows
    if not found or (found[0].implicit and not is_implicit(name)):
        message = f"there is no gate {name!r}"
        hint = session.with_store(
            lambda store: similar_gates(store, name, "headway gates lists them")
        )
        raise UnknownGate(message, hint=hint)
    gate = found[0]
    if session.json:
        session.terminal.document(record(gate))
        return
    session.terminal.facts(gate_facts(session.clock, gate, now))
    session.terminal.section(
        ["MEMBER", "STATE", "USED", "OF", "CLOSED BY", "REASON"],
        [
            (m.name, gate_state(m), str(m.used), capacity_text(m), m.closed_by, m.closed_reason)
            for m in gate.members
        ],
    )
    session.terminal.section(
        ["HELD BY", "RUN", "MEMBER", "PERMITS", "SINCE"],
        [
            (h.job, str(h.run), h.member, str(h.amount), session.clock.around(h.since, now))
            for h in gate.holders
        ],
    )
    if gate.holders and gate.holder_count > len(gate.holders):
        session.terminal.line(f"and {gate.holder_count - len(gate.holders)} more")


@command(app, "set")
def set_(
    session: CommandSession,
    name: GateName,
    numbers: GateNumbers,
    signed: Signed,
) -> None:
    """Change a gate's limits; they override the code's until `gates reset`.

    Any gate can be changed: a declared gate, an instance of a template, a pool member
    (POOL/MEMBER), or all, lane:NAME, tenant:NAME, kind:NAME.
    """
    define(session, name, numbers.change(name), signed, done=f"{name} is set")


@command(app, "reset")
def reset(session: CommandSession, name: GateName, signed: Signed) -> None:
    """Remove the operator's limits; the code's apply again."""
    define(session, name, ResetGate(name=name), signed, done=f"{name} is as declared")


@command(app, "close")
def close_(session: CommandSession, name: GateName, signed: Signed, until: Until = None) -> None:
    """Close a gate, indefinitely or until a time; same as `headway pause`."""
    close(session, name, until=until, signed=signed)


@command(app, "open")
def open_(session: CommandSession, name: GateName, signed: Signed) -> None:
    """Open a closed gate; same as `headway resume`."""
    define(session, name, OpenGate(name=name), signed, done=f"{name} is open again")


@command(app, "release")
def release(
    session: CommandSession,
    name: GateName,
    job: Annotated[str, typer.Argument(help="Id of the job that holds the permit.")],
    signed: Signed,
) -> None:
    """Revoke a permit from its holder. The job itself is not changed.

    Raises:
        Exit: with code 1, the job held no permit there.
    """
    author = session.author(signed.author)
    released = session.with_store(
        lambda store: store.release_permit(name, job, author, signed.reason)
    )
    session.terminal.reply(
        {"released": released}, "released" if released else f"{job} held no permit of {name}"
    )
    if not released:
        raise typer.Exit(NO)


pause_app = new_command()

Target = Annotated[
    str,
    typer.Argument(
        help="all, lane:NAME, tenant:NAME, kind:NAME, or any gate.", autocompletion=complete_target
    ),
]


@command(pause_app)
def pause(
    session: CommandSession,
    target: Target,
    signed: Signed,
    until: Until = None,
) -> None:
    """Stop starting jobs: all of them, or those of a lane, a tenant, a kind or a gate.

    It applies to jobs that are already waiting, and does not stop running jobs. `headway pause all`
    is the kill switch. `headway resume` undoes it.
    """
    close(session, target, until=until, signed=signed)


resume_app = new_command()


@command(resume_app)
def resume(
    session: CommandSession,
    target: Target,
    signed: Signed,
) -> None:
    """Undo a pause, no matter who set it. A gate that is not closed is left unchanged."""
    define(session, target, OpenGate(name=target), signed, done=f"{target} is open again")
