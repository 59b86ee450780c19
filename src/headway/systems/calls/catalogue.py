"""The catalogue: numbers and templates, as stored in the directory, and their gates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import DDL, JSON, BigInteger, CheckConstraint, String, event, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, synonym

from headway.core.errors import UnknownRecord
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateNeed, GateSpec
from headway.runtime.timing import Timing
from headway.systems.calls.template import DEFAULT, CallsSettings, Template
from headway.systems.directory.database import Directory
from headway.systems.directory.records import VersionedColumns
from headway.systems.directory.schemas import naming


class NumberStatus(StrEnum):
    """Whether calls may be made from a number."""

    AVAILABLE = "AVAILABLE"
    DISABLED = "DISABLED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number that calls are made from.

    Attributes:
        number: number in E.164 format.
        provider: provider that places its calls, as named in [telephony].
        maximum_channels: maximum number of calls at once.
        status: whether calls may be made from it.
        reseller: reseller whose leads alone it serves; null for all resellers without numbers of
            their own.
        pool: pool named by a template's `numbers`; null for the reseller's or the default pool.
    """

    number: str
    provider: str
    maximum_channels: int
    status: NumberStatus = NumberStatus.AVAILABLE
    reseller: str | None = None
    pool: str | None = None
    version: int = 1

    @property
    def channels(self) -> int:
        """Maximum number of calls at once, given its status."""
        return self.maximum_channels if self.status is NumberStatus.AVAILABLE else 0

    @property
    def gate(self) -> str:
        """The pool that it is a member of: only one, so that its channels are not counted twice."""
        if self.pool is not None:
            return pool_gate(self.pool)
        return DEFAULT_POOL if self.reseller is None else reseller_gate(self.reseller)


DEFAULT_POOL = "calls.numbers"
"""The gate of the numbers that serve all resellers."""


def reseller_gate(reseller: str) -> str:
    """Return the gate of a reseller's own numbers."""
    return f"{DEFAULT_POOL}:{reseller}"


def pool_gate(pool: str) -> str:
    """Return the gate of a named pool of numbers."""
    return f"calls.pool:{pool}"


class Base(DeclarativeBase):
    """The tables of this system."""

    metadata = naming()


class NumberRecord(VersionedColumns, Base):
    """A row of `calls_numbers`; see `Number`."""

    __tablename__ = "calls_numbers"
    __table_args__ = (CheckConstraint("maximum_channels >= 1", name="channels"),)

    id: Mapped[str] = mapped_column("number", String(16), primary_key=True)
    number: Mapped[str] = synonym("id")
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    provider: Mapped[str] = mapped_column(String(64))
    maximum_channels: Mapped[int]
    status: Mapped[str] = mapped_column(String(16))
    reseller: Mapped[str | None] = mapped_column(String(200), index=True)
    pool: Mapped[str | None] = mapped_column(String(64), index=True)

    def read(self) -> Number:
        """Return the number of this row."""
        return Number(
            number=self.number,
            provider=self.provider,
            maximum_channels=self.maximum_channels,
            status=NumberStatus(self.status),
            reseller=self.reseller,
            pool=self.pool,
            version=self.version,
        )


class TemplateRecord(Base):
    """A row of `calls_templates`: a template's body, and when its checks last changed."""

    __tablename__ = "calls_templates"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    checks_at: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class RevisionRecord(Base):
    """The only row of `calls_revision`, which each change of the catalogue increments.

    Each change updates this row first, so its row lock serializes the changes and their declaration
    of gates to the store.
    """

    __tablename__ = "calls_revision"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    revision: Mapped[int]


event.listen(
    RevisionRecord.__table__,
    "after_create",
    DDL("INSERT INTO calls_revision (id, revision) VALUES (1, 0)"),
)

