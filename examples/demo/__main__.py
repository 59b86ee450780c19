"""Runs the demo: `python -m examples.demo [--for SECONDS]`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.live import Live

import headway as hw
from examples.demo.airports import Airports
from examples.demo.call_centre import CallCentre
from examples.demo.picture import Picture
from examples.demo.verdict import Verdict, judge
from examples.departures.pace import check_speed
from headway.contract.views import LanesQuery, StatsQuery
from headway.stores.open import open_store

LOOK_S = 0.25
PLAIN_S = 2.0


class Refused(Exception):
    """What was asked for cannot be done; it says why."""


async def run(asked: argparse.Namespace, url: str, folder: Path, console: Console) -> Verdict:
    """Runs the demo to its end.

    Args:
        asked: the command line.
        url: of the store.
        folder: for what is written beside it.
        console: where it is shown.

    Returns:
        What the checkers say of it.

    Raises:
        Refused: the store is in use already.
    """
    store = open_store(url)
    try:
        if (await store.read(StatsQuery())).counts:
            message = f"{url} holds jobs already: name a new file"
            raise Refused(message)
        picture = Picture(store, url)
        airports = picture.airports = Airports(store, asked.speed, picture.tell)
        calls = picture.calls = CallCentre(store, asked.seed, picture.tell)
        await airports.import_day()
        await _work(asked, picture, airports, calls, console)
        return await judge(store, url, folder, airports, calls)
    finally:
        await store.close()


async def _work(
    asked: argparse.Namespace,
    picture: Picture,
    airports: Airports,
    calls: CallCentre,
    console: Console,
) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    workers = [
        airports.app.worker(concurrency=40, grace="3s", name="tower"),
        calls.app.worker(concurrency=24, grace="3s", name="dialler"),
    ]
    working = [asyncio.create_task(worker.run()) for worker in workers]
    for task in working:
        task.add_done_callback(lambda _: over.set())
    leads = asyncio.create_task(calls.take_leads())
    leads.add_done_callback(lambda _: over.set())
    try:
        await _show(asked, picture, console, over)
    finally:
        leads.cancel()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)
        await calls.carrier.close()
    if not leads.cancelled():
        with suppress(asyncio.CancelledError):
            await leads


async def _show(
    asked: argparse.Namespace, picture: Picture, console: Console, over: asyncio.Event
) -> None:
    begun = monotonic()
    until = begun + asked.seconds if asked.seconds is not None else float("inf")
    plain = asked.plain or not console.is_terminal
    live = Live(console=console, auto_refresh=False, transient=False)
    with nullcontext() if plain else live:
        while not over.is_set() and monotonic() < until:
            seen = await picture.look()
            seconds = monotonic() - begun
            if plain:
                print("\n".join(picture.lines(seen, seconds)), flush=True)
            else:
                live.update(picture.drawn(seen, seconds), refresh=True)
            if asked.seconds is None and await _day_is_done(picture):
                return
            pause = min(PLAIN_S if plain else LOOK_S, max(0.0, until - monotonic()))
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause)


async def _day_is_done(picture: Picture) -> bool:
    lanes = await picture.store.read(LanesQuery(names=("departures", "landings")))
    return bool(lanes) and not any(lane.unfinished for lane in lanes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and prints its summary.

    Args:
        arguments: of the command line; None for the program's own.

    Returns:
        The exit code: 0 if no checker found a violation.
    """
    asked = _arguments(arguments)
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="headway-demo-"))
    url = asked.store or f"sqlite:///{folder / 'demo.db'}"
    print(f"The store is {url}; what is written beside it is in {folder}", flush=True)
    try:
        verdict = asyncio.run(run(asked, url, folder, console))
    except (hw.HeadwayError, Refused) as error:
        print(f"stopped: {error}", file=sys.stderr)
        return 2
    print(
        f"{verdict.flights} flights left, {verdict.calls} calls were dialled; "
        f"{verdict.jobs} jobs checked: {len(verdict.violations)} violations"
    )
    for line in verdict.violations:
        print(f"violation: {line}")
    print(f"Look around in it: headway lanes --store {url}")
    return 1 if verdict.violations else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="One real day of departures, sped up, beside a small call centre, live.",
    )
    parser.add_argument(
        "--for", dest="seconds", type=float, metavar="SECONDS", help="end after so long"
    )
    parser.add_argument("--speed", type=_speed, default=600.0, help="of the day (600 times)")
    parser.add_argument("--store", type=_store, help="a sqlite:/// URL (a new temporary file)")
    parser.add_argument("--seed", type=int, default=1, help="of the call centre (1)")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live screen")
    return parser.parse_args(arguments)


def _speed(text: str) -> float:
    try:
        return check_speed(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _store(text: str) -> str:
    if not text.startswith("sqlite:///"):
        message = f"{text!r} is no sqlite:/// URL: the demo runs on the embedded store"
        raise argparse.ArgumentTypeError(message)
    return text


if __name__ == "__main__":
    sys.exit(main())
