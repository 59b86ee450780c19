"""`headway lanes`: the lanes, and how many jobs each holds."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.records import record
from headway.cli.session import Session
from headway.contract.views import LanesQuery, LaneView

app = new_command()

_COUNTED = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


@command(app)
def lanes(
    session: Session,
    names: Annotated[list[str] | None, typer.Argument(help="Only these.")] = None,
) -> None:
    """Lists lanes with their jobs by state and the live workers that serve them.

    With --json: {"lanes": [...]}.
    """
    found = session.ask(LanesQuery(names=tuple(names) if names else None))
    if session.json:
        session.terminal.document({"lanes": [record(lane) for lane in found]})
        return
    session.terminal.table(
        ["LANE", *(name.upper() for name in _COUNTED), "CANCELLED", "WORKERS", "OLDEST DUE", ""],
        [_row(session, lane) for lane in found],
        empty="no lanes: one comes into being with its first job",
    )


def _row(session: Session, lane: LaneView) -> list[str]:
    return [
        lane.name,
        *(str(lane.counts.get(name, 0)) for name in _COUNTED),
        str(lane.counts.get("cancelled", 0)),
        str(lane.workers),
        session.clock.at(lane.oldest_due_at),
        "paused" if lane.paused else "",
    ]
