"""The context of the routes and handlers: settings, directory and providers of this system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from headway.contract.views import StatsQuery
from headway.core.job import NewJob, derived_id
from headway.server.caller import whole_lanes
from headway.server.routing import system_service
from headway.systems.field_service.request import NAME, OFFERS, REVIEW, TEXT
from headway.systems.field_service.settings import FieldSettings
from headway.systems.parts import SystemContext
from headway.systems.telephony.voice import Voice

DIRECTORY_RETRY = "5s"
"""Time until a job that needs the directory runs again while it is unavailable."""


@dataclass(kw_only=True, slots=True)
class FieldContext(SystemContext):
    """The settings, directory and providers that routes and handlers use."""

    settings: FieldSettings

    @property
    def voice(self) -> Voice:
        """The provider of calls to technicians and dispatchers.

        Raises:
            InvalidValue: none is configured.
        """
        return self.telephony.voice(self.settings.provider or "")

    async def now(self) -> int:
        """Return the store's time, ms UTC: this machine's clock may be wrong."""
        return (await self.store.read(StatsQuery())).now

    def review_job(self, request: str, *why: object, **more: Any) -> NewJob:  # noqa: ANN401  (of `Kind.make`)
        """Return a job that reviews a request; the same `why` makes the same job."""
        job_id = derived_id(REVIEW, *why)
        kind = self.app.kind(REVIEW)
        return kind.make(job_id=job_id, subject=request, request=request, **more)

    def message(self, request: str, to: str, text: str, *why: object, offer: str = "") -> NewJob:
        """Return a job that sends a message about a request; the same `why` makes the same job."""
        more: dict[str, Any] = {"offer": offer} if offer else {}
        return self.app.kind(TEXT).make(
            job_id=derived_id(*why), subject=request, to=to, text=text, **more
        )

    def url(self, path: str) -> str:
        """Return the public URL of a path of this system."""
        return f"{self.parts.base_url}/field-service{path}"


TheContext = Annotated[FieldContext, system_service(NAME)]
"""A route's parameter: `context: TheContext`."""


check_caller = whole_lanes(OFFERS)
"""Refuse a caller whose token is limited to some tenants or to other lanes."""
