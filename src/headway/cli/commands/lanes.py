"""`headway lanes`: the lanes with what each holds, and changing what one carries."""

from __future__ import annotations

from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.completing import complete_lane
from headway.cli.defining import define
from headway.cli.lane_values import LaneValues
from headway.cli.local_clock import rough
from headway.cli.options import Signed
from headway.cli.session import Session
from headway.contract.definitions import LaneSpec, ResetLane, SetLane
from headway.contract.store import Store
from headway.contract.views import LanesQuery, LaneView
from headway.core.duration import format_duration
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.runtime.records import record

app = new_command()

_COUNTED = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


LaneName = Annotated[
    str, typer.Argument(metavar="LANE", help="The lane's name.", autocompletion=complete_lane)
]


@command(app, default=True)
def lanes(
    session: Session,
    lane: Annotated[
        list[str] | None,
        typer.Option(help="Only this one; may be repeated.", autocompletion=complete_lane),
    ] = None,
    latency: Annotated[
        bool, typer.Option("--latency", help="How long jobs wait from due to start instead.")
    ] = False,
) -> None:
    """Lists lanes with their jobs by state and the live workers that serve them.

    With --latency: the waits of the newest hundred first starts of the last hour, and of the job
    at the head, beside the lane's target. With --json: {"lanes": [...]}.
    """
    if latency:
        _show_latencies(session, lane)
        return
    found = session.ask(LanesQuery(names=tuple(lane) if lane else None))
    if session.json:
        session.terminal.document({"lanes": [record(one) for one in found]})
        return
    session.terminal.table(
        ["LANE", *(name.upper() for name in _COUNTED), "CANCELLED", "WORKERS", "OLDEST DUE", ""],
        [_row(session, one) for one in found],
        empty="no lanes: one comes into being with its first job",
    )


def _show_latencies(session: Session, names: list[str] | None) -> None:
    found = session.with_store(lambda store: lane_latencies(store, names or None))
    if session.json:
        session.terminal.document({"lanes": [record(one) for one in found]})
        return
    session.terminal.table(
        ["LANE", "TARGET", "STARTS", "P50", "P95", "MAX", "HEAD", ""],
        [_latency_row(one) for one in found],
        empty="no lanes: one comes into being with its first job",
    )


def _latency_row(one: LaneLatency) -> list[str]:
    spans = (one.p50_ms, one.p95_ms, one.max_ms, one.head_ms)
    what = "handlers missing" if one.handlers_missing else "above target"
    return [
        one.lane,
        "" if one.target_ms is None else format_duration(one.target_ms),
        str(one.starts),
        *("" if span is None else rough(span) for span in spans),
        what if one.breached else "",
    ]


def _row(session: Session, lane: LaneView) -> list[str]:
    return [
        lane.name,
        *(str(lane.counts.get(name, 0)) for name in _COUNTED),
        str(lane.counts.get("cancelled", 0)),
        str(lane.workers),
        session.clock.at(lane.oldest_due_at),
        "paused" if lane.paused else "",
    ]


@command(app, "set")
def set_(session: Session, name: LaneName, values: LaneValues, signed: Signed) -> None:
    """Changes what a lane carries; it wins over what code declares until `lanes reset`.

    What is not named stays as it is now.

    Raises:
        InvalidValue: nothing to change was given, or a value is unusable.
    """
    values.refuse_nothing(name)

    async def work(store: Store) -> LaneSpec:
        found = await store.read(LanesQuery(names=(name,)))
        return found[0].spec if found else LaneSpec(name=name)

    spec = values.change(session.with_store(work))
    define(session, SetLane(spec=spec), signed, done=f"{name} is set", about=f"lane:{name}")


@command(app, "reset")
def reset(session: Session, name: LaneName, signed: Signed) -> None:
    """Forgets an operator's values; what code declares holds again."""
    define(
        session, ResetLane(name=name), signed, done=f"{name} is as declared", about=f"lane:{name}"
    )
