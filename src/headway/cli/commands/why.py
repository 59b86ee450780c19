"""`headway why`: why a job stands where it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.session import Session
from headway.contract.views import GateState, WhyQuery, WhyView
from headway.core.errors import UnknownJob
from headway.runtime.records import record

app = new_command()


@command(app)
def why(session: Session, id: Annotated[str, typer.Argument(help="The job's id.")]) -> None:  # noqa: A002  (the argument's name in the help)
    """Says in one sentence why a job is not running, and the facts behind it.

    Raises:
        UnknownJob: there is no such job.
    """
    found = session.ask(WhyQuery(id=id))
    if found is None:
        message = f"there is no job {id!r}"
        raise UnknownJob(message, hint="headway jobs lists them; final ones are kept for a time")
    if session.json:
        session.terminal.document(record(found))
        return
    session.terminal.line(found.sentence, "bold")
    session.terminal.line("")
    session.terminal.facts(_facts(session, found))
    if found.closed:
        session.terminal.line("")
        session.terminal.table(
            ["IN ITS WAY", "KIND", "USED", "OF", "OPENS", "CLOSED BY", "REASON", "HELD BY"],
            [_gate(session, gate, found.now) for gate in found.closed],
            empty="",
        )


def _facts(session: Session, found: WhyView) -> list[tuple[str, str]]:
    place = "" if found.place is None else f"{found.place}." if found.place <= 1000 else "1000+"
    return [
        ("job", found.id),
        ("state", found.shown),
        ("place in its flow", place),
        ("live workers", str(found.workers)),
        ("next", session.clock.around(found.next_at, found.now)),
        ("never fits", ", ".join(found.never_fits)),
    ]


def _gate(session: Session, gate: GateState, now: int) -> list[str]:
    holders = ", ".join(f"{one.job}:{one.run}" for one in gate.holders[:3])
    more = gate.holder_count - min(len(gate.holders), 3)
    opens = gate.opens_at if gate.opens_at is not None else gate.closed_until
    return [
        gate.name,
        gate.kind,
        str(gate.used),
        "" if gate.capacity is None else str(gate.capacity),
        session.clock.around(opens, now),
        gate.closed_by,
        gate.closed_reason,
        f"{holders} and {more} more" if more > 0 else holders,
    ]
