"""Routes of a record type: list, get, add, change, remove, import; changes support `If-Match`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Path, Query, Request, Response
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from headway.core.errors import IdConflict, InvalidValue, RevisionConflict
from headway.server.access import Definer, Observer
from headway.server.bodies.base import Name
from headway.server.caller import Caller
from headway.server.paging import PageQuery, decode_cursor, encode_cursor
from headway.server.replies import answer, page_model, reply_model
from headway.server.routing import TheService
from headway.systems.directory.importing import CSV_BODY, ImportParams, run_import, uploaded
from headway.systems.directory.records import MAX_ID, ImportReport, New, R, RecordChange, Records

_Handler = Callable[..., Awaitable[Response]]
_TAG = re.compile(r'(?:W/)?"(\d{1,9})"', re.ASCII)

IfVersion = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='Version that you know, from the ETag, such as `"3"`; if the record now has '
        "another one, nothing is changed and the reply is 409.",
        examples=['"3"'],
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteDescriptions:
    """Descriptions of the routes in the API documentation; the noun provides the defaults.

    Attributes:
        prefix: prefix of the operation ids.
        example: an example of an id.
        which: what the id in a path is.
    """

    prefix: str
    example: str
    change: str
    remove: str
    imported: str
    which: str | None = None
    listed: str | None = None
    one: str | None = None
    add: str | None = None


def add_routes(  # noqa: C901, PLR0915  (six routes that share parameters)
    routes: APIRouter,
    records: Records[R, New],
    *,
    reach: Callable[[Caller], None],
    params: type[PageQuery],
    changed: type[RecordChange],
    texts: RouteDescriptions,
) -> RecordHandlers:
    """Add the routes of a record type: list, get, add, change, remove, import.

    Args:
        routes: router whose prefix is the path of the list.
        reach: raises Forbidden if the records are outside the caller's scope.
    """
    noun = records.noun
    taken = f"this {records.key}{f' or this {records.unique}' if records.unique else ''}"
    which = Annotated[
        Name,
        Path(
            alias=records.key,
            max_length=MAX_ID,
            description=texts.which or f"Id of the {noun.replace('-', ' ')}.",
            examples=[texts.example],
        ),
    ]

    def shown(found: R, caller: Caller, status: int = 200) -> Response:
        tag = {"ETag": f'"{found.version}"'}
        return answer(records.view(found, caller), status, headers=tag)

    def id_conflict() -> IdConflict:
        message = f"{taken} was taken by another request at the same time"
        return IdConflict(message, hint=f"GET /{noun}s lists them")

    async def listing(params: Any, service: TheService, caller: Observer) -> Response:  # noqa: ANN401  (typed below)
        reach(caller)
        rows, after = records.filtered(select(records.table), params), decode_cursor(params.cursor)
        async with records.directory(service).read() as session:
            found, last = await records.page(session, rows, after, params.limit)
        shown = [records.view(one, caller) for one in found]
        return answer({"rows": shown, "cursor": encode_cursor(last)})

    async def one(id: str, service: TheService, caller: Observer) -> Response:
        reach(caller)
        async with records.directory(service).read() as session:
            return shown(await records.find(session, id), caller)

    async def add(body: Any, service: TheService, caller: Definer) -> Response:  # noqa: ANN401  (as above)
        reach(caller)
        records.check(service, body.values)
        try:
            async with records.changing(service, caller, body.id) as session:
                added = await records.add(session, body, service.timing.wall_at())
        except IntegrityError:
            raise id_conflict() from None
        return shown(added, caller, 201)

    async def change(
        id: str,
        body: Any,  # noqa: ANN401  (as above)
        service: TheService,
        caller: Definer,
        if_match: IfVersion = None,
    ) -> Response:
        reach(caller)
        values = body.values
        records.check(service, values)
        try:
            async with records.changing(service, caller, id) as session:
                found = await records.find(session, id, to_change=True)
                check_version(f"the {noun} {id!r}", found.version, if_match)
                await records.change(session, found, values, service.timing.wall_at())
        except IntegrityError:
            raise id_conflict() from None
        return shown(found, caller)

    async def remove(
        id: str, service: TheService, caller: Definer, if_match: IfVersion = None
    ) -> Response:
        reach(caller)
        # Before the transaction, so that no lock is held while the store is read.
        await records.check_unused(service.store, id)
        async with records.changing(service, caller, id) as session:
            found = await records.find(session, id, to_change=True)
            check_version(f"the {noun} {id!r}", found.version, if_match)
            await session.delete(found)
        return Response(status_code=204)

    async def imported(
        request: Request,
        params: Annotated[ImportParams, Query()],
        service: TheService,
        caller: Definer,
    ) -> Response:
        reach(caller)
        async with uploaded(request) as file:
            return answer(await run_import(service, caller, file, records, partial=params.partial))

    listing.__annotations__["params"] = Annotated[params, Query()]
    add.__annotations__["body"] = records.body
    change.__annotations__["body"] = changed
    for route in (one, change, remove):
        route.__annotations__["id"] = which
    handlers = RecordHandlers(listing, one, add, change, remove, imported)
    _register(routes, records, handlers, texts)
    return handlers


class RecordHandlers(NamedTuple):
    """The functions of a record type's routes."""

    listing: _Handler
    one: _Handler
    add: _Handler
    change: _Handler
    remove: _Handler
    imported: _Handler


