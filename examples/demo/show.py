"""The demo from start to end."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Protocol

from rich.console import Console
from rich.live import Live

from examples.demo.airports import Airports
from examples.demo.automations.gardens import Gardens, missing
from examples.demo.call_centre.centre import CallCentre
from examples.demo.display import Display
from examples.demo.mail_room.postbox import Postbox, taking
from examples.demo.mail_room.room import MailRoom, mail_room
from examples.demo.newsroom.newsroom import BUSY, Newsroom
from examples.demo.repairs.desk import Repairs
from examples.demo.serving import Served, serving
from examples.demo.telephones import telephones
from examples.demo.verdict import Evidence, Verdict, judge
from headway.contract.views import LanesQuery, StatsQuery
from headway.stores.open import open_store

LOOK_S = 0.25
PLAIN_S = 2.0


class Closing(Protocol):
    """A program that is closed at the end."""

    async def close(self) -> None:
        """Close it."""
        ...


class Programs(NamedTuple):
    """The programs of the demo."""

    airports: Airports
    calls: CallCentre
    repairs: Repairs
    mail: MailRoom
    newsroom: Newsroom
    gardens: Gardens | None


class Refused(Exception):
    """The demo cannot run as requested."""


async def run(
    asked: argparse.Namespace, url: str, folder: Path, console: Console
) -> tuple[Verdict, str]:
    """Run the demo to its end.

    Args:
        asked: The command line.
        url: URL of the store.
        folder: Folder for all other files.
        console: Console for the display.

    Returns:
        The verdict of the checkers, and the URL of the server.

    Raises:
        Refused: the store already has jobs.
    """
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    store = open_store(url)
    try:
        if (await store.read(StatsQuery())).counts:
            message = f"{url} already has jobs: name a new file"
            raise Refused(message)
        display = Display(store, url)
        airports = display.airports = Airports(store, asked.speed, display.notify)
        await airports.import_day()
        gardens = display.gardens = await _gardens(folder, display, console)
        inbox = Postbox(asked.seed, "Issue", BUSY)
        async with (
            telephones(asked.seed) as phones,
            taking(inbox) as port,
            serving(store, folder, phones, port, gardens) as served,
        ):
            _greet(console, served.url, phones.url)
            say(console, f"The store is {url}; what is written beside it is in {folder}")
            if gardens is not None:
                gardens.connect(served.url)
            calls = CallCentre(served.url, phones, asked.seed, display.notify)
            repairs = Repairs(served.url, phones, asked.seed, display.notify)
            newsroom = Newsroom(served.url, inbox, asked.seed, display.notify)
            display.calls, display.repairs, display.newsroom = calls, repairs, newsroom
            async with (
                _closing(calls, repairs, newsroom, *([gardens] if gardens else [])),
                mail_room(store, served.url, folder, asked.seed, display.notify) as mail,
            ):
                display.mail = mail
                say(console, f"The mail room's mail goes to {mail.smtp}")
                await calls.prepare()
                await repairs.prepare()
                await newsroom.prepare()
                programs = Programs(airports, calls, repairs, mail, newsroom, gardens)
                await _work(asked, display, programs, served, console, over)
                evidence = Evidence(
                    calls=await calls.evidence(),
                    repairs=await repairs.evidence(),
                    notifications=await newsroom.evidence(),
                    sessions=None if gardens is None else await gardens.written(),
                )
        return await judge(store, url, folder, airports, mail, evidence), served.url
    finally:
        await store.close()


@asynccontextmanager
async def _closing(*programs: Closing) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for one in programs:
            await one.close()


def say(console: Console, line: str) -> None:
    """Print a line without markup."""
    console.print(line, markup=False, emoji=False, soft_wrap=True)


def _greet(console: Console, server: str, carrier: str) -> None:
    say(console, f"See it all in a browser: {server}/ui")
    say(console, f"The server is {server}: /v1, /docs, /metrics, /events; open to this machine")
    say(console, f"Requests for help, live in a browser: {server}/ui/field-service")
    say(console, f"The carrier, which speaks Twilio's API, is {carrier}: /_calls, /_texts")


async def _gardens(folder: Path, display: Display, console: Console) -> Gardens | None:
    """Create the repositories; return None if this machine cannot run sessions."""
    if why := missing():
        say(console, f"No automations: {why}")
        return None
    gardens = Gardens(folder, display.notify)
    await asyncio.to_thread(gardens.make)
    return gardens


async def _work(
    asked: argparse.Namespace,
    display: Display,
    programs: Programs,
    served: Served,
    console: Console,
    over: asyncio.Event,
) -> None:
    airports, calls, repairs, mail, newsroom, gardens = programs
    workers = [airports.app.worker(concurrency=40, grace="3s", name="tower"), served.worker]
    working = [asyncio.create_task(worker.run()) for worker in workers]
    works = (calls.take_leads(), repairs.take_requests(), newsroom.work())
    coming = [asyncio.create_task(one) for one in works]
    finishing = [mail.finish, repairs.finish, newsroom.finish]
    if gardens is not None:
        coming.append(asyncio.create_task(gardens.work()))
        finishing.append(gardens.finish)
    for task in (*working, *coming):
        task.add_done_callback(lambda _: over.set())
    mail.open()
    try:
        await _show(asked, display, console, over)
    finally:
        for task in coming:
            task.cancel()
        ends = await asyncio.gather(*coming, return_exceptions=True)
        await asyncio.gather(*(finish() for finish in finishing))
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _show(
    asked: argparse.Namespace, display: Display, console: Console, over: asyncio.Event
) -> None:
    begun = monotonic()
    until = begun + asked.seconds if asked.seconds is not None else float("inf")
    plain = asked.plain or not console.is_terminal
    live = Live(console=console, auto_refresh=False, transient=False)
    with nullcontext() if plain else live:
        while not over.is_set() and monotonic() < until:
            seen = await display.read()
            seconds = monotonic() - begun
            if plain:
                say(console, "\n".join(display.lines(seen, seconds)))
            else:
                live.update(display.drawn(seen, seconds, console.size), refresh=True)
            if asked.seconds is None and await _day_is_done(display):
                return
            pause = min(PLAIN_S if plain else LOOK_S, max(0.0, until - monotonic()))
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), pause)


async def _day_is_done(display: Display) -> bool:
    lanes = await display.store.read(LanesQuery(names=("departures", "landings")))
    return bool(lanes) and not any(lane.unfinished for lane in lanes)
