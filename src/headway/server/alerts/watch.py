"""The watch: looks at the facts now and then, and tells what the rules find."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import uuid4

from headway.contract.mending import Mendable
from headway.contract.store import Store
from headway.core.errors import HeadwayError, StoreChanged, StoreError, StoreUnavailable
from headway.runtime.latency import lane_latencies
from headway.runtime.timing import Timing
from headway.server.alerts.alerts import Alerts
from headway.server.alerts.facts import Facts
from headway.server.alerts.keeper import Keeper
from headway.server.alerts.rule_book import Book, Found
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
        books: Sequence[Book],
        alerts: Alerts,
        sinks: Sequence[Sink],
        each_ms: int,
    ) -> None:
        """Has seen nothing yet.

        Args:
            store: whose facts.
            timing: clocks and pauses.
            books: the rules that look at them, the engine's first.
            alerts: is told whether this server leads, and says which rules are off.
            sinks: where it is told.
            each_ms: from one look to the next.
        """
        self._store = store
        self._timing = timing
        self._books = [(book, Throttle(book.runbooks)) for book in books]
        self._alerts = alerts
        self._sinks = sinks
        self._each_ms = each_ms
        self._holder = uuid4().hex
        self._keeper = None
        if alerts.place is not None:
            self._keeper = Keeper(alerts.place, self._holder, timing, alerts, self._books)
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
        self._alerts.leads = self._leads and facts.fault is None
        if led and not self._leads:
            for book, throttle in self._books:
                throttle.forget(keep=StoreAway.name)
                book.renew()
        if self._keeper is not None:
            await self._keeper.before(leads=self._leads, away=facts.fault is not None)
        await self._tell(facts)
        if self._keeper is not None:
            # Told first: one that is killed in between tells it twice, and not never.
            await self._keeper.after(leads=self._leads)

    async def _tell(self, facts: Facts) -> None:
        for book, throttle in self._books:
            for rule, findings in await self._found(book, facts):
                if rule.name in self._alerts.off:
                    continue
                for alert in throttle.tell(rule, findings, facts.at):
                    for sink in self._sinks:
                        sink.tell(alert)

    async def _found(self, book: Book, facts: Facts) -> Sequence[Found]:
        """What the rules of a book find; none if it cannot see what they look at."""
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
        # Each book may take as long as the store itself, and so may what is kept.
        slow = len(self._books) + (self._keeper is not None)
        lease_ms = TERMS * self._each_ms + int(1000 * PATIENCE_S) * slow
        self._leads = await self._store.lead(ROLE, self._holder, lease_ms) is not None
        if not self._leads:
            return Facts(at=self._at(), leads=False)
        if isinstance(self._store, Mendable):
            found = await self._store.suspicion()
            if found is not None:
                message = f"nothing is claimed: {found.message}"
                raise StoreChanged(message, hint=found.hint)
        overview = await look_over(self._store)
        latencies = await lane_latencies(self._store, overview.targets[:MOST_TARGETS])
        return Facts(at=self._at(), overview=overview, latencies=latencies)

    def _away(self, fault: HeadwayError) -> Facts:
        at = self._at()
        return Facts(at=at, away_ms=at - self._answered_at, fault=fault, leads=self._leads)

    def _at(self) -> int:
        return int(1000 * self._timing.monotonic())
