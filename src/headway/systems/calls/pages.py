"""Dashboard pages of calls: numbers with their channels, and outcomes by campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from headway.contract.views import GatesQuery, GateState, JobsQuery, JobView
from headway.core.state import FINAL, State
from headway.server.caller import Caller, Permission
from headway.server.finding import bounded_page
from headway.systems.calls.catalogue import DEFAULT_POOL, NumberStatus
from headway.systems.calls.catalogue_routes import NUMBERS
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import LANE, LEAD, Outcome, attempts_of, is_lead, read_args
from headway.web.page import (
    Action,
    DashboardPage,
    Field,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
    everyone,
    int_of,
    rows_of,
)
from headway.web.pages.gates import CLOSE, OPEN

ROWS = 50
"""Maximum number of rows on a page."""
NEWEST = 250
"""Maximum number of newest leads read of each group: unfinished ones, and finished ones."""
SLOW_S = 2.0


async def _numbers(context: CallsContext, view: PageView) -> TemplateContext:
    """Return one page of numbers, with the state of their gates and pools."""
    store, values = view.service.store, view.values
    catalogue = await context.catalogue.read()
    sought, pool = values["q"], values["pool"]
    found = sorted(
        (
            one
            for one in catalogue.numbers.values()
            if sought in one.number and pool in {"", one.gate}
        ),
        key=lambda one: (one.gate != DEFAULT_POOL, one.gate, one.number),
    )
    rows, place = rows_of(values, found)
    names = tuple(dict.fromkeys(one.gate for one in rows))

    async def gates() -> dict[str, GateState]:
        if not names:
            return {}
        page = await store.read(GatesQuery(names=names, limit=ROWS))
        return {one.name: one for one in page.rows}

    pools = await view.reads.cached(("call pools", *names), gates)
    members = {one.name: one for gate in pools.values() for one in gate.members}
    return {
        "rows": [(one, members.get(f"{one.gate}/{one.number}")) for one in rows],
        "pools": pools,
        "names": sorted({one.gate for one in catalogue.numbers.values()})[:ROWS],
        **place,
    }


@dataclass(kw_only=True, slots=True)
class Campaign:
    """Leads of one reseller with the same template.

    Attributes:
        states: number of leads by state.
        outcomes: number of calls by outcome.
    """

    reseller: str
    template: str
    states: Counter[str] = field(default_factory=Counter[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])

    @property
    def answered(self) -> float | None:
        """Share of ended calls that were answered; None if there are none."""
        calls = self.outcomes.total()
        return self.outcomes[Outcome.COMPLETED] / calls if calls else None


async def _campaigns(view: PageView) -> TemplateContext:
    """Return the outcomes of the newest leads that the caller may see, by reseller and template."""
    caller, sought = view.caller, view.values["reseller"]
    if sought:
        caller.check_tenant(sought)
    tenants = (sought,) if sought else caller.tenants or (None,)
    key = ("call campaigns", caller.tenants, caller.lanes, sought)
    jobs = await view.reads.cached(key, lambda: _leads(view, tenants), SLOW_S)
    found: dict[tuple[str, str], Campaign] = {}
    for job in jobs:
        name = (job.tenant, read_args(job.args).template)
        one = found.setdefault(name, Campaign(reseller=name[0], template=name[1]))
        one.states[str(job.state)] += 1
        one.outcomes.update(str(at.outcome) for at in attempts_of(job) if at.outcome is not None)
    rows = sorted(found.values(), key=lambda one: (-one.states.total(), one.reseller))
    total: Counter[str] = sum((one.outcomes for one in rows), Counter[str]())
    return {
        "rows": rows[:ROWS],
        "more": max(0, len(rows) - ROWS),
        "outcomes": [(str(one), total[one]) for one in Outcome if total[one]],
        "calls": total.total(),
        "leads": len(jobs),
        "most": NEWEST,
    }


async def _leads(view: PageView, tenants: Sequence[str | None]) -> list[JobView]:
    live = (State.AWAITING, State.RUNNING, State.WAITING, State.PARKED, State.SCHEDULED)
    found: list[JobView] = []
    for tenant in tenants:
        for states in (live, tuple(sorted(FINAL))):
            query = JobsQuery(
                kind=LEAD,
                lane=LANE,
                tenant=tenant,
                states=states,
                runs=True,
                newest=True,
                limit=NEWEST,
            )
            page = await bounded_page(view.service.store, query, is_lead)
            found += [one for one in page.rows if view.caller.sees(one)]
    return found


def _changed(values: FormValues, **body: object) -> RouteCall:
    return RouteCall(path={"number": values["number"]}, body=body)


_change = partial(
    Action,
    endpoint=NUMBERS.change,
    of=("number",),
    reach=lambda caller, _: caller.check_gate(DEFAULT_POOL),
)
DISABLE = _change(
    name="calls-disable-number",
    label="Disable",
    title="Disable the number {number}",
    explains="No new call starts from it; calls in progress continue.",
    call=lambda values: _changed(values, status=str(NumberStatus.DISABLED)),
    done="{number} is disabled.",
    danger=True,
)
ENABLE = _change(
    name="calls-enable-number",
    label="Enable",
    title="Enable the number {number}",
    explains="Calls start from it again, as its channels and gates allow.",
    call=lambda values: _changed(values, status=str(NumberStatus.AVAILABLE)),
    done="{number} is enabled.",
)
CHANNELS = _change(
    name="calls-set-channels",
    label="Set channels",
    title="Set the channels of {number}",
    explains="Maximum number of calls at once. Above it, no call starts until enough have ended.",
    call=lambda values: _changed(values, maximum_channels=int_of(values, "channels")),
    done="{number} has {channels} channels.",
    fields=(Field(name="channels", label="Channels", kind="number", required=True),),
)


def pages_of(context: CallsContext) -> Sequence[DashboardPage]:
    """Return the system's pages, in the order of the menu."""
    return (
        DashboardPage(
            path="calls",
            title="Call numbers",
            template="calls-numbers.html",
            fragments=("numbers",),
            read=partial(_numbers, context),
            permission=Permission.OBSERVE,
            reach=Caller.whole,
            params=("q", "pool", "from"),
            actions=(CLOSE, OPEN, DISABLE, ENABLE, CHANNELS),
            package="headway.systems.calls",
        ),
        DashboardPage(
            path="calls/campaigns",
            title="Call campaigns",
            template="calls-campaigns.html",
            fragments=("campaigns",),
            read=_campaigns,
            permission=Permission.READ,
            reach=everyone,
            params=("reseller",),
            package="headway.systems.calls",
        ),
    )
