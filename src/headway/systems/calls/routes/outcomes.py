"""GET /leads/outcomes: attempts counted by what became of them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import Query, Response
from pydantic import ConfigDict, Field

from headway.contract.views import JobsQuery
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import needs
from headway.server.bodies.body import Asked
from headway.server.bodies.words import TenantName, When
from headway.server.for_callers.bounded_page import bounded_page
from headway.server.replies.answer import answer
from headway.server.replies.schema import reply
from headway.server.routes.router import TheService, router
from headway.systems.calls.desk import LEAD
from headway.systems.calls.lead import attempts_of

ROUTES = router("system: calls")
MOST = 20_000
"""Leads that one request looks at."""

COUNTED = reply(
    "AttemptsByOutcome",
    "How many attempts ended how.",
    outcomes=(dict[str, int], "By outcome."),
    under_way=(int, "Attempts that go on."),
    leads=(int, "Leads that were looked at, of those that the caller sees."),
    complete=(bool, "Whether that were all; if not, ask by reseller, or for a shorter time."),
)


class CountAsked(Asked):
    """Which attempts."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True)

    from_: When | None = Field(default=None, alias="from", description="Begun at or after this.")
    to: When | None = Field(default=None, description="Begun before this.")
    reseller: TenantName | None = Field(default=None, description="Only of this one's leads.")


@ROUTES.get(
    "/leads/outcomes",
    operation_id="calls_outcomes",
    summary="Count attempts by outcome",
    response_model=COUNTED,
)
async def outcomes(
    asked: Annotated[CountAsked, Query()],
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """Counts the attempts of the newest leads, up to 20,000 of them, by what became of each."""
    now = await service.now()
    since = 0 if asked.from_ is None else asked.from_.resolved(now)
    until = now + 1 if asked.to is None else asked.to.resolved(now)
    tenant = caller.tenant(asked.reseller)
    found: Counter[str] = Counter()
    looked, seen, under_way, cursor = 0, 0, 0, None
    while looked < MOST:
        query = JobsQuery(
            kind=LEAD, tenant=tenant, runs=True, newest=True, cursor=cursor, limit=1_000
        )
        page = await bounded_page(service.store, query)
        for job in page.rows:
            if not caller.sees(job):
                continue
            seen += 1
            for attempt in attempts_of(job):
                if since <= attempt.started_at < until:
                    under_way += attempt.outcome is None
                    found.update([] if attempt.outcome is None else [str(attempt.outcome)])
        looked += len(page.rows)
        cursor = page.cursor
        if cursor is None:
            break
    return answer(
        {
            "outcomes": dict(found),
            "under_way": under_way,
            "leads": seen,
            "complete": cursor is None,
        }
    )
