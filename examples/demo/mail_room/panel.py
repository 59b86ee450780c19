"""The mail room on the screen: each lane with its letters, target and latency."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.demo.mail_room.room import MailRoom
from headway.systems.lanes.views import LaneStatus, Status

LANES = ("send_email", "send_outreach", "enrich", "notify")
SHOWN = (Status.QUEUED, Status.PULLED, Status.FAILED, Status.DONE, Status.DEAD)


def mail_line(room: MailRoom) -> str:
    """Return the numbers of accepted and arrived letters, in one line."""
    taken, sender = room.postbox.taken, room.sender
    doubled = sum(1 for times in taken.values() if times > 1)
    died = sum(len(worker.died) for worker in room.crew.workers)
    mails = sum(one.is_mail for one in sender.accepted.values())
    return (
        f"mail room: {len(sender.accepted)} accepted over HTTP ({sender.repeats} sent twice), "
        f"{len(taken)} of {mails} letters arrived ({doubled} twice), workers killed: {died}"
    )


def lane_lines(lanes: Sequence[LaneStatus]) -> list[str]:
    """Return a line for each lane."""
    return [
        f"{lane.lane:<13} {' '.join(f'{lane.statuses.get(one, 0)} {one}' for one in SHOWN)}; "
        f"starts in {_reached(lane)}, target {_target(lane)}"
        for lane in lanes
    ]


def lane_table(room: MailRoom, lanes: Sequence[LaneStatus]) -> RenderableType:
    """Return the line and a table of the lanes."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("lane")
    for heading in (*SHOWN, "target", "reached"):
        table.add_column(heading, justify="right")
    for lane in lanes:
        counts = [str(lane.statuses.get(one, 0)) for one in SHOWN]
        style = "red" if lane.latency.breached else "green"
        table.add_row(lane.lane, *counts, _target(lane), Text(_reached(lane), style=style))
    return Group(Text(mail_line(room)), table)


def _target(lane: LaneStatus) -> str:
    target = lane.latency.target_ms
    return "none" if target is None else f"{target / 1000:g} s"


def _reached(lane: LaneStatus) -> str:
    """Return the time within which 95 of 100 jobs started."""
    reached = lane.latency.p95_ms
    return "no time yet" if reached is None else f"{reached / 1000:.1f} s"
