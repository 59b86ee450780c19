"""The context of the routes and handlers: settings, stores and services of this system."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from headway.contract.store import Store
from headway.core.errors import InvariantBroken
from headway.core.gates.spec import GateNeed, GateSpec, GateUse
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.server.routes.router import system_service
from headway.systems.calls.catalogue import Catalogue, CatalogueContents
from headway.systems.calls.checks import Checking
from headway.systems.calls.gates import all_gates, check_gate, dial_gates, house_gate
from headway.systems.calls.observability.rules import Thresholds
from headway.systems.calls.settings import CallsSettings
from headway.systems.calls.template import Template
from headway.systems.calls.truth.truth import Truth
from headway.systems.directory.tally import Tally
from headway.systems.parts import Parts
from headway.systems.webhooks.reporter import Reporter

NAME = "calls"
CHECK, DIAL = "check", "dial"
LEAD, FINISHED = "lead", "lead_finished"
LANE, AFTER = "calls", "calls.after"
STEP = 500
"""Gates that are declared in one step."""


@dataclass(kw_only=True, slots=True)
class CallsContext:
    """The settings, stores and services that routes and handlers use.

    Attributes:
        parts: shared with other systems.
        tally: counts what cannot be derived from jobs.
        reporter: sends the outcomes of leads to the callers' webhooks.
        thresholds: from which values on it is alerted.
        table: your own; None where the store is the truth.
        changed: set when numbers or templates have changed, for `waiting`.
    """

    settings: CallsSettings
    parts: Parts
    catalogue: Catalogue
    checking: Checking
    tally: Tally
    reporter: Reporter
    thresholds: Thresholds
    table: Truth | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _app: App | None = None
    _kind: Kind | None = None
    _declared_revision: int = field(default=-1)

    def declared(self, app: App, kind: Kind) -> None:
        """Set the app that has this system's kinds."""
        self._app, self._kind = app, kind

    @property
    def app(self) -> App:
        """The app that has this system's kinds.

        Raises:
            InvariantBroken: the system was not declared to any.
        """
        if self._app is None:
            message = "the system `calls` belongs to no app yet"
            raise InvariantBroken(message, hint="call its declare(app) first")
        return self._app

    @property
    def store(self) -> Store:
        """The store of the leads."""
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
        """The gates of the stage `check`."""
        return (check_gate(self.settings),)

    def dial_gates(
        self, page: CatalogueContents, template: Template, reseller: str
    ) -> tuple[GateSpec, ...]:
        """Return the gates of a lead's call."""
        return dial_gates(page, template, reseller, house_gate(self.settings))

    def check_uses(self, tenant: str, args: bytes, lane: str = LANE) -> tuple[GateUse, ...]:
        """Return the gates of a stored lead at the stage `check`."""
        return self.kind.uses(CHECK, lane, tenant, args)

    async def declare_gates(self, page: CatalogueContents) -> None:
        """Declare the gates of the catalogue, unless this process has declared that revision.

        Raises:
            StoreError: the directory or the store cannot do it now.
        """
        if self._declared_revision >= page.revision:
            return
        # The catalogue is locked meanwhile, so the newest revision is declared last.
        async with self.catalogue.still() as newest:
            specs = tuple(all_gates(newest).values())
            for start in range(0, len(specs), STEP):
                await self.app.declare_gates(*specs[start : start + STEP])
        self._declared_revision = max(self._declared_revision, newest.revision)

    def status_url(self, provider: str, ref: str) -> str:
        """Return the URL for a provider's status events about the call of a run."""
        return f"{self.parts.base_url}/calls/hooks/{provider}?ref={ref}"


TheContext = Annotated[CallsContext, system_service(NAME)]
"""A route's parameter: `context: TheContext`."""
