"""/templates: named configurations of calls."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Path, Response
from sqlalchemy import select

from headway.core.errors import UnknownRecord
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.asking import WhichPage, page_of
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.systems.calls.changing import changing
from headway.systems.calls.desk import TheDesk
from headway.systems.calls.number import DEFAULT_POOL
from headway.systems.calls.records import TemplateRecord
from headway.systems.calls.script import check_words
from headway.systems.calls.template import DEFAULT
from headway.systems.calls.template_body import Label, TemplateBody

ROUTES = router("system: calls")
_LISTED = "GET /templates lists them"

TheName = Annotated[Label, Path(description="Of the template.")]
Definer = Annotated[Caller, needs(Permission.DEFINE)]
Watcher = Annotated[Caller, needs(Permission.OBSERVE)]

NAMED = reply(
    "NamedTemplate",
    "A template, and its name; spans are milliseconds.",
    name=(str, "As leads name it."),
    template=(TemplateBody, "What holds now for all leads that name it."),
)
PAGE = reply(
    "PageOfTemplates",
    "Some templates, and where to go on.",
    rows=(list[NAMED], "By name."),
    cursor=(str | None, "Give it to the next call; null at the end."),
)


@ROUTES.get(
    "/templates", operation_id="calls_templates", summary="List templates", response_model=PAGE
)
async def listing(asked: WhichPage, desk: TheDesk, caller: Watcher) -> Response:
    """Lists the templates, by name."""
    caller.whole()
    async with desk.parts.directory.read() as session:
        stored = {one.name: one.body for one in await session.scalars(select(TemplateRecord))}
    bodies = {DEFAULT: _usual(desk), **stored}
    page = page_of(tuple(bodies), str, asked)
    rows = [_named(name, bodies[name]) for name in page.rows]
    return answer({"rows": rows, "cursor": page.cursor})


@ROUTES.get(
    "/templates/{name}", operation_id="calls_template", summary="One template", response_model=NAMED
)
async def one(name: TheName, desk: TheDesk, caller: Watcher) -> Response:
    """A template as it is now.

    Raises:
        UnknownRecord: there is none of this name.
    """
    caller.whole()
    async with desk.parts.directory.read() as session:
        found = await session.get(TemplateRecord, name)
    if found is None and name != DEFAULT:
        message = f"there is no template {name[:64]!r}"
        raise UnknownRecord(message, hint=_LISTED)
    return answer(_named(name, _usual(desk) if found is None else found.body))


@ROUTES.put(
    "/templates/{name}",
    operation_id="calls_set_template",
    summary="Make or replace a template",
    response_model=NAMED,
)
async def put(
    name: TheName, body: TemplateBody, service: TheService, desk: TheDesk, caller: Definer
) -> Response:
    """Makes a template, or replaces it whole; leads that wait already go by it from now on.

    Raises:
        InvalidValue: its words cannot be said as they are.
    """
    caller.check_gate(DEFAULT_POOL)
    check_words(body.say)
    said = body.model_dump(mode="json")
    now = await service.now()
    async with changing(service, desk, caller, f"template {name}") as session:
        record = await session.get(TemplateRecord, name)
        before = _usual(desk) if name == DEFAULT else {}
        if record is None:
            record = TemplateRecord(name=name, body=before, checks_at=0)
            session.add(record)
        if record.body.get("checks", said["checks"]) != said["checks"]:
            # Who was checked before that is checked again before the call.
            record.checks_at = now
        record.body = said
    return answer(_named(name, said))


@ROUTES.delete(
    "/templates/{name}",
    operation_id="calls_remove_template",
    summary="Remove a template",
    status_code=204,
    response_class=Response,
)
async def remove(name: TheName, service: TheService, desk: TheDesk, caller: Definer) -> Response:
    """Removes a template; leads that name it end with PRECHECK_FAILED when they are due.

    Of `default` its stored values are removed; those of the settings hold again.

    Raises:
        UnknownRecord: there is none of this name.
    """
    caller.check_gate(DEFAULT_POOL)
    async with changing(service, desk, caller, f"template {name}") as session:
        record = await session.get(TemplateRecord, name)
        if record is None:
            message = f"there is no template {name[:64]!r}"
            raise UnknownRecord(message, hint=_LISTED)
        await session.delete(record)
    return Response(status_code=204)


def _usual(desk: TheDesk) -> dict[str, object]:
    return cast("dict[str, object]", desk.settings.template.model_dump(mode="json"))


def _named(name: str, body: dict[str, object]) -> dict[str, object]:
    return {"name": name, "template": body}
