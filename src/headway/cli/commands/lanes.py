"""`headway lanes`: lanes with their job counts, and changing their settings."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from headway.cli.command import command, new_command
from headway.cli.defining import define
from headway.cli.options import JobFilter, Signed, complete_lane, duration_option, read_number
from headway.cli.session import CommandSession
from headway.cli.terminal import rounded_duration
from headway.contract.definitions import LaneSpec, ResetLane, SetLane
from headway.contract.store import Store
from headway.contract.views import LanesQuery, LaneView, StatsQuery
from headway.core.duration import format_duration
from headway.core.errors import InvalidValue, RevisionConflict
from headway.core.naming import check_name
from headway.runtime.declaration import LaneOptions, read_lane
from headway.runtime.latency import LaneLatency, lane_latencies
from headway.runtime.records import record

app = new_command()

_COUNTED = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


LaneName = Annotated[
    str, typer.Argument(metavar="LANE", help="Name of the lane.", autocompletion=complete_lane)
]


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneValues:
    """New settings; None leaves a setting unchanged."""

    concurrency: Annotated[
        int | None, typer.Option(help="Maximum number of its jobs running at once.")
    ] = None
    fair: Annotated[
        bool | None,
        typer.Option("--fair/--no-fair", help="Share starts fairly between tenants."),
    ] = None
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT=N", help="Weight of a tenant; repeat for all tenants."),
    ] = None
    target: Annotated[
        str | None,
        duration_option('Target for the latency from due to start, such as "30s".'),
    ] = None
    max_backlog: Annotated[
        int | None, typer.Option(help="Refuse new jobs when this many are unfinished.")
    ] = None
    lease: Annotated[
        str | None,
        duration_option(
            "How long runs of workers that start from now on stay valid without a heartbeat, such "
            'as "30s".'
        ),
    ] = None

    def refuse_nothing(self, name: str) -> None:
        """Check that at least one setting was passed.

        Raises:
            InvalidValue: none was.
        """
        given = (self.concurrency, self.fair, self.target, self.max_backlog, self.lease)
        if all(one is None for one in given) and not self.weight:
            message = f"there is nothing to change about the lane {name!r}"
            hint = "pass --concurrency, --fair, --weight, --target, --max-backlog or --lease"
            raise InvalidValue(message, hint=hint)

    def change(self, now: LaneSpec) -> LaneSpec:
        """Return the lane's settings after the change.

        Raises:
            InvalidValue: weights were passed for a lane that is not fair, or a value is not valid.
        """
        fair = now.fair == "tenant" if self.fair is None else self.fair
        if self.weight and not fair:
            message = f"--weight: the lane {now.name!r} is not fair"
            raise InvalidValue(message, hint="also pass --fair")
        weights = dict(now.weights) if fair else {}
        if self.weight:
            weights = dict(read_number("weight", "TENANT", one) for one in self.weight)
        wanted = {
            "concurrency": now.concurrency if self.concurrency is None else self.concurrency,
            "fair": "tenant" if fair else None,
            "weights": weights,
            "target": _span(self.target, now.target_ms),
            "max_backlog": now.max_backlog if self.max_backlog is None else self.max_backlog,
            "lease": _span(self.lease, now.lease_ms),
        }
        options = {name: value for name, value in wanted.items() if value is not None}
        return read_lane(now.name, cast("LaneOptions", options))


def _span(given: str | None, now_ms: int | None) -> str | None:
    return given if given is not None or now_ms is None else format_duration(now_ms)


@command(app, default=True)
def lanes(
    session: CommandSession,
    lane: Annotated[
        list[str] | None,
        typer.Option(help="Only this lane; repeatable.", autocompletion=complete_lane),
    ] = None,
    latency: Annotated[
        bool, typer.Option("--latency", help="Show the latency from due to start instead.")
    ] = False,
) -> None:
    """List lanes with their job counts by state and their live workers.

    With --latency: the latency of the last hundred first starts within the past hour, and the wait
    of the next job, compared with the lane's target. With --json: {"lanes": [...]}.
    """
    for name in lane or ():
        check_name("lane", name)
        session.notes(session.with_store(JobFilter(lane=name).unknown_names))
    if latency:
        _show_latencies(session, lane)
        return
    found = session.ask(LanesQuery(names=tuple(lane) if lane else None))
    session.terminal.listing(
        {"lanes": [record(one) for one in found]},
        ["LANE", *(name.upper() for name in _COUNTED), "CANCELLED", "WORKERS", "OLDEST DUE", ""],
        [_row(session, one) for one in found],
        empty="no lanes: a lane is created with its first job",
    )


def _show_latencies(session: CommandSession, names: list[str] | None) -> None:
    found = session.with_store(lambda store: lane_latencies(store, names or None))
    session.terminal.listing(
        {"lanes": [record(one) for one in found]},
        ["LANE", "TARGET", "STARTS", "P50", "P95", "MAX", "HEAD", ""],
        [_latency_row(one) for one in found],
        empty="no lanes: a lane is created with its first job",
    )


def _latency_row(one: LaneLatency) -> list[str]:
    spans = (one.p50_ms, one.p95_ms, one.max_ms, one.head_ms)
    what = "handlers missing" if one.handlers_missing else "above target"
    return [
        one.lane,
        "" if one.target_ms is None else format_duration(one.target_ms),
        str(one.starts),
        *("" if span is None else rounded_duration(span) for span in spans),
        what if one.breached else "",
    ]


def _row(session: CommandSession, lane: LaneView) -> list[str]:
    return [
        lane.name,
        *(str(lane.counts.get(name, 0)) for name in _COUNTED),
        str(lane.counts.get("cancelled", 0)),
        str(lane.workers),
        session.clock.at(lane.oldest_due_at),
        "paused" if lane.paused else "",
    ]


@command(app, "set")
def set_(session: CommandSession, name: LaneName, values: LaneValues, signed: Signed) -> None:
    """Change a lane's settings; they override the code's until `lanes reset`.

    Settings that are not passed stay unchanged.
    """
    values.refuse_nothing(name)

    async def work(store: Store) -> tuple[int, LaneSpec]:
        revision = (await store.read(StatsQuery())).revision
        found = await store.read(LanesQuery(names=(name,)))
        return revision, found[0].spec if found else LaneSpec(name=name)

    while True:
        revision, now = session.with_store(work)
        item = SetLane(spec=values.change(now))
        # The item replaces all settings, among them those that another operator sets meanwhile.
        with suppress(RevisionConflict):
            return define(
                session, f"lane:{name}", item, signed, done=f"{name} is set", revision=revision
            )


@command(app, "reset")
def reset(session: CommandSession, name: LaneName, signed: Signed) -> None:
    """Remove the operator's settings; the code's apply again."""
    define(session, f"lane:{name}", ResetLane(name=name), signed, done=f"{name} is as declared")
