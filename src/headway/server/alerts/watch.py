"""The alert watcher: checks the rules at intervals and sends what they find."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import uuid4

from headway.contract.repair import Repairable
from headway.contract.store import Store
from headway.core.errors import HeadwayError, StoreChanged, StoreError, StoreUnavailable
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.alerts.alert import Sink
from headway.server.alerts.engine_rules import StoreAway
from headway.server.alerts.rule_book import Alerts, Book, Facts, Found
from headway.server.alerts.standing import AlertStateKeeper, AlertThrottle
from headway.server.overview import read_overview

ROLE = "alerts"
PATIENCE_S = 10.0
"""How long the store may take to answer."""
TERMS = 3
"""So many looks may fail before another server alerts."""
MOST_TARGETS = 200
"""Lanes with a target that are looked at, the first by name."""

_log = logging.getLogger("headway.alerts")


class AlertWatcher:
    """Check the rules and send alerts; of all servers of a store, only the leader does so.

    While the store does not answer, no process can lead: the last leader reports the outage, and
    the others do after three times as long, because the leader may be gone as well.
    """

    def __init__(
        self,
        store: Store,
        timing: Timing,
        *,
        books: Sequence[Book],
        alerts: Alerts,
        sinks: Sequence[Sink],
        each_ms: int,
    ) -> None:
        self._store = store
        self._timing = timing
        self._books = [(book, AlertThrottle(book.runbooks)) for book in books]
        self._alerts = alerts
        self._sinks = sinks
        self._each_ms = each_ms
        self._holder = uuid4().hex
        self._keeper = None
        if alerts.place is not None:
            self._keeper = AlertStateKeeper(alerts.place, self._holder, timing, alerts, self._books)
        self._leads = False
        self._answered_at = self._at()

    async def run(self) -> None:
        """Look until it is cancelled."""
        try:
            while True:
                await self.look()
                await self._timing.pause(self._each_ms / 1000)
        finally:
            for sink in self._sinks:
                sink.close()

    async def look(self) -> None:
        """Look once."""
        led = self._leads
        facts = await self._facts()
        self._alerts.leads = self._leads and facts.fault is None
        if led and not self._leads:
            for book, throttle in self._books:
                throttle.forget(keep=StoreAway.name)
                book.renew()
        if self._keeper is not None:
            await self._keeper.before(leads=self._leads, away=facts.fault is not None)
        await self._send_alerts(facts)
        if self._keeper is not None:
            # Sent first: if it is killed in between, an alert is sent twice rather than never.
            await self._keeper.after(leads=self._leads)

    async def _send_alerts(self, facts: Facts) -> None:
        for book, throttle in self._books:
            for rule, findings in await self._found(book, facts):
                if rule.name in self._alerts.off:
                    continue
                for alert in throttle.update(rule, findings, facts.at):
                    for sink in self._sinks:
                        sink.send(alert)

    async def _found(self, book: Book, facts: Facts) -> Sequence[Found]:
        """Return what the rules of a book find; none if it cannot see what they look at."""
        try:
            async with self._timing.limit(PATIENCE_S):
                return await book.look(facts)
        except (StoreError, TimeoutError) as error:
            _log.warning("the rules %s see nothing: %s", book.names, error or "timeout")
        except Exception:  # noqa: BLE001  (it may be any bug)
            # What is wrong with one system must not silence the others.
            _log.exception("the rules %s see nothing", book.names)
        return ()

    async def _facts(self) -> Facts:
        """Return what is known now: of the store nothing while another server alerts."""
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
        # Each book may take as long as the store itself, and so may what is kept.
        slow = len(self._books) + (self._keeper is not None)
        lease_ms = TERMS * self._each_ms + int(1000 * PATIENCE_S) * slow
        self._leads = await self._store.lead(ROLE, self._holder, lease_ms) is not None
        if not self._leads:
            return Facts(at=self._at(), leads=False)
        if isinstance(self._store, Repairable):
            found = await self._store.suspicion()
            if found is not None:
                message = f"nothing is claimed: {found.message}"
                raise StoreChanged(message, hint=found.hint)
        overview = await read_overview(self._store)
        latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        return Facts(at=self._at(), overview=overview, latencies=latencies)

    def _away(self, fault: HeadwayError) -> Facts:
        at = self._at()
        return Facts(at=at, away_ms=at - self._answered_at, fault=fault, leads=self._leads)

    def _at(self) -> int:
        return int(1000 * self._timing.monotonic())
