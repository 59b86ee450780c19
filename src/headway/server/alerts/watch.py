"""The watch: looks at the facts now and then, and tells what the rules find."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import uuid4

from headway.contract.mending import Mendable
from headway.contract.store import Store
from headway.core.errors import HeadwayError, StoreChanged, StoreUnavailable
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Rule
from headway.server.alerts.rules.store_away import StoreAway
from headway.server.alerts.sink import Sink
from headway.server.alerts.throttle import Throttle
from headway.server.overview import look_over

ROLE = "alerts"
PATIENCE_S = 10.0
"""How long the store may take to answer."""
TERMS = 3
"""So many looks may fail before another server alerts."""
MOST_TARGETS = 200
"""Lanes with a target that are looked at, the first by name."""

_log = logging.getLogger("headway.alerts")


class Watch:
    """Looks, and tells; of all servers of a store, only the one that leads does so.

    While the store does not answer nobody can lead: then the one that led before tells it, and the
    others do after three times as long, for the one that led may be gone as well.
    """

    def __init__(
        self,
        store: Store,
        timing: Timing,
        *,
        rules: Callable[[], Sequence[Rule]],
        throttle: Throttle,
        sinks: Sequence[Sink],
        each_ms: int,
    ) -> None:
        """Has seen nothing yet.

        Args:
            store: whose facts.
            timing: clocks and pauses.
            rules: makes those that look at them; anew when others have led meanwhile.
            throttle: decides what is told.
            sinks: where it is told.
            each_ms: from one look to the next.
        """
        self._store = store
        self._timing = timing
        self._make = rules
        self._rules = rules()
        self._throttle = throttle
        self._sinks = sinks
        self._each_ms = each_ms
        self._holder = uuid4().hex
        self._leads = False
        self._answered_at = self._at()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        try:
            while True:
                await self.look()
                await self._timing.pause(self._each_ms / 1000)
        finally:
            for sink in self._sinks:
                sink.close()

    async def look(self) -> None:
        """Looks once."""
        led = self._leads
        facts = await self._facts()
        if led and not self._leads:
            self._throttle.forget(keep=StoreAway.name)
            self._rules = self._make()
        for rule in self._rules:
            try:
                findings = rule.look(facts)
            except Exception:  # noqa: BLE001  (it may be any bug)
                # A rule that is wrong must not silence the others.
                _log.exception("the rule %s failed", rule.name)
                continue
            if findings is None:
                continue
            for alert in self._throttle.tell(rule, findings, facts.at):
                for sink in self._sinks:
                    sink.tell(alert)

    async def _facts(self) -> Facts:
        """What is known now: of the store nothing while another server alerts."""
        try:
            async with self._timing.limit(PATIENCE_S):
                facts = await self._ask()
        except HeadwayError as error:
            return self._away(error)
        except TimeoutError:
            return self._away(StoreUnavailable(f"no answer within {PATIENCE_S:g} s"))
        self._answered_at = self._at()
        return facts

    async def _ask(self) -> Facts:
        lease_ms = TERMS * self._each_ms + int(1000 * PATIENCE_S)
        self._leads = await self._store.lead(ROLE, self._holder, lease_ms) is not None
        if not self._leads:
            return Facts(at=self._at(), leads=False)
        if isinstance(self._store, Mendable) and await self._store.is_changed():
            message = "it is another store, or an older one, than before: nothing is claimed"
            raise StoreChanged(message)
        overview = await look_over(self._store)
        latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        return Facts(at=self._at(), overview=overview, latencies=latencies)

    def _away(self, fault: HeadwayError) -> Facts:
        at = self._at()
        return Facts(at=at, away_ms=at - self._answered_at, fault=fault, leads=self._leads)

    def _at(self) -> int:
        return int(1000 * self._timing.monotonic())
