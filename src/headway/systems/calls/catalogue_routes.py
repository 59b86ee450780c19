"""/numbers and /templates: a change is written, declared to the store and applied to leads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, TypeVar, cast

from fastapi import Path, Query, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.views import GatesQuery, SpecsQuery
from headway.core.errors import InvalidState, UnknownRecord
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateSpec
from headway.server.access import Definer, Observer
from headway.server.caller import Caller
from headway.server.paging import PageQuery, WhichPage, page_of
from headway.server.replies import answer, page_model, reply, reply_model
from headway.server.routing import TheService, router
from headway.server.service import Service
from headway.systems.calls.catalogue import (
    DEFAULT_POOL,
    CatalogueContents,
    Number,
    NumberRecord,
    TemplateRecord,
    changed_gates,
    gate_layout,
    pool_gate,
)
from headway.systems.calls.context import STEP, CallsContext, TheContext
from headway.systems.calls.intake import NumberBody, NumberChange, ResellerName
from headway.systems.calls.template import DEFAULT, Label, TemplateBody
from headway.systems.directory.records import check_not_null
from headway.systems.telephony.texts import check_words


@asynccontextmanager
async def changing(
    service: Service, context: CallsContext, caller: Caller, reason: str
) -> AsyncGenerator[AsyncSession]:
    """Yield a session for changes of numbers and templates, which apply at once.

    Raises:
        StoreError: the directory or the store is unavailable; nothing was written.
        InvalidState: a number in use would join another pool; nothing was written.
    """
    moved = False

    async def define(specs: Sequence[GateSpec]) -> None:
        for start in range(0, len(specs), STEP):
            items = tuple(DeclareGate(spec=one) for one in specs[start : start + STEP])
            request = DefineRequest(items=items, author=caller.name, reason=reason)
            await service.store.define(request)

    async def declare(before: CatalogueContents, after: CatalogueContents) -> None:
        nonlocal moved
        moved = gate_layout(before) != gate_layout(after)
        # A number leaves its old pool, which may have been that of a removed number, before its
        # calls are counted, and joins its new pool after that: meanwhile it starts no calls.
        joining = {
            number: one
            for number, one in after.numbers.items()
            if (old := before.numbers.get(number)) is None or old.gate != one.gate
        }
        staying = {key: one for key, one in after.numbers.items() if key not in joining}
        without = replace(after, numbers=staying)
        await define(changed_gates(before, without))
        used = await _used_in_other_pools(service, joining.values())
        if used:
            await define(changed_gates(without, before))
            message = f"{used} channels of the number are in use: another pool would not count them"
            hint = "disable the number, and add it to this pool or reseller after its calls"
            raise InvalidState(message, hint=hint)
        # Before the commit, so that every committed number can be called from.
        await define(changed_gates(without, after))

    async with context.catalogue.change(declare) as session:
        yield session
    service.gates.forget()
    if moved:
        # In the background: requeueing a long backlog takes longer than the change.
        context.changed.set()


async def _used_in_other_pools(service: Service, numbers: Collection[Number]) -> int:
    """Return how many channels of these numbers are in use in pools other than theirs."""
    if not numbers:
        return 0
    # Also the pools of removed numbers, which only the store knows.
    known = [one.name for one in await service.store.read(SpecsQuery())]
    pools = [one for one in known if one.startswith((DEFAULT_POOL, pool_gate("")))]
    others = tuple(
        member_gate(pool, one.number) for one in numbers for pool in pools if pool != one.gate
    )
    return sum(one.used for one in (await service.store.read(GatesQuery(names=others))).rows)


ROUTES = router("system: calls", operations="calls_")
Row = TypeVar("Row", NumberRecord, TemplateRecord)

TheNumber = Annotated[
    str,
    Path(max_length=16, description="Phone number, in E.164 format.", examples=["+15550001000"]),
]


class NumbersParams(PageQuery):
    """Which numbers."""

    reseller: ResellerName | None = Field(
        default=None, description="Only numbers of this reseller."
    )
    pool: Label | None = Field(default=None, description="Only numbers in this pool.")


@ROUTES.get("/numbers", summary="List numbers", response_model=page_model(Number))
async def numbers(
    params: Annotated[NumbersParams, Query()],
    context: TheContext,
    caller: Observer,
) -> Response:
    """List numbers, in numerical order. GET /v1/gates shows how many of their lines are in use."""
    caller.whole()
    rows = [
        one
        for one in (await context.catalogue.read()).numbers.values()
        if params.reseller in {None, one.reseller} and params.pool in {None, one.pool}
    ]
    page = page_of(rows, lambda one: one.number, params)
    return answer({"rows": page.rows, "cursor": page.cursor})


@ROUTES.post(
    "/numbers", summary="Add a number", status_code=201, response_model=reply_model(Number)
)
async def add_number(
    body: NumberBody, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Add a number; waiting leads can be called from it at once.

    409: the number exists, or it was removed from another pool, and calls from it are in progress.

    Raises:
        InvalidState: the number exists, or another pool still counts its calls.
        InvalidValue: no provider has this name.
    """
    caller.check_gate(DEFAULT_POOL)
    context.telephony.voice(body.provider)
    record = NumberRecord(**body.model_dump(mode="json"))
    try:
        async with changing(service, context, caller, f"number {body.number}") as session:
            session.add(record)
            await session.flush()
    except IntegrityError:
        message = f"the number {body.number} already exists"
        raise InvalidState(message, hint="PATCH /numbers/{number} changes it") from None
    return answer(record.read(), 201)


