"""The feed of the live page: one look a second for all who watch, and only while anybody does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from uuid import uuid4

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from sqlalchemy import select

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, StatsQuery
from headway.core.errors import HeadwayError, StoreUnavailable, TooManyRequests
from headway.core.state import State
from headway.server.events.subscriber import Message, Subscriber
from headway.server.service import Service
from headway.systems.directory.database import Directory
from headway.systems.field_service.names import OFFER
from headway.systems.field_service.records import Technician
from headway.systems.field_service.request import STATES, Position, Status
from headway.systems.field_service.told import AskedView, ServiceRequest, service_request
from headway.systems.telephony.voice import CallStatus

MOST_LIVE = 100
MOST_ENDED = 20

_log = logging.getLogger("headway.field_service")


@dataclass(frozen=True, kw_only=True, slots=True)
class Board:
    """What the live page shows.

    Attributes:
        now: the store's time, ms UTC.
        requests: those that are pending or under way, then those that ended last; newest first.
        names: of technicians, by id.
    """

    now: int
    requests: tuple[ServiceRequest, ...]
    names: dict[str, str]

    def name(self, technician: str) -> str:
        """A technician's name; the id where no name is known."""
        return self.names.get(technician, technician)


async def look_at_board(store: Store, directory: Directory) -> Board:
    """The board as it is now.

    Raises:
        StoreError: the store cannot tell now.
    """
    live = (*STATES[Status.DISPATCHING], State.DEAD)
    ended = (State.SUCCEEDED, State.CANCELLED)
    jobs = [
        *await _jobs(store, live, MOST_LIVE),
        *await _jobs(store, ended, MOST_ENDED),
    ]
    now = (await store.read(StatsQuery())).now
    requests = tuple(service_request(one, now) for one in jobs)
    return Board(now=now, requests=requests, names=await _names(directory, requests))


async def _jobs(store: Store, states: tuple[State, ...], most: int) -> tuple[JobView, ...]:
    query = JobsQuery(kind=OFFER, states=states, runs=True, trail=True, newest=True, limit=most)
    return (await store.read(query)).rows


async def _names(directory: Directory, requests: Iterable[ServiceRequest]) -> dict[str, str]:
    ids = {name for one in requests for name in _people(one)}
    if not ids:
        return {}
    asked = select(Technician.id, Technician.name).where(Technician.id.in_(sorted(ids)))
    try:
        async with directory.read() as session:
            return {row.id: row.name for row in await session.execute(asked)}
    except StoreUnavailable as error:
        _log.warning("live page: names are not known: %s", error)
        return {}


def _people(request: ServiceRequest) -> Iterable[str]:
    yield from (one.technician for one in request.asked)
    yield from request.left[:3]
    if request.offer is not None:
        yield request.offer.technician
    if request.technician is not None:
        yield request.technician


CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing runs on the page but its own script."""

_PACKAGE = "headway.systems.field_service.live"
_WORDS = {
    "accepted": "accepted",
    "declined": "declined",
    "timeout": "no answer in time",
    "unfit": "passed over",
    "passed_over": "passed over",
}
_UNREACHED = {CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED}
"""How a call ended in which nobody was asked anything: it counts as declined."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE, "page"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["clock"] = _clock
    made.filters["answer"] = _answer
    made.filters["place"] = _place
    return made


def page(board: Board | None) -> str:
    """The whole page.

    Args:
        board: what it shows; None for whoever has not said who he is.
    """
    return _environment().get_template("live.html").render(board=board)


def fragment(board: Board) -> str:
    """What the script puts in the place of the board it shows."""
    return _environment().get_template("board.html").render(board=board)


@cache
def static(name: str) -> bytes:
    """The page's own script or style."""
    return files(_PACKAGE).joinpath("page", name).read_bytes()


def _answer(asked: AskedView) -> str:
    """What somebody said; a reason that says the same is not said twice."""
    if asked.said == "declined" and asked.reason in _UNREACHED:
        return f"not reached ({asked.reason})"
    said = _WORDS.get(asked.said, asked.said)
    return said if asked.reason in {"", said} else f"{said} ({asked.reason})"


def _place(position: Position) -> str:
    """A position to a metre or so; forms may carry as many digits as they like."""
    return f"{position.lat:.5f}, {position.lon:.5f}"


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%H:%M:%S")


EACH_S = 1.0
MOST_WATCHERS = 500


class LiveFeed:
    """The board, sent to whoever watches whenever it changes."""

    def __init__(self, service: Service, directory: Directory) -> None:
        """Looks at nothing yet.

        Args:
            service: whose store is looked at, and that runs the looking.
            directory: of the technicians' names.
        """
        self._service = service
        self._directory = directory
        self._watchers: set[Subscriber] = set()
        self._looking: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._shown: tuple[object, ...] | None = None
        self._newest: Message | None = None
        self._start = uuid4().hex[:8]
        self._number = 0
        service.spawn(self._end(), "live page's end")

    async def join(self) -> Subscriber:
        """Adds a watcher, whose first message is the whole board.

        Raises:
            TooManyRequests: there are 500 already.
            StoreError: the store cannot tell now.
        """
        if len(self._watchers) >= MOST_WATCHERS:
            message = f"{MOST_WATCHERS} watch the live page already"
            raise TooManyRequests(message, hint="close one")
        async with self._beginning:
            if self._newest is None or self._looking is None or self._looking.done():
                self._newest = self._message(await self._look())
                self._looking = self._service.spawn(self._look_on(), "live page")
            watcher = Subscriber(self._newest)
            self._watchers.add(watcher)
            return watcher

    def leave(self, watcher: Subscriber) -> None:
        """Lets a watcher go; with the last one the looking ends."""
        self._watchers.discard(watcher)
        if not self._watchers and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> Board:
        board = await look_at_board(self._service.store, self._directory)
        self._shown = _content(board)
        return board

    async def _look_on(self) -> None:
        while True:
            await self._service.timing.pause(EACH_S)
            before = self._shown
            try:
                board = await self._look()
            except HeadwayError as error:
                if self._shown is not None:
                    _log.warning("live page: the store does not answer: %s", error)
                    self._shown = None
                    self._send(self._away(error))
                continue
            if self._shown != before:
                self._newest = self._message(board)
                self._send(self._newest)

    def _send(self, message: Message) -> None:
        for one in self._watchers:
            one.put(message, self._newest or message)

    def _message(self, board: Board) -> Message:
        data = msgspec.json.encode({"now": board.now, "html": fragment(board)}).decode()
        return Message(id=self._next_id(), event="whole", data=data)

    def _away(self, error: HeadwayError) -> Message:
        data = msgspec.json.encode({"code": error.code}).decode()
        return Message(id=self._next_id(), event="away", data=data)

    def _next_id(self) -> str:
        self._number += 1
        return f"{self._start}-{self._number}"

    async def _end(self) -> None:
        await self._service.stopping.wait()
        for one in self._watchers:
            one.close()


def _content(board: Board) -> tuple[object, ...]:
    """What a look shows besides the time that passes."""
    return (
        tuple(
            (
                one.id,
                one.status,
                one.asked,
                one.left,
                one.technician,
                one.dispatched,
                None if one.offer is None else (one.offer.technician, one.offer.until),
            )
            for one in board.requests
        ),
        tuple(sorted(board.names.items())),
    )
