"""The screen of `headway top`: live tables, and keys that act on the selected row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from headway.cli.facts import WHY_COLUMNS, gate_facts, why_facts, why_gate
from headway.cli.terminal import LocalClock, shown
from headway.cli.top.dialogs import ConfirmDialog, PageDialog
from headway.cli.top.rendering import (
    COLUMNS,
    as_text,
    cell,
    counts_line,
    facts_text,
    fitted,
    job_text,
    rates_line,
    rows,
    stuck,
)
from headway.cli.top.snapshot import STATES, Snapshot, SnapshotReader, View
from headway.contract.definitions import CloseGate, DefineRequest, OpenGate
from headway.contract.operate import Acted, ActRequest, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import GatesQuery, JobQuery, JobsQuery, StatsQuery, WhyQuery
from headway.core.errors import HeadwayError, UnknownGate, UnknownJob
from headway.core.hidden import hidden_text
from headway.core.state import State
from headway.runtime.timing import REAL, Timing

EACH_S = 0.9
"""Seconds between snapshots, so that changes are seen within a second."""
MOST_STUCK = 3
ASKED = 20
"""Number of jobs read to find the waiting job of a lane that was due first."""

_KEYS = "1-5 view  enter look  w why  p pause  c cancel  r retry  / find  ? help  q quit"
_HELP = """\
1 2 3 4 5, tab   lanes, gates, running, waiting, dead jobs
up, down         select a row
enter            look at the gate or job; of a lane, its waiting jobs
w                why does it wait: of a job, of a gate, of a lane's oldest job
p                pause or resume the lane; close or open the gate
c                cancel the job
r                retry the dead job
/                show only rows with this text in them; escape shows all again
escape           go back
q                quit

