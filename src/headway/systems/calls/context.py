"""The context of the routes and handlers: settings, stores and services of this system."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Annotated

from headway.core.errors import HeadwayError, StoreError
from headway.core.gates.spec import GateSpec, GateUse
from headway.runtime.kind import Kind
from headway.server.routing import system_service
from headway.systems.calls.alert_rules import Thresholds
from headway.systems.calls.catalogue import (
    Catalogue,
    CatalogueContents,
    all_gates,
    customer_gate,
    dial_gates,
)
from headway.systems.calls.checks import Checking
from headway.systems.calls.lead import CHECK, LANE, LEAD
from headway.systems.calls.source_table.source_table import SourceTable
from headway.systems.calls.template import CallsSettings, Template
from headway.systems.parts import SystemContext
from headway.systems.webhooks import Reporter

_log = logging.getLogger("headway.calls")

NAME = "calls"
STEP = 500
"""Maximum number of gates declared in one request."""


@dataclass(kw_only=True, slots=True)
class CallsContext(SystemContext):
    """The settings, stores and services that routes and handlers use.

    Attributes:
        reporter: sends the outcomes of leads to the callers' webhooks.
        thresholds: thresholds of the alert rules.
        table: source table; None if there is none.
        changed: set when numbers or templates have changed, so that waiting leads are requeued.
    """

    settings: CallsSettings
    catalogue: Catalogue
    checking: Checking
    reporter: Reporter
    thresholds: Thresholds
    table: SourceTable | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _declared_revision: int = field(default=-1)

    @property
    def kind(self) -> Kind:
        """The kind `lead`."""
        return self.app.kind(LEAD)

    def dial_gates(
        self, contents: CatalogueContents, template: Template, reseller: str
    ) -> tuple[GateSpec, ...]:
        """Return the gates of a lead's call."""
        return dial_gates(contents, template, reseller, customer_gate(self.settings))

    def check_uses(self, tenant: str, args: bytes, lane: str = LANE) -> tuple[GateUse, ...]:
        """Return the gates of a stored lead at the stage `check`."""
        return self.kind.uses(CHECK, lane, tenant, args)

    async def declare_gates(self, contents: CatalogueContents) -> None:
        """Declare the gates of the catalogue, unless this process has declared this revision."""
        if self._declared_revision < contents.revision:
            await self.declare_all()

    async def declare_all(self) -> None:
        """Declare the gates of the catalogue, even if this process has declared them before."""
        # The catalogue stays locked, so that the newest revision is declared last.
        async with self.catalogue.locked() as newest:
            specs = tuple(all_gates(newest).values())
            for start in range(0, len(specs), STEP):
                await self.app.declare_gates(*specs[start : start + STEP])
        self._declared_revision = max(self._declared_revision, newest.revision)

    async def declare_again(self) -> None:
        """Declare the gates of the catalogue again: a failed change may have declared others.

        If the directory or the store is unavailable, `requeueing.watch` does it later.
        """
        try:
            await self.declare_all()
        except HeadwayError as error:
            _log.warning("gates not declared again: error=%s", error)
            if isinstance(error, StoreError):
                self.changed.set()

    def status_url(self, provider: str, ref: str) -> str:
        """Return the URL for a provider's status events about the call of a run."""
        return f"{self.parts.base_url}/calls/hooks/{provider}?ref={ref}"


TheContext = Annotated[CallsContext, system_service(NAME)]
"""The type of a route's parameter `context`."""
