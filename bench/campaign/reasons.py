"""Check `why` for a sample of leads with each reason, against an independent computation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from bench.campaign.allowed import Allowed
from bench.campaign.plan import CAPPED, CHECKS, EMPTY_POOL, LANE, OWN_POOL, POOL, Lead
from headway.contract.store import Store
from headway.contract.views import WhyQuery
from headway.core.state import State

EACH = 5
"""Leads for which `why` is queried per set of closed gates, each time."""
LOOKED = 4_000
"""Leads whose reasons are computed to find these, each time."""

WANTED = (
    "not due",
    "checks full",
    "hours",
    "customer rate",
    "numbers full",
    "number disabled",
    "pool empty",
    "reseller paused",
    "reseller capped",
    "lane paused",
)


class Reasons:
    """The replies of `why` about waiting leads, and their faults.

    Attributes:
        asked: How often each reason was queried; a lead may have several.
        sentences: A sentence for each reason, from the lead with the fewest other reasons.
        faults: Differences from the plan.
    """

    def __init__(self, store: Store, allowed: Allowed) -> None:
        self._store, self._allowed = store, allowed
        self._draw = random.Random(7)
        self._shortest: dict[str, int] = {}
        self.asked: Counter[str] = Counter()
        self.sentences: dict[str, str] = {}
        self.faults: list[str] = []

    @property
    def missing(self) -> list[str]:
        """Reasons that no queried lead had."""
        return [one for one in WANTED if not self.asked[one]]

    async def ask(self, unchecked: Iterable[Lead], ready: Iterable[Lead], now: int) -> None:
        """Query `why` for some leads, and compare the replies.

        Args:
            unchecked: Leads that wait for their check, or are not due.
            ready: Leads that wait for their call.
            now: The store's time.
        """
        self._allowed.pass_time(now)
        asked: Counter[tuple[str, ...]] = Counter()
        for stage, leads in (("check", unchecked), ("dial", ready)):
            for lead in self._some(list(leads)):
                closed = (
                    self._allowed.closed_for_check(lead)
                    if stage == "check"
                    else self._allowed.closed_for_dial(lead, now)
                )
                due = lead.due_at <= now
                of = (stage, str(due), *(_kind(lead, name) for name in closed))
                asked[of] += 1
                if asked[of] <= EACH:
                    await self._compare(lead, closed, due=due)

    def _some(self, leads: list[Lead]) -> list[Lead]:
        return self._draw.sample(leads, min(LOOKED, len(leads)))

    async def _compare(self, lead: Lead, closed: dict[str, int | None], *, due: bool) -> None:
        why = await self._store.read(WhyQuery(id=lead.id))
        if why is None:
            self.faults.append(f"why of {lead.id}: it is unknown")
            return
        wanted = [self._reason(lead, name) for name in closed] + ([] if due else ["not due"])
        self.asked.update(wanted)
        for reason in wanted:
            if len(wanted) <= self._shortest.get(reason, len(wanted)):
                self._shortest[reason] = len(wanted)
                self.sentences[reason] = why.sentence
        told = {one.name for one in why.closed}
        if told != set(closed):
            self.faults.append(f"why of {lead.id}: {sorted(told)} instead of {sorted(closed)}")
        for one in why.closed:
            opens_at = closed.get(one.name)
            if opens_at is not None and one.opens_at != opens_at:
                self.faults.append(f"{one.name} opens at {one.opens_at} instead of {opens_at}")
        if (why.state is State.SCHEDULED) is due or (not due and why.next_at != lead.due_at):
            self.faults.append(f"why of {lead.id}: {why.state} until {why.next_at}, due {due}")
        unsaid = [name for name in closed if name not in why.sentence]
        if unsaid or (not due and "due at" not in why.sentence):
            self.faults.append(f"why of {lead.id}: {why.sentence!r} does not say {unsaid}")
        never = {name for name in closed if self._never(name)}
        if set(why.never_fits) != never:
            self.faults.append(f"why of {lead.id}: never fits {why.never_fits}, not {never}")

    def _never(self, name: str) -> bool:
        return name in {OWN_POOL, EMPTY_POOL} and self._allowed.is_empty(name)

    def _reason(self, lead: Lead, gate: str) -> str:
        if gate == f"tenant:{lead.reseller}":
            return "reseller capped" if lead.reseller == CAPPED else "reseller paused"
        if self._never(gate):
            return "number disabled" if gate == OWN_POOL else "pool empty"
        return "numbers full" if gate in {OWN_POOL, EMPTY_POOL} else _kind(lead, gate)


def _kind(lead: Lead, gate: str) -> str:
    if gate == f"tenant:{lead.reseller}":
        return gate
    if gate in {POOL, OWN_POOL, EMPTY_POOL}:
        return "numbers full" if gate == POOL else gate
    named = {f"lane:{LANE}": "lane paused", CHECKS: "checks full"}
    return named.get(gate) or ("hours" if gate.startswith("calls.hours") else "customer rate")
