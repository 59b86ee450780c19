"""The display of the demo: read from the store a few times per second, drawn or printed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.columns import Columns
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import headway as hw
from examples.demo.airports import Airports
from examples.demo.automations.gardens import Gardens
from examples.demo.call_centre.centre import CallCentre
from examples.demo.mail_room.panel import LANES, lane_lines, lane_table, mail_line
from examples.demo.mail_room.room import MailRoom
from examples.demo.newsroom.newsroom import Newsroom
from examples.demo.repairs.desk import Repairs
from headway.contract.views import (
    GatesQuery,
    GateState,
    JobsQuery,
    LanesQuery,
    StatsQuery,
    StatsView,
    WhyQuery,
)
from headway.systems.lanes.views import LaneStatus, lane_statuses

AIRPORTS = ("EWR", "JFK", "LGA")
NUMBERS, LINES = "calls.numbers", "field.lines"
LANES_SHOWN = ("departures", "landings", "calls", "automations")
AGENTS = tuple(f"agents:{airport}" for airport in AIRPORTS)
_COLOURS = {
    "left": "cyan",
    "dialled": "blue",
    "busy": "yellow",
    "no answer": "yellow",
    "failed": "red",
    "completed": "green",
    "paused": "magenta",
    "help": "cyan",
    "accepted": "green",
    "declined": "yellow",
    "timeout": "yellow",
    "pending": "red",
    "again": "magenta",
    "unknown": "yellow",
    "killed": "red",
    "began": "cyan",
    "opted out": "magenta",
    "ended": "green",
}
_BAR = 24
_WIDE = 117
_LINES_WIDE, _LINES_NARROW = 21, 29
"""Lines of the screen without the log, with panels side by side or below each other."""


@dataclass(slots=True)
class Readings:
    """A snapshot of the store.

    Attributes:
        lanes: Number of jobs by state, by lane.
        gates: Gates by name.
        mail: The lanes of the mail room.
        why: Why one of the waiting jobs waits.
    """

    lanes: Mapping[str, Mapping[str, int]]
    gates: Mapping[str, GateState]
    stats: StatsView
    mail: Sequence[LaneStatus]
    why: str


@dataclass(slots=True)
class Display:
    """The state of the display.

    Attributes:
        events: The latest events, newest last, as (word, sentence).
        counted: Number of events by word.
    """

    store: hw.Store
    where: str
    airports: Airports | None = None
    calls: CallCentre | None = None
    repairs: Repairs | None = None
    mail: MailRoom | None = None
    newsroom: Newsroom | None = None
    gardens: Gardens | None = None
    events: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=14))
    counted: dict[str, int] = field(default_factory=dict)
    _turn: int = 0

    def notify(self, word: str, sentence: str) -> None:
        """Add an event."""
        self.events.append((word, sentence))
        self.counted[word] = self.counted.get(word, 0) + 1

    async def read(self) -> Readings:
        """Take a snapshot of the store."""
        if self.calls is not None:
            self.calls.watch()
        lanes = await self.store.read(LanesQuery(names=LANES_SHOWN))
        names = (NUMBERS, LINES, *AGENTS)
        gates = await self.store.read(GatesQuery(names=names))
        return Readings(
            lanes={lane.name: lane.counts for lane in lanes},
            gates={gate.name: gate for gate in gates.rows},
            stats=await self.store.read(StatsQuery()),
            mail=await lane_statuses(self.store, LANES),
            why=await self._why(),
        )

    async def _why(self) -> str:
        """Return why a waiting job waits, from each lane and state in turn.

        Blocked jobs are preferred. Otherwise this is about the first job, which may have started
        since it was listed. Return "" if no job waits.
        """
        found = ""
        for _ in range(8):
            self._turn += 1
            lane = ("departures", "calls", "offers", "automations")[self._turn % 4]
            state = (hw.State.PARKED, hw.State.WAITING)[self._turn // 4 % 2]
            page = await self.store.read(JobsQuery(lane=lane, states=(state,), limit=4))
            for job in page.rows:
                view = await self.store.read(WhyQuery(id=job.id))
                if view is None:
                    continue
                sentence = f"{job.kind} {job.subject or job.key or job.id}: {view.sentence}"
                if view.closed:
                    return sentence
                found = found or sentence
        return found

    # ---------------------------------------------------------------------------------- lines

    def lines(self, readings: Readings, seconds: float) -> list[str]:
        """Return a few lines for output without a terminal."""
        lines = [f"{seconds:5.1f} s  {self._flights(readings)}"]
        lines.append(f"         {self._calls(readings)}")
        lines.append(f"         {self._repairs()}")
        if self.newsroom:
            lines.append(f"         {_issues(self.newsroom)}")
        if self.gardens:
            lines.append(f"         {self._sessions(readings)}")
        bars = "  ".join(f"{gate.name} {_share(gate)}" for gate in _bars(readings))
        lines.append(f"         {bars}")
        if self.mail:
            rows = [mail_line(self.mail), *lane_lines(readings.mail)]
            lines += [f"         {row}" for row in rows]
        if readings.why:
            lines.append(f"         why: {readings.why}")
        return lines

    def _flights(self, readings: Readings) -> str:
        counts = readings.lanes.get("departures", {})
        clock = self.airports.clock() if self.airports else None
        waiting = counts.get("waiting", 0) + counts.get("parked", 0)
        return (
            f"{clock:%H:%M}  departures: {self.airports.left if self.airports else 0} left, "
            f"{counts.get('awaiting', 0)} in the air, {waiting} held, "
            f"{counts.get('scheduled', 0)} to come"
        )

    def _calls(self, readings: Readings) -> str:
        counts, calls = readings.lanes.get("calls", {}), self.calls
        held = counts.get("waiting", 0) + counts.get("parked", 0)
        return (
            f"calls: {calls.dialled if calls else 0} dialled, {calls.live if calls else 0} live, "
            f"{held} leads held, {counts.get('scheduled', 0)} to be retried, "
            f"{counts.get('succeeded', 0)} completed, {counts.get('dead', 0)} given up"
        )

    def _repairs(self) -> str:
        counts = self.repairs.counts if self.repairs else Counter[str]()
        shown = ("dispatching", "assigned", "completed", "pending", "cancelled")
        listed = ", ".join(f"{counts[one]} {one}" for one in shown)
        return f"repairs: {listed}"

    def _sessions(self, readings: Readings) -> str:
        counts = readings.lanes.get("automations", {})
        held = counts.get("waiting", 0) + counts.get("parked", 0)
        return (
            f"automations: {counts.get('awaiting', 0)} sessions run, {held} wait, "
            f"{counts.get('succeeded', 0)} done, {counts.get('dead', 0)} killed at their timeout"
        )

    # --------------------------------------------------------------------------------- screen

    def drawn(self, readings: Readings, seconds: float, size: ConsoleDimensions) -> RenderableType:
        """Return the whole screen.

        Args:
            readings: The snapshot.
            seconds: Time since the start.
            size: Size of the terminal; the log fills the remaining lines.
        """
        head = Text(f"Headway, {seconds:.0f} s", style="bold")
        if self.mail:
            head.append(f"   {self.mail.url}")
        head.append(f"   {self.where}   Ctrl-C ends it", style="dim")
        head.truncate(size.width)
        panels = Columns(
            [
                Panel(self._airports_panel(readings), title="a day of departures", width=58),
                Panel(
                    self._calls_panel(readings),
                    title="calls, repairs, notifications, automations",
                    width=58,
                ),
            ]
        )
        parts: list[RenderableType] = [head, panels]
        if self.mail:
            at = f"the mail room  {self.mail.url}  /v1 /docs /metrics /events"
            parts.append(Panel(lane_table(self.mail, readings.mail), title=at, width=_WIDE))
        taken = _LINES_WIDE if size.width >= _WIDE else _LINES_NARROW
        parts.append(self._log(max(3, size.height - taken)))
        why = Text("why is it not running?  ", style="bold")
        why.append(readings.why or "nothing waits", style="default")
        return Group(*parts, why)

    def _airports_panel(self, readings: Readings) -> RenderableType:
        return Group(
            Text(self._flights(readings)), _bar_table([readings.gates.get(n) for n in AGENTS])
        )

    def _calls_panel(self, readings: Readings) -> RenderableType:
        pool = readings.gates.get(NUMBERS)
        lines = list(pool.members) if pool else []
        rows = [Text(self._repairs())]
        if self.newsroom:
            rows.append(Text(_issues(self.newsroom)))
        if self.gardens:
            rows.append(Text(self._sessions(readings)))
        return Group(Text(self._calls(readings)), _bar_table(lines), *rows)

    def _log(self, lines: int) -> RenderableType:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(width=11)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for word, sentence in list(self.events)[-lines:]:
            table.add_row(Text(word, style=_COLOURS.get(word, "")), Text(sentence))
        return table


def _issues(room: Newsroom) -> str:
    inbox = room.inbox
    return (
        f"notifications: {len(room.issues)} accepted ({room.repeats} sent twice), "
        f"{len(inbox.taken)} arrived, the mail server was busy {inbox.refused} times"
    )


def _bars(readings: Readings) -> list[GateState]:
    return [readings.gates[name] for name in (NUMBERS, LINES, *AGENTS) if name in readings.gates]


def _share(gate: GateState) -> str:
    return f"{_used(gate)} of {_most(gate)}"


def _used(gate: GateState) -> int:
    return sum(one.used for one in gate.members) if gate.members else gate.used


def _most(gate: GateState) -> int:
    if gate.members:
        return sum(one.capacity or 0 for one in gate.members)
    return gate.capacity or 0


def _bar_table(gates: Sequence[GateState | None]) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for gate in gates:
        if gate is None:
            continue
        used, most = _used(gate), max(1, _most(gate))
        full = min(_BAR, round(_BAR * used / most))
        bar = Text("█" * full, style="red" if used >= most else "green")
        bar.append("░" * (_BAR - full), style="dim")
        table.add_row(Text(gate.name.rpartition("/")[2]), bar, Text(_share(gate)))
    return table