@ROUTES.patch("/numbers/{number}", summary="Change a number", response_model=reply_model(Number))
async def change_number(
    number: TheNumber, body: NumberChange, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Change a number at once; calls in progress are not affected.

    With DISABLED, no new calls start from it. With fewer channels, none start until fewer calls are
    in progress. 409: another reseller or pool was given, and calls from it are in progress.

    Raises:
        UnknownRecord: there is no such number.
        InvalidValue: no provider has this name.
        InvalidState: its pool would change during its calls.
    """
    caller.check_gate(DEFAULT_POOL)
    given = body.model_dump(mode="json", exclude_unset=True)
    check_not_null({name: one for name, one in given.items() if name not in {"reseller", "pool"}})
    if "provider" in given:
        context.telephony.voice(given["provider"])
    async with changing(service, context, caller, f"number {number}") as session:
        record = await _found(session, NumberRecord, number)
        for name, value in given.items():
            setattr(record, name, value)
    return answer(record.read())


@ROUTES.delete("/numbers/{number}", summary="Remove a number", status_code=204)
async def remove_number(
    number: TheNumber, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Remove a number; calls in progress are not affected.

    Raises:
        UnknownRecord: there is no such number.
    """
    caller.check_gate(DEFAULT_POOL)
    async with changing(service, context, caller, f"number {number}") as session:
        await session.delete(await _found(session, NumberRecord, number))
    return Response(status_code=204)


async def _found(session: AsyncSession, table: type[Row], name: str) -> Row:
    """Return a stored number or template.

    Raises:
        UnknownRecord: it does not exist.
    """
    found = await session.get(table, name)
    if found is None:
        noun = table.__tablename__.removeprefix("calls_")
        message = f"there is no {noun[:-1]} {name[:64]!r}"
        raise UnknownRecord(message, hint=f"GET /{noun} lists them")
    return found


TheName = Annotated[Label, Path(description="Name of the template.")]

NAMED = reply(
    "NamedTemplate",
    "A template with its name; durations are in milliseconds.",
    name=(str, "Name that leads refer to."),
    template=(TemplateBody, "Current settings for all leads that name it."),
)
PAGE = reply(
    "PageOfTemplates",
    "One page of templates.",
    rows=(list[NAMED], "Templates, by name."),
    cursor=(str | None, "Cursor for the next request; null at the end."),
)


@ROUTES.get("/templates", summary="List templates", response_model=PAGE)
async def templates(params: WhichPage, context: TheContext, caller: Observer) -> Response:
    """List templates, by name."""
    caller.whole()
    async with context.directory.read() as session:
        stored = {one.name: one.body for one in await session.scalars(select(TemplateRecord))}
    bodies = {DEFAULT: _usual(context), **stored}
    page = page_of(tuple(bodies), str, params)
    rows = [_named(name, bodies[name]) for name in page.rows]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get("/templates/{name}", summary="Get a template", response_model=NAMED)
async def template(name: TheName, context: TheContext, caller: Observer) -> Response:
    """Return the current settings of a template.

    Raises:
        UnknownRecord: there is none of this name.
    """
    caller.whole()
    async with context.directory.read() as session:
        if name == DEFAULT and await session.get(TemplateRecord, name) is None:
            return answer(_named(name, _usual(context)))
        return answer(_named(name, (await _found(session, TemplateRecord, name)).body))


@ROUTES.put("/templates/{name}", summary="Create or replace a template", response_model=NAMED)
async def set_template(
    name: TheName, body: TemplateBody, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Create a template, or replace it completely; this applies to waiting leads too.

    Raises:
        InvalidValue: its text cannot be spoken, or it names an unknown provider.
    """
    caller.check_gate(DEFAULT_POOL)
    check_words("say", body.say)
    for provider in body.providers:
        context.telephony.voice(provider)
    written = body.model_dump(mode="json")
    now = await service.now()
    async with changing(service, context, caller, f"template {name}") as session:
        record = await session.get(TemplateRecord, name)
        before = _usual(context) if name == DEFAULT else {}
        if record is None:
            record = TemplateRecord(name=name, body=before, checks_at=0)
            session.add(record)
        if record.body.get("checks", written["checks"]) != written["checks"]:
            # Leads checked before this are checked again before the call.
            record.checks_at = now
        record.body = written
    return answer(_named(name, written))


@ROUTES.delete("/templates/{name}", summary="Remove a template", status_code=204)
async def remove_template(
    name: TheName, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Remove a template; leads that name it end with PRECHECK_FAILED when they are due.

    For `default`, the stored values are removed, and those of the settings apply again.

    Raises:
        UnknownRecord: there is none of this name.
    """
    caller.check_gate(DEFAULT_POOL)
    async with changing(service, context, caller, f"template {name}") as session:
        await session.delete(await _found(session, TemplateRecord, name))
    return Response(status_code=204)


def _usual(context: CallsContext) -> dict[str, object]:
    return cast("dict[str, object]", context.settings.template.model_dump(mode="json"))


def _named(name: str, body: dict[str, object]) -> dict[str, object]:
    return {"name": name, "template": body}
