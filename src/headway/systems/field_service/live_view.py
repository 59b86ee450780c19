"""The live view: the newest requests as they are dispatched, with technicians' names."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, StatsQuery
from headway.core.errors import StoreUnavailable
from headway.core.state import State
from headway.systems.directory.database import Directory
from headway.systems.field_service.records import Technician
from headway.systems.field_service.request import OFFER, OFFERS, STATES, Status, is_request
from headway.systems.field_service.views import AskedView, ServiceRequest, service_request
from headway.systems.telephony.voice import CallStatus

MOST_LIVE = 100
MOST_ENDED = 20

_log = logging.getLogger("headway.field_service")


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveView:
    """The contents of the live view.

    Attributes:
        now: the store's time, ms UTC.
        requests: unfinished and pending requests, then the last to end; newest first in each part.
        names: names of technicians, by id.
    """

    now: int
    requests: tuple[ServiceRequest, ...]
    names: dict[str, str]

    def name(self, technician: str) -> str:
        """Return a technician's name; the id if the name is unknown."""
        return self.names.get(technician, technician)


async def read_live_view(store: Store, directory: Directory) -> LiveView:
    """Read the live view."""
    jobs = [
        *await _live(store),
        *await _jobs(store, (State.SUCCEEDED, State.CANCELLED), MOST_ENDED),
    ]
    now = (await store.read(StatsQuery())).now
    requests = tuple(service_request(one, now) for one in jobs)
    return LiveView(now=now, requests=requests, names=await _names(directory, requests))


async def _live(store: Store) -> list[JobView]:
    # A listing of one indexed state reaches further back than a listing of several states.
    groups = ((State.AWAITING,), STATES[Status.DISPATCHING], (State.DEAD,))
    found = {one.id: one for some in groups for one in await _jobs(store, some, MOST_LIVE)}
    # Live requests take precedence, so that dead ones do not crowd them out.
    first = sorted(found.values(), key=lambda one: (one.state is State.DEAD, -one.seq))[:MOST_LIVE]
    return sorted(first, key=lambda one: -one.seq)


async def _jobs(store: Store, states: tuple[State, ...], most: int) -> tuple[JobView, ...]:
    query = JobsQuery(
        kind=OFFER, lane=OFFERS, states=states, runs=True, trail=True, newest=True, limit=most
    )
    return tuple(filter(is_request, (await store.read(query)).rows))


async def _names(directory: Directory, requests: Iterable[ServiceRequest]) -> dict[str, str]:
    ids = {name for one in requests for name in _people(one)}
    if not ids:
        return {}
    asked = select(Technician.id, Technician.name).where(Technician.id.in_(sorted(ids)))
    try:
        async with directory.read() as session:
            return {row.id: row.name for row in await session.execute(asked)}
    except StoreUnavailable as error:
        _log.warning("live view: names of technicians unavailable error=%s", error)
        return {}


def _people(request: ServiceRequest) -> Iterable[str]:
    yield from (one.technician for one in request.asked)
    yield from request.left[:3]
    if request.offer is not None:
        yield request.offer.technician
    if request.technician is not None:
        yield request.technician


_WORDS = {
    "accepted": "accepted",
    "declined": "declined",
    "timeout": "no answer in time",
    "unfit": "passed over",
    "passed_over": "passed over",
    "failed": "could not be asked",
}
_UNREACHED = {CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED}
"""Ends of unanswered calls, which count as declined."""


def answer(asked: AskedView) -> str:
    """Return an answer with its reason, unless the reason repeats the answer."""
    if asked.said == "declined" and asked.reason in _UNREACHED:
        return f"not reached ({asked.reason})"
    words = _WORDS.get(asked.said, asked.said)
    return words if asked.reason in {"", words} else f"{words} ({asked.reason})"