FRESH_S = 1.0
"""Maximum age of cached contents, in seconds; other processes' changes are seen after this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueContents:
    """The catalogue as of one revision.

    Attributes:
        revision: increases with each change.
        templates: stored templates and `default`, by name.
    """

    revision: int
    numbers: Mapping[str, Number]
    templates: Mapping[str, Template]

    def template(self, name: str) -> Template:
        """Return the template with this name.

        Raises:
            UnknownRecord: there is no template with this name.
        """
        found = self.templates.get(name)
        if found is None:
            message = f"there is no template {name[:64]!r}"
            raise UnknownRecord(message, hint="PUT /templates/{name} creates one")
        return found


OnChange = Callable[[CatalogueContents, CatalogueContents], Awaitable[None]]
"""Declares the gates of changed contents to the store; if it raises, the change is rolled back."""


class Catalogue:
    """Numbers and templates, in the directory."""

    def __init__(self, directory: Directory, default: Template, timing: Timing) -> None:
        """Create it without reading anything.

        Args:
            default: template `default`, until one is stored.
        """
        self._directory = directory
        self._default = default
        self._timing = timing
        self._contents: CatalogueContents | None = None
        self._read_at = 0.0
        self._turn = asyncio.Lock()

    async def read(self, templates: Set[str] = frozenset()) -> CatalogueContents:
        """Return the catalogue, at most a second old.

        Args:
            templates: names of templates; if one is unknown, the catalogue is read again, because
                another process may just have created it.
        """
        if (contents := self._fresh(templates)) is not None:
            return contents
        async with self._turn:
            if (contents := self._fresh(templates)) is not None:
                return contents
            started = self._timing.monotonic()
            async with self._directory.read() as session:
                contents = await self._load_if_changed(session)
            self._cache(contents, started)
            return contents

    @asynccontextmanager
    async def change(self, on_change: OnChange) -> AsyncGenerator[AsyncSession]:
        """Yield a session for changes of the catalogue; concurrent changes wait.

        Args:
            on_change: awaited with the contents before and after, before the change is committed.

        Raises:
            StoreUnavailable: the directory cannot be reached; nothing was written.
            HeadwayError: whatever `on_change` raises; nothing was written.
        """
        async with self._directory.change() as session:
            # The first statement, so that a concurrent change waits here, then reads this change.
            await session.execute(
                update(RevisionRecord).values(revision=RevisionRecord.revision + 1)
            )
            before = await self._load_all(session)
            yield session
            await session.flush()
            after = await self._load_all(session)
            await on_change(before, after)
        self._cache(after, self._timing.monotonic())

    @asynccontextmanager
    async def locked(self) -> AsyncGenerator[CatalogueContents]:
        """Yield the catalogue, locked against changes until the block ends."""
        async with self._directory.change() as session:
            await session.execute(update(RevisionRecord).values(revision=RevisionRecord.revision))
            yield await self._load_all(session)

    async def newest(self) -> CatalogueContents:
        """Return the catalogue as it is now, after a change in progress has ended.

        A change's gates are declared to the store before it is committed, so a claimed job may know
        gates that are not in the catalogue yet.
        """
        started = self._timing.monotonic()
        async with self.locked() as contents:
            pass
        self._cache(contents, started)
        return contents

    def _fresh(self, templates: Set[str]) -> CatalogueContents | None:
        age, contents = self._timing.monotonic() - self._read_at, self._contents
        if contents is None or age > FRESH_S or not templates <= contents.templates.keys():
            return None
        return contents

    def _cache(self, contents: CatalogueContents, at: float) -> None:
        if self._contents is None or contents.revision >= self._contents.revision:
            self._contents, self._read_at = contents, at

    async def _load_if_changed(self, session: AsyncSession) -> CatalogueContents:
        revision = await session.scalar(select(RevisionRecord.revision))
        if self._contents is not None and self._contents.revision == revision:
            return self._contents
        return await self._load_all(session)

    async def _load_all(self, session: AsyncSession) -> CatalogueContents:
        revision = await session.scalar(select(RevisionRecord.revision))
        numbers = await session.scalars(select(NumberRecord).order_by(NumberRecord.number))
        templates = await session.scalars(select(TemplateRecord).order_by(TemplateRecord.name))
        stored = {
            one.name: Template(**one.body, name=one.name, checks_at=one.checks_at)
            for one in templates
        }
        return CatalogueContents(
            revision=revision or 0,
            numbers={one.number: one.read() for one in numbers},
            templates={DEFAULT: self._default, **stored},
        )


CUSTOMER = "calls.customer"
CUSTOMER_RATE = f"{CUSTOMER}:{{phone}}"
CHECKS = "calls.checks"
REPORTS = "calls.reports:{tenant}"
"""One gate per reseller, so that a hanging webhook does not block reports of other resellers."""


def check_gate(settings: CallsSettings) -> GateNeed:
    """Return the gate of pre-checks, which take no line."""
    return Slots(CHECKS, settings.checks_at_once).take(hold="run")


def customer_gate(settings: CallsSettings) -> GateSpec:
    """Return the rate of calls to one phone, which applies to all templates."""
    return Rate(CUSTOMER_RATE, settings.customer_limit, per=f"{settings.customer_per}ms")


def pool_of(contents: CatalogueContents, template: Template, reseller: str) -> str:
    """Return the gate of the numbers that a lead is called from now.

    It is the template's pool; by default the reseller's own if that has any number, otherwise the
    default pool.
    """
    if template.numbers is not None:
        return pool_gate(template.numbers)
    own = reseller_gate(reseller)
    if reseller and any(one.gate == own for one in contents.numbers.values()):
        return own
    return DEFAULT_POOL


def dial_gates(
    contents: CatalogueContents, template: Template, reseller: str, customer_rate: GateSpec
) -> tuple[GateSpec, ...]:
    """Return the gates that a lead must pass to be called now: pool, calling hours and rates."""
    pool = _pool(contents, pool_of(contents, template, reseller))
    return (pool, *_hours(template), customer_rate, *_own_rate(template))


def all_gates(contents: CatalogueContents) -> dict[str, GateSpec]:
    """Return all gates of numbers and templates, by name."""
    pools: dict[str, dict[str, int]] = {DEFAULT_POOL: {}}
    for number in contents.numbers.values():
        pools.setdefault(number.gate, {})[number.number] = number.channels
    for template in contents.templates.values():
        if template.numbers is not None:
            pools.setdefault(pool_gate(template.numbers), {})
    made = {name: Pool(name, members, shared=True) for name, members in pools.items()}
    for template in contents.templates.values():
        made |= {one.name: one for one in (*_hours(template), *_own_rate(template))}
    return made


def gate_layout(contents: CatalogueContents) -> tuple[object, ...]:
    """Return what decides at which gates leads wait; if it is unchanged, none is requeued.

    Claims read the channels of numbers and the opening times from the gates themselves.
    """
    pools = frozenset(one.gate for one in contents.numbers.values())
    asked = {
        one.name: (one.numbers, one.hours is None, one.customer_limit is None)
        for one in contents.templates.values()
    }
    return pools, asked


def changed_gates(before: CatalogueContents, after: CatalogueContents) -> tuple[GateSpec, ...]:
    """Return the gates to declare so that the store matches the new contents.

    A pool that has lost its last number is declared empty; its leads keep waiting until they are
    requeued.
    """
    old, new = all_gates(before), all_gates(after)
    emptied = {
        name: Pool(name, {}, shared=True)
        for name, spec in old.items()
        if name not in new and spec.members
    }
    changed = {name: spec for name, spec in new.items() if old.get(name) != spec}
    return tuple({**emptied, **changed}.values())


def _pool(contents: CatalogueContents, name: str) -> GateSpec:
    members = {one.number: one.channels for one in contents.numbers.values() if one.gate == name}
    return Pool(name, members, shared=True)


def _hours(template: Template) -> Iterator[GateSpec]:
    if template.hours is not None:
        yield Hours(
            f"calls.hours:{template.name}:{{tz}}",
            template.hours.spans,
            days=template.hours.days,
            tz="{tz}",
            exceptions=template.hours.exceptions,
        )


def _own_rate(template: Template) -> Iterator[GateSpec]:
    if template.customer_limit is not None:
        yield Rate(
            f"{CUSTOMER}:{template.name}:{{phone}}",
            template.customer_limit,
            per=f"{template.customer_per}ms",
        )
