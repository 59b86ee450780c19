"""Intake: validate leads against their templates, and create their jobs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
from jsonschema import Draft202012Validator
from pydantic import AfterValidator, AliasChoices, ConfigDict, Field
from referencing.exceptions import Unresolvable
from uuid_utils import uuid7

from headway.core.check import check_jobs
from headway.core.errors import InvalidValue, UnknownRecord, located
from headway.core.gates.spec import GateSpec
from headway.core.instant import format_instant
from headway.core.job import JobPolicy, NewJob
from headway.core.local_time import find_zone
from headway.core.naming import MAX_NAME
from headway.core.retry import draw
from headway.server.bodies.base import (
    Body,
    FailFastList,
    Name,
    TenantName,
    WhenNotSeconds,
    one_or_many,
)
from headway.server.caller import Caller
from headway.server.problems import add_members
from headway.server.sending import send_jobs
from headway.server.service import Service
from headway.systems.calls.catalogue import REPORTS, CatalogueContents, NumberStatus
from headway.systems.calls.context import CallsContext
from headway.systems.calls.payload_schema import read_schema
from headway.systems.calls.source_table.settings import LeadRow
from headway.systems.calls.source_table.source_table import write_leads
from headway.systems.calls.template import DEFAULT, Label, Template
from headway.systems.directory.records import NewRow, RecordChange
from headway.systems.telephony.phone import Phone, check_phone

MOST_LEADS = 10_000
"""Maximum number of leads in one request."""


LONGEST_REPORTED = MAX_NAME - len(REPORTS.format(tenant=""))
"""Maximum length of a reseller's name whose results are reported."""


def _zone(value: str) -> str:
    return find_zone(value).key


Zone = Annotated[str, AfterValidator(_zone), Field(max_length=64, examples=["America/Denver"])]
"""An IANA time zone."""

ResellerName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^{}\x00]+$")]
"""A reseller's name that can be part of a gate's name."""