def _register(
    routes: APIRouter, records: Records[R, New], handlers: RecordHandlers, texts: RouteDescriptions
) -> None:
    """Add the routes, with their descriptions in the API documentation."""
    noun, reply, path = records.noun, reply_model(records.shape), f"/{{{records.key}}}"
    p, plain = texts.prefix, noun.replace("-", " ")
    about = f"a {plain}"
    routes.get(
        "",
        operation_id=f"{p}_{noun}s",
        summary=f"List {plain}s",
        description=texts.listed or f"List {plain}s by id.",
        response_model=page_model(records.shape),
    )(handlers.listing)
    routes.get(
        path,
        operation_id=f"{p}_{noun}",
        summary=f"Get {about}",
        description=texts.one or f"Return a {plain}.",
        response_model=reply,
    )(handlers.one)
    routes.post(
        "",
        operation_id=f"{p}_add_{noun}",
        summary=f"Add {about}",
        description=texts.add or f"Add a {plain}.",
        status_code=201,
        response_model=reply,
    )(handlers.add)
    routes.patch(
        path,
        operation_id=f"{p}_change_{noun}",
        summary=f"Change {about}",
        description=texts.change,
        response_model=reply,
    )(handlers.change)
    routes.delete(
        path,
        operation_id=f"{p}_remove_{noun}",
        summary=f"Remove {about}",
        description=texts.remove,
        status_code=204,
    )(handlers.remove)
    routes.post(
        "/import",
        operation_id=f"{p}_import_{noun}s",
        summary=f"Import {plain}s",
        description=f"{texts.imported} Either all rows are written or none, unless `partial` is "
        f"set.",
        response_model=reply_model(ImportReport),
        openapi_extra=CSV_BODY,
    )(handlers.imported)


def check_version(what: str, version: int, if_match: str | None) -> None:
    """Check that `If-Match`, if it is set, names the current version of a record.

    Raises:
        RevisionConflict: the record has another version.
        InvalidValue: the header is not a version.
    """
    if if_match is None or if_match.strip() == "*":
        return
    found = _TAG.fullmatch(if_match.strip())
    if found is None:
        message = "If-Match is not a version of a record"
        raise InvalidValue(message, hint='pass the ETag, such as "3"')
    if int(found[1]) != version:
        message = f"{what} is at version {version}, not {found[1]}"
        raise RevisionConflict(message, hint="read it again, and repeat the change")
