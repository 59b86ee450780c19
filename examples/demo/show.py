"""The demo from its first look to its last."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.live import Live

from examples.demo.airports import Airports
from examples.demo.call_centre import CallCentre
from examples.demo.mail_room.room import MailRoom, mail_room
from examples.demo.picture import Picture
from examples.demo.verdict import Verdict, judge
from headway.contract.views import LanesQuery, StatsQuery
from headway.stores.open import open_store

LOOK_S = 0.25
PLAIN_S = 2.0


class Refused(Exception):
    """What was asked for cannot be done; it says why."""


async def run(
    asked: argparse.Namespace, url: str, folder: Path, console: Console
) -> tuple[Verdict, str]:
    """Runs the demo to its end.

    Args:
        asked: the command line.
        url: of the store.
        folder: for what is written beside it.
        console: where it is shown.

    Returns:
        What the checkers say of it, and the address of its server.

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
        async with mail_room(store, folder, asked.seed, picture.tell) as mail:
            picture.mail = mail
            await _work(asked, picture, airports, calls, mail, console)
        return await judge(store, url, folder, airports, calls, mail), mail.url
    finally:
        await store.close()


async def _work(
    asked: argparse.Namespace,
    picture: Picture,
    airports: Airports,
    calls: CallCentre,
    mail: MailRoom,
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
    mail.open()
    try:
        await _show(asked, picture, console, over)
    finally:
        leads.cancel()
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working, mail.finish())
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
                live.update(picture.drawn(seen, seconds, console.size), refresh=True)
            if asked.seconds is None and await _day_is_done(picture):
                return
            pause = min(PLAIN_S if plain else LOOK_S, max(0.0, until - monotonic()))
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause)


async def _day_is_done(picture: Picture) -> bool:
    lanes = await picture.store.read(LanesQuery(names=("departures", "landings")))
    return bool(lanes) and not any(lane.unfinished for lane in lanes)
