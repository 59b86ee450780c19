"""One line that lives: what a store holds and how fast it moves."""

from __future__ import annotations

from rich.live import Live
from rich.text import Text

from headway.cli.terminal import STYLES, Terminal
from headway.contract.store import Store
from headway.contract.views import StatsQuery, StatsView
from headway.runtime.timing import REAL

_EVERY_S = 0.5
_SHOWN = ("scheduled", "waiting", "parked", "running", "awaiting", "succeeded", "dead")


async def keep_status_line(store: Store, terminal: Terminal) -> None:
    """Shows the line until it is cancelled; nothing where nobody watches.

    Args:
        store: whose numbers.
        terminal: where; the line stands below whatever else is printed there.
    """
    if not terminal.live:
        return
    with Live(console=terminal.remarks, auto_refresh=False, transient=True) as live:
        before = await store.read(StatsQuery())
        since = REAL.monotonic()
        while True:
            stats = await store.read(StatsQuery())
            now = REAL.monotonic()
            live.update(status_text(stats, before, max(now - since, 0.001)), refresh=True)
            before, since = stats, now
            await REAL.pause(_EVERY_S)


def status_text(stats: StatsView, before: StatsView, seconds: float) -> Text:
    """The line.

    Args:
        stats: as it is.
        before: as it was.
        seconds: how long ago that was.

    Returns:
        The states that hold jobs with their numbers, and starts a second.
    """
    line = Text()
    for state in _SHOWN:
        number = stats.counts.get(state, 0)
        if number:
            line.append(f"{number:,} {state}", style=STYLES.get(state, ""))
            line.append("  ")
    started = stats.totals.get("started", 0) - before.totals.get("started", 0)
    line.append(f"{started / seconds:,.0f}/s", style="bold")
    return line
