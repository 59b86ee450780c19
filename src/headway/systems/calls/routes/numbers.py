"""/numbers: from where calls are made."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response
from pydantic import Field
from sqlalchemy.exc import IntegrityError

from headway.core.errors import InvalidState, InvalidValue, UnknownRecord
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import PageAsked, page_of
from headway.server.replies.answer import answer
from headway.server.replies.schema import page_model, reply_model
from headway.server.routes.router import TheService, router
from headway.systems.calls.bodies import NumberBody, NumberChange, Own
from headway.systems.calls.changing import changing
from headway.systems.calls.desk import Desk, TheDesk
from headway.systems.calls.number import DEFAULT_POOL, Number
from headway.systems.calls.records import NumberRecord
from headway.systems.calls.template_body import Label

ROUTES = router("system: calls")
_LISTED = "GET /numbers lists them"

TheNumber = Annotated[str, Path(max_length=16, description="E.164.", examples=["+15550001000"])]
Definer = Annotated[Caller, needs(Permission.DEFINE)]


class NumbersAsked(PageAsked):
    """Which numbers."""

    reseller: Own | None = Field(default=None, description="Only this one's own.")
    pool: Label | None = Field(default=None, description="Only of this pool.")


@ROUTES.get(
    "/numbers",
    operation_id="calls_numbers",
    summary="List numbers",
    response_model=page_model(Number),
)
async def listing(
    asked: Annotated[NumbersAsked, Query()],
    desk: TheDesk,
    caller: Annotated[Caller, needs(Permission.OBSERVE)],
) -> Response:
    """Lists the numbers, by number. How many of their lines are taken is told by GET /v1/gates."""
    caller.whole()
    rows = [
        one
        for one in (await desk.book.read()).numbers.values()
        if asked.reseller in {None, one.reseller} and asked.pool in {None, one.pool}
    ]
    page = page_of(rows, lambda one: one.number, asked)
    return answer({"rows": page.rows, "cursor": page.cursor})


@ROUTES.post(
    "/numbers",
    operation_id="calls_add_number",
    summary="Add a number",
    status_code=201,
    response_model=reply_model(Number),
)
async def add(body: NumberBody, service: TheService, desk: TheDesk, caller: Definer) -> Response:
    """Adds a number; leads that wait may be called from it at once.

    Raises:
        InvalidState: it is there already.
        InvalidValue: no provider has this name.
    """
    caller.check_gate(DEFAULT_POOL)
    _check_provider(desk, body.provider)
    record = NumberRecord(**body.model_dump(mode="json"))
    try:
        async with changing(service, desk, caller, f"number {body.number}") as session:
            session.add(record)
            await session.flush()
    except IntegrityError:
        message = f"the number {body.number} is there already"
        raise InvalidState(message, hint="PATCH /numbers/{number} changes it") from None
    return answer(record.read(), 201)


@ROUTES.patch(
    "/numbers/{number}",
    operation_id="calls_change_number",
    summary="Change a number",
    response_model=reply_model(Number),
)
async def change(
    number: TheNumber, body: NumberChange, service: TheService, desk: TheDesk, caller: Definer
) -> Response:
    """Changes a number at once; calls that go on are left alone.

    DISABLED: no further call begins from it. Fewer channels: none until fewer calls go on.

    Raises:
        UnknownRecord: there is no such number.
        InvalidValue: no provider has this name.
    """
    caller.check_gate(DEFAULT_POOL)
    given = body.model_dump(mode="json", exclude_unset=True)
    for name in ("provider", "maximum_channels", "status"):
        if name in given and given[name] is None:
            message = f"{name} cannot be null"
            raise InvalidValue(message, hint="leave it out to keep it")
    if "provider" in given:
        _check_provider(desk, given["provider"])
    async with changing(service, desk, caller, f"number {number}") as session:
        record = await session.get(NumberRecord, number)
        if record is None:
            message = f"there is no number {number[:64]!r}"
            raise UnknownRecord(message, hint=_LISTED)
        for name, value in given.items():
            setattr(record, name, value)
    return answer(record.read())


@ROUTES.delete(
    "/numbers/{number}",
    operation_id="calls_remove_number",
    summary="Remove a number",
    status_code=204,
    response_class=Response,
)
async def remove(
    number: TheNumber, service: TheService, desk: TheDesk, caller: Definer
) -> Response:
    """Removes a number; calls that go on are left alone.

    Raises:
        UnknownRecord: there is no such number.
    """
    caller.check_gate(DEFAULT_POOL)
    async with changing(service, desk, caller, f"number {number}") as session:
        record = await session.get(NumberRecord, number)
        if record is None:
            message = f"there is no number {number[:64]!r}"
            raise UnknownRecord(message, hint=_LISTED)
        await session.delete(record)
    return Response(status_code=204)


def _check_provider(desk: Desk, name: str) -> None:
    """Lets the name of a provider pass.

    Raises:
        InvalidValue: the settings have none of this name.
    """
    desk.parts.exchange.voice(name)
