"""The desk: what the routes and handlers of this system work with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends

from headway.contract.store import Store
from headway.core.errors import InvariantBroken
from headway.core.gates.spec import GateNeed, GateSpec, GateUse
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.server.routes.router import TheService
from headway.systems.calls.book import Book, Page
from headway.systems.calls.checks import Checking
from headway.systems.calls.gates import all_gates, check_gate, dial_gates, house_gate
from headway.systems.calls.seen.rules import Thresholds
from headway.systems.calls.seen.sight import Tally
from headway.systems.calls.settings import CallsSettings
from headway.systems.calls.template import Template
from headway.systems.calls.truth.truth import Truth
from headway.systems.parts import Parts
from headway.systems.webhooks.reporter import Reporter

NAME = "calls"
CHECK, DIAL = "check", "dial"
LEAD, FINISHED = "lead", "lead_finished"
LANE, AFTER = "calls", "calls.after"
STEP = 500
"""Gates that are declared in one step."""


@dataclass(kw_only=True, slots=True)
class Desk:
    """What the routes and handlers of this system work with.

    Attributes:
        settings: of this system.
        parts: shared with other systems.
        book: numbers and templates.
        checking: makes the pre-checks.
        tally: counts what no job tells.
        reporter: tells callers what became of their leads.
        thresholds: from which values on it is alerted.
        table: your own; None where the store is the truth.
        changed: set when numbers or templates have changed, for `waiting`.
    """

    settings: CallsSettings
    parts: Parts
    book: Book
    checking: Checking
    tally: Tally
    reporter: Reporter
    thresholds: Thresholds
    table: Truth | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _app: App | None = None
    _kind: Kind | None = None
    _told: int = field(default=-1)

    def declared(self, app: App, kind: Kind) -> None:
        """Takes note of the app that has this system's kinds."""
        self._app, self._kind = app, kind

    @property
    def app(self) -> App:
        """Whose jobs leads are.

        Raises:
            InvariantBroken: the system was not declared to any.
        """
        if self._app is None:
            message = "the system `calls` belongs to no app yet"
            raise InvariantBroken(message, hint="call its declare(app) first")
        return self._app

    @property
    def store(self) -> Store:
        """Where the leads are."""
        return self.app.store

    @property
    def kind(self) -> Kind:
        """The kind `lead`.

        Raises:
            InvariantBroken: the system was not declared to any app.
        """
        if self._kind is None:
            message = "the system `calls` has declared no kinds yet"
            raise InvariantBroken(message, hint="call its declare(app) first")
        return self._kind

    @property
    def check_gates(self) -> tuple[GateNeed, ...]:
        """What the stage `check` asks for."""
        return (check_gate(self.settings),)

    def dial_gates(self, page: Page, template: Template, reseller: str) -> tuple[GateSpec, ...]:
        """What a lead must pass to be called now."""
        return dial_gates(page, template, reseller, house_gate(self.settings))

    def check_uses(self, tenant: str, args: bytes, lane: str = LANE) -> tuple[GateUse, ...]:
        """What a stored lead asks for at the stage `check`."""
        return self.kind.uses(CHECK, lane, tenant, args)

    async def tell_gates(self, page: Page) -> None:
        """Lets the store know all gates of a page, unless this process has told it of that page.

        Raises:
            StoreError: the directory or the store cannot do it now.
        """
        if self._told >= page.revision:
            return
        # Nobody changes the book meanwhile: what is told last is then what holds.
        async with self.book.still() as newest:
            specs = tuple(all_gates(newest).values())
            for start in range(0, len(specs), STEP):
                await self.app.declare_gates(*specs[start : start + STEP])
        self._told = max(self._told, newest.revision)

    def status_url(self, provider: str, ref: str) -> str:
        """Where a provider tells how the call of a run goes on."""
        return f"{self.parts.base_url}/calls/hooks/{provider}?ref={ref}"


async def _the_desk(service: TheService) -> Desk:
    return cast("Desk", service.desks[NAME])


TheDesk = Annotated[Desk, Depends(_the_desk)]
"""As a parameter: `desk: TheDesk`."""
