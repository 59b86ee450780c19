"""/numbers and /templates: a change is written, declared to the store and applied to leads.

Templates are no `Records`: PUT replaces one as a whole by its name, and `default` may have no row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, cast

from fastapi import Path, Response
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.store import read_pages
from headway.contract.views import GatesQuery, JobsQuery, SpecsQuery
from headway.core.errors import InvalidState, UnknownRecord
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateSpec
from headway.core.naming import read_whole
from headway.core.state import State
from headway.server.access import Definer, Observer
from headway.server.caller import Caller
from headway.server.paging import PageQuery, WhichPage, page_of
from headway.server.replies import answer, reply
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
from headway.systems.calls.context import NAME, STEP, CallsContext, TheContext
from headway.systems.calls.intake import NumberBody, NumberChange, ResellerName
from headway.systems.calls.lead import LANE, LEAD
from headway.systems.calls.template import DEFAULT, Label, TemplateBody, check_template
from headway.systems.directory.record_routes import RouteDescriptions, add_routes
from headway.systems.directory.records import Records


@asynccontextmanager
async def changing(
    service: Service, context: CallsContext, caller: Caller, reason: str
) -> AsyncGenerator[AsyncSession]:
    """Yield a session for changes of numbers and templates, which apply at once.

    Raises:
        StoreError: the directory or the store is unavailable; nothing was written.
        InvalidState: a number in use would join another pool; nothing was written.
    """
    moved = declaring = False

    async def define(specs: Sequence[GateSpec]) -> None:
        for start in range(0, len(specs), STEP):
            items = tuple(DeclareGate(spec=one) for one in specs[start : start + STEP])
            request = DefineRequest(items=items, author=caller.name, reason=reason)
            await service.store.define(request)

    async def declare(before: CatalogueContents, after: CatalogueContents) -> None:
        nonlocal moved, declaring
        moved, declaring = gate_layout(before) != gate_layout(after), True
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
            which = ", ".join(sorted(used)[:3])
            message = (
                f"{used.total()} channels of the number are in use ({which}): another pool would "
                "not count them"
            )
            hint = "disable the number, and add it to this pool or reseller after its calls"
            raise InvalidState(message, hint=hint)
        # Before the commit, so that every committed number can be called from.
        await define(changed_gates(without, after))

    try:
        async with context.catalogue.change(declare) as session:
            yield session
    except BaseException:
        if declaring:
            # Numbers that were to join another pool have already left theirs.
            await context.declare_again()
            service.gates.forget()
        raise
    service.gates.forget()
    if moved:
        # In the background: requeueing a long backlog takes longer than the change.
        context.changed.set()


async def _used_in_other_pools(service: Service, numbers: Collection[Number]) -> Counter[str]:
    """Return how many channels of each number are in use in pools other than its own."""
    used: Counter[str] = Counter()
    if not numbers:
        return used
    # Also the pools of removed numbers, which only the store knows.
    known = [one.name for one in await service.store.read(SpecsQuery())]
    pools = [one for one in known if one.startswith((DEFAULT_POOL, pool_gate("")))]
    if len(numbers) * len(pools) > STEP:
        # An import: there are fewer calls in progress than members to ask for.
        called = await _called_from(service)
        numbers = [one for one in numbers if one.number in called]
    for pool in pools:
        others = [one.number for one in numbers if one.gate != pool]
        for start in range(0, len(others), STEP):
            names = tuple(member_gate(pool, one) for one in others[start : start + STEP])
            page = await service.store.read(GatesQuery(names=names))
            used.update({one.name.removeprefix(f"{pool}/"): one.used for one in page.rows})
    return +used


async def _called_from(service: Service) -> set[str]:
    """Return the numbers that the leads whose calls are in progress have been called from."""
    live = (State.RUNNING, State.AWAITING)
    query = JobsQuery(kind=LEAD, lane=LANE, states=live, runs=True, limit=STEP)
    return {
        member
        async for page in read_pages(service.store, query)
        for job in page.rows
        for run in job.runs
        for member in run.permits.values()
    }


class NumbersParams(PageQuery):
    """Which numbers."""

    reseller: ResellerName | None = Field(
        default=None, description="Only numbers of this reseller."
    )
    pool: Label | None = Field(default=None, description="Only numbers in this pool.")


class CallerNumbers(Records[NumberRecord, NumberBody]):
    """The numbers, whose changes are declared to the store as gates."""

    table = NumberRecord
    body = NumberBody
    shape = Number
    system = NAME
    key: ClassVar[str] = "number"
    needed: ClassVar[Sequence[str]] = ("number", "provider", "maximum_channels")
    known: ClassVar[Sequence[str]] = ("status", "reseller", "pool")
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "maximum_channels": partial(read_whole, "maximum_channels"),
        "status": str.upper,
    }

    def changing(
        self, service: Service, caller: Caller, id: str | None = None
    ) -> AbstractAsyncContextManager[AsyncSession]:
        """Return the transaction of a change, which declares gates before it is committed."""
        reason = "import of numbers" if id is None else f"number {id}"
        return changing(service, _context(service), caller, reason)

    def check(self, service: Service, values: Mapping[str, Any]) -> None:
        """Check that the provider exists.

        Raises:
            InvalidValue: no provider has this name.
        """
        if "provider" in values:
            _context(service).telephony.voice(values["provider"])

    async def free_id(self, session: AsyncSession, body: NumberBody) -> str:
        """Return the number.

        Raises:
            InvalidState: it exists.
        """
        if await session.get(NumberRecord, body.id) is not None:
            message = f"the number {body.id} already exists"
            raise InvalidState(message, hint="PATCH /numbers/{number} changes it")
        return body.id


def _context(service: Service) -> CallsContext:
    return cast("CallsContext", service.system_services[NAME])


NUMBER_ROUTES = router("system: calls", operations="calls_", prefix="/numbers")

NUMBERS = add_routes(
    NUMBER_ROUTES,
    CallerNumbers(),
    reach=Caller.whole,
    params=NumbersParams,
    changed=NumberChange,
    texts=RouteDescriptions(
        prefix="calls",
        example="+15550001000",
        which="Phone number, in E.164 format.",
        listed="List numbers, in numerical order. GET /v1/gates shows how many of their lines are "
        "in use.",
        add="Add a number; waiting leads can be called from it at once.\n\n409: the number exists, "
        "or it was removed from another pool, and calls from it are in progress.",
        change="Change a number at once; calls in progress are not affected.\n\nWith DISABLED, no "
        "new calls start from it. With fewer channels, none start until fewer calls are in "
        "progress. 409: another reseller or pool was given, and calls from it are in progress.",
        remove="Remove a number; calls in progress are not affected.",
        imported="Import CSV with the columns number, provider, maximum_channels, and optionally "
        "status, reseller, pool.\n\nNumbers that already exist are changed. 409: another reseller "
        "or pool was given for a number, and calls from it are in progress.",
    ),
)

ROUTES = router("system: calls", operations="calls_")


async def _stored(session: AsyncSession, name: str) -> TemplateRecord:
    found = await session.get(TemplateRecord, name)
    if found is None:
        message = f"there is no template {name[:64]!r}"
        raise UnknownRecord(message, hint="GET /templates lists them")
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
        return answer(_named(name, (await _stored(session, name)).body))


@ROUTES.put("/templates/{name}", summary="Create or replace a template", response_model=NAMED)
async def set_template(
    name: TheName, body: TemplateBody, service: TheService, context: TheContext, caller: Definer
) -> Response:
    """Create a template, or replace it completely; this applies to waiting leads too.

    Raises:
        InvalidValue: its text cannot be spoken, a URL has no host, or it names an unknown provider.
    """
    caller.check_gate(DEFAULT_POOL)
    check_template(body, context.telephony)
    written = body.model_dump(mode="json")
    async with changing(service, context, caller, f"template {name}") as session:
        # Not before: the change may have waited for another one, and leads are checked meanwhile.
        now = await service.now()
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
        await session.delete(await _stored(session, name))
    return Response(status_code=204)


def _usual(context: CallsContext) -> dict[str, object]:
    return cast("dict[str, object]", context.settings.template.model_dump(mode="json"))


def _named(name: str, body: dict[str, object]) -> dict[str, object]:
    return {"name": name, "template": body}
