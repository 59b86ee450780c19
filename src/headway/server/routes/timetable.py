"""/v1/timetable: reading, changing and firing entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field
from uuid_utils import uuid7

from headway.contract.definitions import DeclareEntry, EnableEntry, Item, RemoveEntry
from headway.contract.operate import Edit, Verb
from headway.contract.views import EntryView, StatsQuery, TimetableQuery
from headway.core.check import LATEST
from headway.core.errors import Forbidden, UnknownEntry
from headway.core.job import derived_id
from headway.core.timetable.schedule import format_schedule
from headway.runtime.chores import TimetableChore
from headway.runtime.declaration import refuse_key
from headway.runtime.records import record
from headway.server.access import Definer, Sender, TenantsObserver
from headway.server.bodies.base import Name, QueryModel
from headway.server.bodies.definitions import EntryBody
from headway.server.caller import Caller
from headway.server.entry_fires import coming_fires, last_fires
from headway.server.paging import (
    DEFINED,
    IfMatch,
    RepeatKey,
    WhichPage,
    check_repeat_key,
    define,
    etag,
    listed,
    page_of,
)
from headway.server.problems import named_by_body
from headway.server.replies import ENTRIES, ENTRY, MADE, answer, json_reply
from headway.server.routes.moves import Move
from headway.server.routing import TheService, router
from headway.server.sending import make_job, send_jobs
from headway.server.service import Service

ROUTES = router("timetable", prefix="/v1/timetable")

UNFIRED_MS = 30_000
"""When a manual fire becomes due by itself, if the server stops before it makes the job due."""
NEXT = 3
"""Number of next fires of each entry in the listing."""


class EntryParams(QueryModel):
    """The body of an entry."""

    fires: int = Field(default=10, ge=0, le=100, description="Number of next fires to return.")


@ROUTES.get("", summary="List the timetable", response_model=ENTRIES)
async def list_entries(params: WhichPage, service: TheService, caller: TenantsObserver) -> Response:
    """List the entries by name, each with its next three fires."""
    stats = await service.store.read(StatsQuery())
    found = await service.store.read(TimetableQuery())
    page = page_of(
        [one for one in found if caller.sees(one.spec.job)], attrgetter("spec.name"), params
    )
    last = await last_fires(service.store, page.rows, stats.now)
    coming = await coming_fires(service.store, page.rows, stats.now, NEXT)
    rows = [_entry_body(one, coming, last) for one in page.rows]
    return listed(stats, rows, page.cursor)


@ROUTES.get("/{name:path}", summary="Get an entry", response_model=ENTRY)
async def get_entry(
    name: Name,
    params: Annotated[EntryParams, Query()],
    service: TheService,
    caller: TenantsObserver,
) -> Response:
    """Return an entry with its next fires."""
    stats = await service.store.read(StatsQuery())
    entry = await _entry(service, caller, name)
    last = await last_fires(service.store, [entry], stats.now)
    coming = await coming_fires(service.store, [entry], stats.now, params.fires)
    body = _entry_body(entry, coming, last)
    return answer(body, headers=etag(stats.revision))


@ROUTES.put("/{name:path}", summary="Declare an entry", response_model=DEFINED)
async def declare_entry(
    name: Name,
    body: EntryBody,
    service: TheService,
    caller: Definer,
    if_match: IfMatch = None,
) -> Response:
    """Declare when jobs recur, and which ones.

    A changed entry starts a new revision, and its scheduled fires are cancelled. A program that
    declares the entry declares it again when it starts.

    Raises:
        Forbidden: an entry of this name exists outside the caller's scope.
        InvalidValue: the job has a key, which fires do not have.
    """
    schedule = body.read_schedule(await service.now())
    found = await _found(service, name)
    if found is not None and not caller.sees(found.spec.job):
        message = f"the entry {name[:80]!r} is not for this token's tenants and lanes"
        raise Forbidden(message, hint="choose another name")
    with named_by_body():
        job = await make_job(service, caller, body.body_of(derived_id("entry", name)))
        refuse_key(name, job)
        items: list[Item] = [DeclareEntry(spec=body.spec(name, schedule, job))]
        if body.enabled is not None:
            # For an existing entry, only an operator's request changes whether it fires.
            items.append(EnableEntry(name=name, enabled=body.enabled))
        reply = await define(service, caller, *items, if_match=if_match)
    await TimetableChore(service.store, service.timing).create_fires_or_warn(name)
    return reply


@ROUTES.delete("/{name:path}", summary="Remove an entry", response_model=DEFINED)
async def remove_entry(
    name: Name, service: TheService, caller: Definer, if_match: IfMatch = None
) -> Response:
    """Remove an entry, except for the time of its last fire; its scheduled fires are cancelled."""
    await _entry(service, caller, name)
    return await define(service, caller, RemoveEntry(name=name), if_match=if_match)


@ROUTES.post("/{name:path}/enable", summary="Switch an entry on", response_model=DEFINED)
async def enable_entry(name: Name, service: TheService, caller: Definer) -> Response:
    """Switch an entry on; what would have fired while it was off does not count as missed."""
    await _entry(service, caller, name)
    reply = await define(service, caller, EnableEntry(name=name, enabled=True))
    await TimetableChore(service.store, service.timing).create_fires_or_warn(name)
    return reply


@ROUTES.post("/{name:path}/disable", summary="Switch an entry off", response_model=DEFINED)
async def disable_entry(name: Name, service: TheService, caller: Definer) -> Response:
    """Switch an entry off; its scheduled fires are cancelled."""
    await _entry(service, caller, name)
    return await define(service, caller, EnableEntry(name=name, enabled=False))


@ROUTES.post(
    "/{name:path}/fire",
    summary="Fire an entry now",
    status_code=201,
    response_model=MADE,
    response_description="The job was created.",
    responses={
        200: {
            "model": MADE,
            "description": "The job already existed, under the same Idempotency-Key.",
        }
    },
)
async def fire_entry(
    name: Name,
    service: TheService,
    caller: Sender,
    repeat_key: RepeatKey = None,
) -> Response:
    """Create the entry's job once more, due now, whether the entry is on or off.

    The job is separate from the timetable: it shifts no fire, and the entry's overlap policy
    ignores it. The trail records it as a move of that job. With the `Idempotency-Key` header, a
    repeat creates no second job.
    """
    entry = await _entry(service, caller, name)
    own = str(uuid7())
    if repeat_key is not None:
        own = derived_id("http", caller.id, check_repeat_key(repeat_key), "fire", name)
    # Scheduled, then made due by a move, so that the trail records who fired it.
    now = await service.now()
    job = entry.spec.job.changed(id=own, due_at=now + UNFIRED_MS, key=None)
    if job.expires_at is not None:
        job = job.changed(expires_at=min(now + job.expires_at, LATEST))
    (made,) = await send_jobs(service, [job], caller=caller)
    reason = f"fired the entry {name}"
    move = Move(verb=Verb.RUN_NOW, edit=Edit(), caller=caller, reason=reason)
    await service.store.act(move.under(repeat_key, name).request([made.id]))
    return json_reply(made, 201 if made.created else 200)


async def _found(service: Service, name: str) -> EntryView | None:
    entries = await service.store.read(TimetableQuery(names=(name,)))
    return entries[0] if entries else None


async def _entry(service: Service, caller: Caller, name: str) -> EntryView:
    entry = await _found(service, name)
    if entry is None or not caller.sees(entry.spec.job):
        message = f"there is no entry {name[:80]!r}"
        raise UnknownEntry(message, hint="GET /v1/timetable lists them")
    return entry


def _entry_body(
    entry: EntryView, coming: Mapping[str, Sequence[int]], last: Mapping[str, int]
) -> dict[str, object]:
    spec = entry.spec
    return {
        **record(entry),
        "name": spec.name,
        "when": format_schedule(spec.schedule),
        "next_at": coming.get(spec.name, []),
        "last_at": last.get(spec.name),
    }