Each action asks first, and takes a reason for the trail.
Rates are those of the last 10 seconds. DONE/S are jobs of the lane that ended.
P50 and P95 are waits from due to start, of the newest 100 starts of the last
hour, read for one lane after the other. A view shows up to 100 jobs."""


class RowsTable(DataTable[Text]):
    """The rows of a view, with as many columns as fit."""

    class Fitted(Message):
        """The table has a new width."""

    def on_resize(self) -> None:
        """Request a repaint for the new width."""
        self.post_message(self.Fitted())


class Top(App[None]):
    """The screen."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen, ModalScreen { background: ansi_default; color: ansi_default; }
    ConfirmDialog { align: center middle; }
    ConfirmDialog > Static { width: 90%; height: auto; }
    ConfirmDialog > Input { width: 90%; }
    DataTable { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; }
    DataTable > .datatable--header, DataTable:ansi > .datatable--header {
        background: ansi_default; text-style: bold underline;
    }
    DataTable:focus > .datatable--cursor, DataTable > .datatable--cursor {
        background: ansi_default; color: ansi_default; text-style: reverse;
    }
    #head, #stuck, #views { text-wrap: nowrap; text-overflow: ellipsis; }
    .said { max-height: 4; }
    .keys, #keys { height: 1; text-wrap: nowrap; }
    #filter { border: none; height: 1; padding: 0; display: none; }
    VerticalScroll { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"view('{view}')") for n, view in enumerate(View, 1)),
        Binding("tab", "next_view", priority=True),
        Binding("p", "pause"),
        Binding("enter", "open"),
        Binding("w", "why"),
        Binding("c", "act('cancel')"),
        Binding("r", "act('retry')"),
        Binding("slash", "filter"),
        Binding("escape", "unfilter"),
        Binding("question_mark", "explain"),
        Binding("q,ctrl+c", "quit"),
    ]

    def __init__(
        self,
        store: Store,
        reader: SnapshotReader,
        *,
        name: str,
        author: str,
        clock: LocalClock,
        timing: Timing = REAL,
    ) -> None:
        # The terminal's own colours suit light and dark backgrounds, and respect NO_COLOR.
        super().__init__(ansi_color=True)
        self._store = store
        self._reader = reader
        self._name = hidden_text(name)
        self._author = author
        self._clock = clock
        self._timing = timing
        self._view = View.LANES
        self._snapshot: Snapshot | None = None
        self._away = ""
        self._filter = ""
        self._reload_lock = asyncio.Lock()
        self._shape: tuple[View, list[tuple[int, int]]] | None = None
        self._keys: list[str] = []

    def compose(self) -> ComposeResult:
        """Create the parts of the screen, from top to bottom."""
        for part in ("head", "stuck", "views"):
            yield Static(id=part)
        yield RowsTable(cursor_type="row", cell_padding=0, show_row_labels=False)
        yield Input(id="filter", placeholder="only rows with this text")
        yield Static(classes="said")
        yield Static(Text(_KEYS, style="dim"), id="keys")

    def on_mount(self) -> None:
        """Start taking snapshots."""
        self.query_one(RowsTable).focus()
        self.run_worker(self._keep_reloading(), group="reload")

    async def _keep_reloading(self) -> None:
        while True:
            await self.reload(fresh=False)
            await self._timing.pause(EACH_S)

    async def reload(self, *, fresh: bool = True) -> None:
        """Take a snapshot and show it; if the store is unavailable, keep the last one.

        Args:
            fresh: Whether to read listings again that were read a short time ago.
        """
        async with self._reload_lock:
            try:
                self._snapshot = await self._reader.read(self._view, fresh=fresh)
                self._away = ""
            except HeadwayError as error:
                self._away = hidden_text(str(error))
            self.paint()
            if isinstance(self.screen, PageDialog):
                await self.screen.reload()

    # ------------------------------------------------------------------------------- painting

    def paint(self) -> None:
        """Show the last snapshot."""
        main = self.screen_stack[0]
        main.query_one("#head", Static).update(self._head())
        snapshot = self._snapshot
        if snapshot is None:
            return
        causes = [one for one in stuck(snapshot) if one]
        more = [f"and {len(causes) - MOST_STUCK} more"] if len(causes) > MOST_STUCK else []
        text = Text("nothing is stuck", style="dim")
        if causes:
            lines = (shown(f"! {one}", "yellow") for one in [*causes[:MOST_STUCK], *more])
            text = Text("\n").join(lines)
        main.query_one("#stuck", Static).update(text)
        main.query_one("#views", Static).update(self._views(snapshot))
        self._paint_table(snapshot)

    def _head(self) -> Text:
        text = Text("headway top  ", style="bold")
        text.append_text(shown(self._name))
        if self._snapshot is not None:
            text.append(f"  {self._clock.at(self._snapshot.overview.stats.now)}", style="not bold")
        if self._away:
            text.append("\n").append_text(shown(f"away: {self._away}", "bold red"))
            text.append("\nshowing the last known data; retrying every second", style="red")
        elif self._snapshot is not None:
            text.append_text(
                Text("\n").join([Text(), counts_line(self._snapshot), rates_line(self._snapshot)])
            )
        return text

    def _views(self, snapshot: Snapshot) -> Text:
        text = Text()
        for n, view in enumerate(View, 1):
            style = "reverse" if view is self._view else "bold"
            text.append(f" {n} {view} ", style=style)
        if self._view in STATES and (more := snapshot.held_back(self._view)):
            text.append(f"  {len(snapshot.jobs)} shown, {more:,} more", style="dim")
        if snapshot.overview.more_gates and self._view is View.GATES:
            text.append("  the first 500 by name", style="dim")
        if self._filter:
            text.append_text(shown(f"  only with {self._filter!r}", "magenta"))
        return text

    def _paint_table(self, snapshot: Snapshot) -> None:
        table = self.screen_stack[0].query_one(RowsTable)
        wanted = self._filter.casefold()
        found = [
            row
            for row in rows(snapshot, self._view)
            if any(wanted in one.casefold() for one in (row.key, *row.cells))
        ]
        fit = fitted(COLUMNS[self._view], table.size.width)
        cells = [[cell(row.cells[n], width) for n, width in fit] for row in found]
        before, was_at, keys = self._keys, table.cursor_row, [row.key for row in found]
        if (self._view, fit) != self._shape:
            table.clear(columns=True)
            for n, width in fit:
                table.add_column(Text(COLUMNS[self._view][n].title), width=width)
            before = []
        elif keys != before:
            table.clear()
        self._shape, self._keys = (self._view, fit), keys
        if keys == before:
            for number, row in enumerate(cells):
                for at, one in enumerate(row):
                    if table.get_cell_at(Coordinate(number, at)) != one:
                        table.update_cell_at(Coordinate(number, at), one)
            return
        for key, row in zip(keys, cells, strict=True):
            table.add_row(*row, key=key)
        # The cursor stays on its row, or if that is gone, at its position.
        key = before[was_at] if was_at < len(before) else None
        table.move_cursor(row=keys.index(key) if key in keys else min(was_at, len(before)))

    def on_rows_table_fitted(self) -> None:
        """Repaint for the new width."""
        self.paint()

    def say(self, text: str, style: str = "") -> None:
        """Show a message about the result of an action."""
        said = shown(hidden_text(text), style)
        for screen in self.screen_stack:
            for line in screen.query(".said").results(Static):
                line.update(said)

    # ------------------------------------------------------------------------------- selecting

    @property
    def _selected(self) -> str | None:
        """The lane, gate or job at the cursor, if any."""
        if isinstance(self.screen, PageDialog):
            return self.screen.job
        at = self.screen_stack[0].query_one(RowsTable).cursor_row
        return self._keys[at] if 0 <= at < len(self._keys) else None

    @property
    def _selected_job(self) -> str | None:
        if self._view in STATES or isinstance(self.screen, PageDialog):
            return self._selected
        return None

    def action_view(self, view: str) -> None:
        """Show another view."""
        self._view = View(view)
        self.say("")
        if self._snapshot is not None:
            self._snapshot = replace(self._snapshot, jobs=())
            self.paint()
        self.run_worker(self.reload(), group="act")

    def action_next_view(self) -> None:
        """Show the next view."""
        views = list(View)
        if not isinstance(self.screen, ModalScreen):
            self.action_view(views[(views.index(self._view) + 1) % len(views)])

    def action_filter(self) -> None:
        """Show the filter's input."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        if event.input.id == "filter":
            self._filter = event.value
            self.paint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter and leave its input."""
        if event.input.id == "filter":
            self._end_filter()

    def action_unfilter(self) -> None:
        """Show all rows again."""
        self.query_one("#filter", Input).value = ""
        self._end_filter()

    def _end_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(RowsTable).focus()

    # -------------------------------------------------------------------------------- details

    def on_data_table_row_selected(self) -> None:
        """Show the gate or job at the cursor, or the waiting jobs of the lane."""
        selected = self._selected
        if selected is None:
            return
        if self._view is View.LANES:
            self.query_one("#filter", Input).value = selected
            self.action_view(View.WAITING)
        elif self._view is View.GATES:
            self.push_screen(PageDialog(lambda: self._read_gate(selected)))
        else:
            self.push_screen(PageDialog(lambda: self._read_job(selected), job=selected))

    def action_why(self) -> None:
        """Explain why the job, or the lane's oldest job, waits; or show the gate."""
        selected, job = self._selected, self._selected_job
        if selected is None:
            return
        if job is not None:
            self.push_screen(PageDialog(lambda: self._read_why(job), job=job))
        elif self._view is View.GATES:
            self.push_screen(PageDialog(lambda: self._read_gate(selected)))
        else:
            self.push_screen(PageDialog(lambda: self._read_lane(selected)))

    def action_explain(self) -> None:
        """Show the help."""

        async def text() -> Text:
            return Text(_HELP)

        self.push_screen(PageDialog(text))

    async def _read_job(self, job: str) -> Text:
        found = await self._store.read(JobQuery(id=job))
        if found is None:
            raise _unknown(job)
        now = (await self._store.read(StatsQuery())).now
        return job_text(found, self._clock, now)

    async def _read_why(self, job: str) -> Text:
        found = await self._store.read(WhyQuery(id=job))
        if found is None:
            raise _unknown(job)
        lines = [found.sentence, "", *facts_text(why_facts(self._clock, found))]
        for gate in found.closed:
            lines.append("")
            row = zip(WHY_COLUMNS, why_gate(self._clock, gate, found.now), strict=True)
            lines += facts_text((title.lower(), value) for title, value in row)
        return as_text(lines)

    async def _read_lane(self, lane: str) -> Text:
        states = (State.WAITING, State.PARKED)
        query = JobsQuery(lane=lane, states=states, limit=ASKED)
        found = await self._reader.queries.underway(query)
        if found:
            return await self._read_why(found[0].id)
        return as_text([f"no job is waiting in the lane {lane}"])

    async def _read_gate(self, gate: str) -> Text:
        page = await self._store.read(GatesQuery(names=(gate,)))
        if not page.rows:
            message = f"there is no gate {gate!r}"
            raise UnknownGate(message)
        found, now = page.rows[0], (await self._store.read(StatsQuery())).now
        lines = facts_text(gate_facts(self._clock, found, now))
        for one in found.members:
            lines.append(f"member {one.name}: {one.used} of {one.capacity}")
        for held in found.holders:
            since = self._clock.around(held.since, now)
            lines.append(f"held by {held.job}:{held.run} {held.member} since {since}")
        return as_text(lines)

    # --------------------------------------------------------------------------------- acting

    def action_pause(self) -> None:
        """Pause or resume the lane, or close or open the gate, after confirmation."""
        selected, snapshot = self._selected, self._snapshot
        if selected is None or snapshot is None or self._view in STATES:
            self.say("p acts on lanes and gates: 1 shows lanes, 2 gates")
            return
        if self._view is View.LANES:
            gate, words = f"lane:{selected}", ("pause", "resume")
            closed = any(one.paused for one in snapshot.overview.lanes if one.name == selected)
        else:
            gate, words = selected, ("close", "open")
            closed = any(
                bool(one.closed_by) or one.closed_until is not None
                for one in snapshot.overview.gates
                if one.name == selected
            )

        async def change(reason: str) -> str:
            item = OpenGate(name=gate) if closed else CloseGate(name=gate, reason=reason)
            await self._store.define(
                DefineRequest(items=(item,), author=self._author, reason=reason)
            )
            return f"{gate} is {'open again' if closed else 'closed until it is opened'}"

        self._ask(f"{words[closed]} {selected}?", change)

    def action_act(self, verb: str) -> None:
        """Cancel or retry the job, after confirmation."""
        job = self._selected_job
        if job is None:
            self.say(f"{verb} acts on jobs: 3 shows running ones, 4 waiting, 5 dead")
            return

        async def act(reason: str) -> str:
            (reply,) = await self._store.act(
                ActRequest(
                    request=str(uuid4()),
                    ids=(job,),
                    verb=Verb(verb),
                    edit=Edit(),
                    author=self._author,
                    reason=reason,
                )
            )
            if reply.answer is Acted.UNKNOWN:
                raise _unknown(job)
            return f"{verb} {job}: {reply.answer}, the job is {reply.state}"

        self._ask(f"{verb} {job}?", act)

    def _ask(self, question: str, do: Callable[[str], Awaitable[str]]) -> None:
        def then(reason: str | None) -> None:
            if reason is not None:
                self.run_worker(self._attempt(do(reason)), group="act")

        self.push_screen(ConfirmDialog(question), then)

    async def _attempt(self, work: Awaitable[str]) -> None:
        try:
            said = await work
        except HeadwayError as error:
            self.say(str(error), "bold red")
        else:
            self.say(said, "green")
        await self.reload()


def _unknown(job: str) -> UnknownJob:
    message = f"there is no job {job!r}"
    return UnknownJob(message, hint="final jobs are removed after their retention")