class LeadBody(Body):
    """A lead to call."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_by_name=True)

    phone: Phone = Field(description="Phone number to call, in E.164 format.")
    tz: Zone = Field(description="Time zone of the phone's owner, used for calling hours.")
    reseller: TenantName | None = Field(
        default=None,
        validation_alias=AliasChoices("reseller", "reseller_id"),
        description="Reseller that the lead belongs to (also `reseller_id`). Defaults to that of "
        "the token, if it has one.",
    )
    template: Label = Field(
        default="default", description="Template that defines how the lead is called."
    )
    next_attempt_at: WhenNotSeconds | None = Field(
        default=None,
        description="When to call. By default, after the template's initial offset from now.",
    )
    key: Name | None = Field(
        default=None,
        validation_alias=AliasChoices("key", "request_id"),
        description="However often this is sent, one lead is created (also `request_id`).",
        examples=["order-17"],
    )
    payload: Any = Field(default=None, description="Data that matches the template's schema.")
    reporting_webhook_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S{1,2000}$",
        description="URL that receives the result, signed.",
    )


LeadList = Annotated[FailFastList[LeadBody], Field(min_length=1, max_length=MOST_LEADS)]
OneOrManyLeads = Annotated[LeadBody | LeadList, one_or_many(LeadBody, LeadList, MOST_LEADS)]
"""One lead, or a list of up to 10,000."""

_Channels = Annotated[
    int, Field(ge=1, le=1_000_000, description="Maximum number of calls at once.")
]


class NumberBody(NewRow):
    """A number to call from."""

    id: Phone = Field(alias="number", description="One of the provider's numbers, in E.164 format.")
    provider: Label = Field(description="Name of the provider in [telephony].", examples=["twilio"])
    maximum_channels: _Channels
    status: NumberStatus = Field(default=NumberStatus.AVAILABLE, strict=False)
    reseller: ResellerName | None = Field(
        default=None, description="Use the number only for leads of this reseller."
    )
    pool: Label | None = Field(default=None, description="Pool of numbers that templates can name.")


class NumberChange(RecordChange):
    """Changes to a number; omitted fields stay unchanged."""

    clearable: ClassVar[frozenset[str]] = frozenset({"reseller", "pool"})

    provider: Label | None = None
    maximum_channels: _Channels | None = None
    status: NumberStatus | None = Field(default=None, strict=False)
    reseller: ResellerName | None = Field(
        default=None, description="Use the number only for leads of this reseller; null for all."
    )
    pool: Label | None = Field(default=None, description="Pool of the number; null for none.")


class Taken(NamedTuple):
    """The result of sending a lead.

    Attributes:
        created: whether this call created it.
        due_at: when it is due; for a lead that already existed, this can also be when the one sent
            would have been due.
    """

    id: str
    created: bool
    due_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LeadRecipe:
    """Makes the jobs of leads."""

    context: CallsContext

    @property
    def deadline_ms(self) -> int:
        """How long a call may last before its provider is queried."""
        return self.context.settings.call_deadline

    def job(self, row: LeadRow) -> NewJob:
        """Return the job of a row of the source table.

        Raises:
            InvalidValue: the stored row cannot be read.
            CallerError: the row is not a valid lead.
        """
        if row.fault:
            raise InvalidValue(row.fault)
        check_phone("the phone", row.phone)
        find_zone(row.tz)
        made = self.lead_job(row, job_id=row.lead, key=f"row:{row.id}", row_id=row.id)
        # The due time of a row is used unchanged, without jitter.
        return made.changed(due_at=row.due_at)

    def lead_job(self, row: LeadRow, *, job_id: str, key: str | None, row_id: str = "") -> NewJob:
        """Return the job of a lead.

        Args:
            row_id: id of the row in the source table; empty if there is none.

        Returns:
            The job, due up to `jitter` after the lead, so that not all start at once.

        Raises:
            CallerError: the lead is not valid.
        """
        job = self.context.kind.make(
            due=format_instant(row.due_at),
            tenant=row.reseller,
            key=key,
            job_id=job_id,
            phone=row.phone,
            tz=row.tz,
            template=row.template or DEFAULT,
            payload=row.payload,
            reporting_webhook_url=row.reporting_webhook_url,
            row=row_id,
        )
        job = job.changed(due_at=row.due_at + self._spread(job_id))
        if row_id or row.reporting_webhook_url is not None:
            return job
        # Its end is reported nowhere, so no follow-up is needed.
        return job.changed(policy=_without_follow_up(job.policy))

    async def dial_gates(self, row: LeadRow) -> Sequence[GateSpec]:
        """Declare and return the gates that its call must pass now.

        Raises:
            UnknownRecord: its template no longer exists.
        """
        contents = await self.context.catalogue.read({row.template or DEFAULT})
        await self.context.declare_gates(contents)
        template = contents.template(row.template or DEFAULT)
        return self.context.dial_gates(contents, template, row.reseller)

    def _spread(self, lead: str) -> int:
        # A hash of the id, so that a repeat is due at the same time.
        return int(draw(f"due {lead}") * (self.context.settings.jitter + 1))


@lru_cache(maxsize=8)
def _without_follow_up(policy: JobPolicy) -> JobPolicy:
    return replace(policy, on_final=None)


async def take_leads(
    service: Service, caller: Caller, context: CallsContext, bodies: Sequence[LeadBody]
) -> list[Taken]:
    """Create leads; when this returns, they are stored.

    Returns:
        For each, in this order, the lead that exists now.

    Raises:
        Forbidden: the caller may not use the reseller of a lead.
        InvalidValue: a lead has no reseller, an unknown template, a payload that does not match
            the template's schema, or an unusable reporting URL; nothing was stored.
        KeyConflict: a key names a different lead.
    """
    for n, body in enumerate(bodies):
        if body.reporting_webhook_url is not None:
            with _of_lead(n, len(bodies)):
                context.reporter.check(body.reporting_webhook_url)
    contents = await context.catalogue.read({one.template for one in bodies})
    now = await service.now() if context.table is None else service.timing.wall_at()
    recipe = LeadRecipe(context=context)
    rows: list[LeadRow] = []
    async for n, body in service.in_turns(enumerate(bodies)):
        with _of_lead(n, len(bodies)):
            rows.append(_row(caller, contents, body, now))
    caller.check_lane(context.kind.lane)
    if context.table is not None:
        return await _into_table(service, context, recipe, rows)
    jobs = [
        recipe.lead_job(row, job_id=str(uuid7()), key=row.key)
        async for row in service.in_turns(rows)
    ]
    made = await send_jobs(service, jobs, caller=caller)
    return [
        Taken(one.id, one.created, job.due_at or 0) for one, job in zip(made, jobs, strict=True)
    ]


async def _into_table(
    service: Service, context: CallsContext, recipe: LeadRecipe, rows: Sequence[LeadRow]
) -> list[Taken]:
    table = context.table
    assert table is not None  # noqa: S101  (checked by the caller)
    async for row in service.in_turns(rows):
        # Before the rows are written: those whose jobs cannot be created would stay pending.
        check_jobs([recipe.lead_job(row, job_id=str(uuid7()), key=None, row_id=str(uuid7()))])
    written = await write_leads(table.table, rows)
    jobs = [recipe.job(row) for row, created in written if created]
    await table.follow(context.store, jobs)
    return [Taken(row.lead, created, row.due_at) for row, created in written]


@contextmanager
def _of_lead(n: int, count: int) -> Generator[None]:
    # Adds the number of the lead to the error.
    try:
        yield
    except InvalidValue as error:
        if count > 1:
            add_members(error, lead=n)
        raise


def _row(caller: Caller, contents: CatalogueContents, body: LeadBody, now: int) -> LeadRow:
    reseller = _reseller(caller, body)
    template = _template(contents, body)
    _check_payload(template, body)
    due_at = now + template.initial_offset
    if body.next_attempt_at is not None:
        due_at = body.next_attempt_at.resolved(now)
    return LeadRow(
        phone=body.phone,
        tz=body.tz,
        reseller=reseller,
        template=body.template,
        due_at=due_at,
        key=body.key,
        payload=body.payload,
        reporting_webhook_url=body.reporting_webhook_url,
    )


def _reseller(caller: Caller, body: LeadBody) -> str:
    reseller = caller.tenant(body.reseller)
    if not reseller:
        message = "the lead has no reseller"
        raise InvalidValue(message, hint="set `reseller`")
    if body.reporting_webhook_url is not None and len(reseller) > LONGEST_REPORTED:
        # The name of the gate of its report would be too long.
        message = f"the reseller of a lead with a report has {len(reseller)} characters"
        raise InvalidValue(message, hint=f"at most {LONGEST_REPORTED}")
    return reseller


def _template(contents: CatalogueContents, body: LeadBody) -> Template:
    try:
        return contents.template(body.template)
    except UnknownRecord as error:
        # The template is named by the body, not by the path, so this is no 404.
        raise InvalidValue(error.message, hint=error.hint) from None


def _check_payload(template: Template, body: LeadBody) -> None:
    if template.payload_schema is None:
        return
    shown = f"GET /templates/{template.name} shows its payload_schema"
    with located(f"the template {template.name!r} cannot check the payload: "):
        validator = _validator(msgspec.json.encode(template.payload_schema, order="deterministic"))
    try:
        fault = next(iter(validator.iter_errors(body.payload)), None)  # pyright: ignore[reportUnknownMemberType]  (incompletely typed)
    except (Unresolvable, RecursionError, OverflowError) as error:
        endless = "it is nested too deep, or the schema refers to itself endlessly"
        why = endless if isinstance(error, RecursionError) else str(error)
        message = f"the template {template.name!r} cannot check the payload: {why}"[:300]
        raise InvalidValue(message, hint=shown) from None
    if fault is not None:
        where = ".".join(("payload", *map(str, fault.absolute_path)))
        message = f"the template {template.name!r} refuses {where}: {fault.message}"[:300]
        raise InvalidValue(message, hint=shown)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Draft202012Validator:
    return read_schema(msgspec.json.decode(schema))
