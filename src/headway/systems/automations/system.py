"""The system as the server and the worker see it, and its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fastapi import APIRouter
from prometheus_client.core import Metric

from headway.contract.store import Store
from headway.core.state import State
from headway.runtime.app import App
from headway.server.metrics.families import Family, counter, gauge
from headway.server.metrics.samples import one
from headway.server.overview import Overview
from headway.server.service import Service
from headway.systems.automations.dispatcher import LANE, NAME, Dispatcher
from headway.systems.automations.reports import concurrency
from headway.systems.automations.routes import ROUTES, Desk

SPAWNED = counter("automations_spawned", "Sessions that this server started.")
ERRORS = counter("automations_errors", "Sessions of this server that did not succeed.")
REMADE = counter("automations_remade", "Mirrors that were broken and made anew by this server.")
LAST = gauge("automations_last_dispatch_timestamp_seconds", "When this server started one last.")
INVALID = gauge("automations_invalid_entries", "Entries of the file that are not valid.")
ACTIVE = gauge("automations_active", "Sessions that run, on all servers.")
LOCKED = gauge("automations_waiting", "Due sessions that wait for a repository or a place.")
SLOTS = gauge("automations_slots", "Sessions that may run at once.")
FAMILIES = (SPAWNED, ERRORS, REMADE, LAST, INVALID, ACTIVE, LOCKED, SLOTS)


class AutomationsSystem:
    """The system `automations`.

    Attributes:
        dispatcher: what its routes and its handler work with.
    """

    def __init__(self, dispatcher: Dispatcher, *, look_each_ms: int) -> None:
        self.dispatcher = dispatcher
        self._look_each_ms = look_each_ms

    @property
    def name(self) -> str:
        """As `--system` names it."""
        return NAME

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Its routes."""
        return (ROUTES,)

    def declare(self, app: App) -> None:
        """Add the kind of sessions to an app.

        Raises:
            InvalidValue: the state directory cannot be made.
        """
        self.dispatcher.open()
        self.dispatcher.declare(app)

    async def start(self, service: Service) -> None:
        """Declare the entries of the file, and watch it for edits.

        Raises:
            StoreError: the store cannot be reached.
        """
        dispatcher = self.dispatcher
        dispatcher.timing = service.timing
        service.desks[NAME] = Desk(dispatcher=dispatcher, started_at=service.timing.monotonic())
        service.scrapes.add(AutomationMetrics(service.store, dispatcher))
        await dispatcher.sync(service.store)
        watching = dispatcher.watch(service.store, self._look_each_ms / 1000)
        service.spawn(watching, "automations.toml")


class AutomationMetrics:
    """The metrics of automations."""

    def __init__(self, store: Store, dispatcher: Dispatcher) -> None:
        self._store = store
        self._dispatcher = dispatcher

    @property
    def families(self) -> Sequence[Family]:
        """See `Source.families`."""
        return FAMILIES

    async def metrics(self, overview: Overview | None) -> Iterable[Metric]:
        """See `Source.metrics`.

        Raises:
            StoreError: the store cannot tell now.
        """
        counts = self._dispatcher.counts
        found = [
            one(SPAWNED, counts.spawned),
            one(ERRORS, counts.errors),
            one(REMADE, counts.remade),
            one(LAST, (counts.last_at or 0) / 1000),
            one(INVALID, len(self._dispatcher.faults)),
        ]
        if overview is None:
            return found
        usage = await concurrency(self._store)
        lane = next((each for each in overview.lanes if each.name == LANE), None)
        states = {} if lane is None else lane.counts
        waiting = states.get(State.WAITING, 0) + states.get(State.PARKED, 0)
        return [
            *found,
            one(ACTIVE, usage["used"]),
            one(LOCKED, waiting),
            one(SLOTS, usage["max"] or 0),
        ]
