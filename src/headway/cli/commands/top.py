"""`headway top`: a live view of a store or a server in the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Annotated, TypeVar

import typer

from headway.cli.command import command, new_command
from headway.cli.extras import needs_extra
from headway.cli.failures import BUG
from headway.cli.session import CommandSession
from headway.cli.top.rendering import COLUMNS, counts_line, rates_line, rows, stuck
from headway.cli.top.snapshot import (
    STATES,
    Queries,
    ServerQueries,
    Snapshot,
    SnapshotReader,
    StoreQueries,
    View,
)
from headway.client.address import is_server, read_address
from headway.contract.store import Store
from headway.contract.views import JobView
from headway.core.errors import InvalidValue
from headway.runtime.event_loop import on_signals
from headway.runtime.records import Record, job_record, record

Result = TypeVar("Result")

app = new_command()

MOST_CAUSES = 50
"""Causes of waiting that `--once` prints as text; the document has all of them."""
TIMEOUT_S = 10.0
"""Seconds that a server may take to answer."""


@command(app)
def top(
    session: CommandSession,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Watch a server instead of a store; its token is read from HEADWAY_TOKEN.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print one snapshot as plain text and exit.")
    ] = False,
) -> None:
    """Show a live view of lanes, gates and jobs, and explain what is stuck.

    Keys act on the selected row; press ? for help. --once --json prints one document that also
    lists the workers: the lanes each serves, its number of runs, and when it was last seen.

    Raises:
        InvalidValue: there is no terminal, or --json without --once.
        Exit: with code 70, the screen crashed.
    """
    if once:
        _print(session, _with(session, server, _read_every_view))
        return
    with needs_extra("top"):
        from headway.cli.top.screen import Top  # noqa: PLC0415  (only the live screen needs it)
    if session.json:
        message = "the live view cannot be printed as JSON"
        raise InvalidValue(message, hint="add --once")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = "headway top needs a terminal"
        raise InvalidValue(message, hint="--once prints one snapshot and exits")

    async def live(store: Store, queries: Queries) -> int | None:
        reader = SnapshotReader(store, queries)
        # Fail before the screen is shown if the store cannot be read.
        await reader.read(View.LANES)
        screen = Top(
            store,
            reader,
            name=server or session.store_url,
            author=session.author(None),
            clock=session.clock,
        )
        # Otherwise a signal would leave the terminal as the screen has set it.
        on_signals(lambda _: screen.exit())
        await screen.run_async()
        return screen.return_code

    if _with(session, server, live):
        raise typer.Exit(BUG)


def _with(
    session: CommandSession, server: str | None, work: Callable[[Store, Queries], Awaitable[Result]]
) -> Result:
    """Run `work` on the store, or on the server as a remote store."""
    if server is not None:
        session.refuse_store("omit it: --server selects what to watch")
    url = server or session.store_url
    if server is None and not is_server(url):
        return session.with_store(lambda store: work(store, StoreQueries(store)))
    with needs_extra("client"):
        from headway.client.remote_store import RemoteStore  # noqa: PLC0415  (only for a server)

    async def whole() -> Result:
        store = RemoteStore(read_address(url), timeout_s=TIMEOUT_S, patience_s=0.0)
        try:
            return await work(store, ServerQueries(store.ask))
        finally:
            await store.close()

    return asyncio.run(whole())


async def _read_every_view(store: Store, queries: Queries) -> dict[View, Snapshot]:
    reader = SnapshotReader(store, queries, whole=True)
    found = {View.LANES: await reader.read(View.LANES)}
    for view in STATES:
        found[view] = await reader.read(view)
    return found


def _print(session: CommandSession, snapshots: Mapping[View, Snapshot]) -> None:
    terminal, snapshot = session.terminal, snapshots[View.LANES]
    overview = snapshot.overview
    if session.json:
        terminal.document(
            {
                "stats": record(overview.stats),
                "stuck": stuck(snapshot),
                "lanes": [
                    {**record(one), "latency": snapshot.latencies.get(one.name)}
                    for one in overview.lanes
                ],
                "gates": [record(one) for one in overview.gates],
                "workers": [record(one) for one in overview.workers],
                **{view: [_bare(job) for job in snapshots[view].jobs] for view in STATES},
            }
        )
        return
    terminal.line(f"{session.clock.at(overview.stats.now)}  {counts_line(snapshot)}")
    terminal.line(str(rates_line(snapshot)))
    causes = stuck(snapshot)
    for cause in causes[:MOST_CAUSES]:
        terminal.line(f"! {cause}")
    if len(causes) > MOST_CAUSES:
        terminal.line(f"and {len(causes) - MOST_CAUSES} more")
    if not causes:
        terminal.line("nothing is stuck")
    for view, columns in COLUMNS.items():
        terminal.line("")
        terminal.table(
            [one.title for one in columns],
            [row.cells for row in rows(snapshots.get(view, snapshot), view)],
            empty=f"{view}: none",
        )


def _bare(job: JobView) -> Record:
    """Return a job without arguments, progress and result, which may be long or secret."""
    return job_record(replace(job, args=b"{}", progress=None, result=None))
