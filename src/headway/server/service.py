"""The service: what the routes of one server share, and the systems on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fastapi import APIRouter

from headway.contract.extensions import Repairable
from headway.contract.store import Store
from headway.contract.views import SpecsQuery, StatsQuery
from headway.core.errors import HeadwayError, StoreChanged, StoreUnavailable, UnknownGate
from headway.core.gates.spec import GateSpec
from headway.core.job import TRAIL_KEPT_MS
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.server.access import Authenticator
from headway.server.alerts.rule_book import Alerts
from headway.server.hooks.providers import Hooks
from headway.server.long_polling.registry import LongPollRegistry
from headway.server.metrics import MetricsScraper, RequestMetrics
from headway.server.overview import EventFeed

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """The options of a server.

    Attributes:
        open_here: no token is needed until the store has its first; for loopback alone.
        hosts: names under which browsers may call; None for any. Given where the server is open.
        public_url: its address as the outside world sees it; the base of signal URLs.
        signing_keys: of signal URLs; the first signs, all are accepted.
        trusted_proxies: addresses whose X-Forwarded-* headers are believed.
        hooks: by provider, as the settings file says.
        alerts: as the settings file says.
        max_body: bytes of one request.
        body_timeout_s: how long a body may take to arrive.
        requests_per_s: of one token; None for any number.
        events_each_s: between two snapshots of an event stream.
        chores: whether it sweeps and keeps the timetable's fires ahead.
        keep_trail_ms: how long lines of the trail are kept.
        traces: whether it minds the traces of its callers; needs the extra `otel`.
        docs: whether it shows its documentation in a browser.
    """

    open_here: bool = False
    hosts: tuple[str, ...] | None = None
    public_url: str | None = None
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    trusted_proxies: tuple[str, ...] = ()
    hooks: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    alerts: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    max_body: int = 16 * MIB
    body_timeout_s: float = 30.0
    requests_per_s: float | None = None
    longest_wait_s: float = 60.0
    events_each_s: float = 1.0
    chores: bool = True
    keep_trail_ms: int = TRAIL_KEPT_MS
    traces: bool = False
    docs: bool = False


PATIENCE_S = 2.0
"""How long the store may take to answer."""
FRESH_S = 1.0
"""How long a reply is cached, because the route needs no token."""


class Readiness:
    """Asks the store at most once a second, for all callers."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._alone = asyncio.Lock()
        self._asked_at: float | None = None
        self._fault: HeadwayError | None = None

    async def fault(self) -> HeadwayError | None:
        """Return why the server cannot do its work; None if it can."""
        async with self._alone:
            now = self._timing.monotonic()
            if self._asked_at is None or now - self._asked_at >= FRESH_S:
                self._fault = await self._ask()
                self._asked_at = self._timing.monotonic()
            return self._fault

    async def _ask(self) -> HeadwayError | None:
        try:
            async with self._timing.limit(PATIENCE_S):
                await self._store.read(StatsQuery())
                if isinstance(self._store, Repairable):
                    found = await self._store.suspicion()
                    return found and StoreChanged(found.message, hint=found.hint)
        except HeadwayError as error:
            return error
        except TimeoutError:
            return StoreUnavailable(f"the store did not answer within {PATIENCE_S:g} s")
        return None


GATES_FRESH_S = 5.0
"""Seconds for which what was read is believed; only zones and amounts could be outdated."""


class DeclaredGates:
    """Finds gates by the names under which they are declared."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._known: Mapping[str, GateSpec] = {}
        self._read_at = float("-inf")

    async def find(self, names: Iterable[str]) -> Mapping[str, GateSpec]:
        """Return all gates that are declared, these among them.

        Returns:
            The gates by name.

        Raises:
            UnknownGate: nothing declares one of the names.
        """
        wanted = set(names)
        if not wanted:
            return {}
        stale = self._timing.monotonic() - self._read_at > GATES_FRESH_S
        if stale or not wanted <= self._known.keys():
            self._known = {spec.name: spec for spec in await self._store.read(SpecsQuery())}
            self._read_at = self._timing.monotonic()
        missing = sorted(wanted - self._known.keys())
        if missing:
            message = f"nothing declares the gate {missing[0][:80]!r}"
            raise UnknownGate(
                message, hint="declare it first, with PUT /v1/gates/NAME or in an App"
            )
        return self._known

    def forget(self) -> None:
        """Forget what was read, so that the next look reads it again: it was changed."""
        self._read_at = float("-inf")


A_TURN = 100
"""Items of a long list that are worked on before others get a turn."""
A_TURN_BYTES = 65_536
"""Bytes of the same."""

Item = TypeVar("Item")

_log = logging.getLogger("headway.server")


class Service:
    """What all routes of one server work with.

    Attributes:
        app: whose kinds jobs are made by; None for none.
        tokens: authenticates callers.
        long_polls: where claims wait for work.
        feed: of those who watch what changes.
        scrapes: reads the metrics; systems add theirs.
        alerts: to which systems add their rules.
        large_body: held while a large body is decoded and validated, so that only one is; of a
            list, until its request is answered.
        readiness: whether the server can do its work.
        stopping: set when the server begins to stop; long polls end then.
        system_services: what the routes of each system work with, by its name; set when the
            system starts.
    """

    def __init__(
        self,
        store: Store,
        options: ServerOptions,
        *,
        app: App | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.store = store
        self.app = app
        self.options = options
        self.timing = timing or Timing()
        self.tokens = Authenticator(
            store,
            self.timing,
            open_here=options.open_here,
            per_second=options.requests_per_s,
        )
        self.gates = DeclaredGates(store, self.timing)
        self.long_polls = LongPollRegistry(store, self.timing)
        self.hooks = Hooks(options.hooks, public_url=options.public_url, timing=self.timing)
        self.feed = EventFeed(store, self.timing, each_s=options.events_each_s, spawn=self.spawn)
        self.scrapes = MetricsScraper(store, self.timing, RequestMetrics())
        self.alerts = Alerts()
        self.large_body = asyncio.Lock()
        self.readiness = Readiness(store, self.timing)
        self.stopping = asyncio.Event()
        self.system_services: dict[str, object] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def now(self) -> int:
        """Return the store's time, ms UTC."""
        return (await self.store.read(StatsQuery())).now

    async def in_turns(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """Yield items; after every so many, all else that is ready gets a turn."""
        for place, item in enumerate(items, 1):
            yield item
            if place % A_TURN == 0:
                await self.timing.pause(0)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something for as long as the server runs.

        Args:
            work: ends when it is cancelled; if it fails, that is logged and the server goes on.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def begin_stop(self) -> None:
        """End long polls and event streams, so that the server can stop."""
        self.stopping.set()
        self.long_polls.close()
        self.feed.close()

    async def close(self) -> None:
        """End all that was spawned, and notes the uses of tokens."""
        self.begin_stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.long_polls.finish()
        await self.tokens.note()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("%s ended: %s", task.get_name(), error, exc_info=error)


class System(Protocol):
    """A ready-made program on the engine.

    Attributes:
        name: as `--system` names it.
    """

    @property
    def name(self) -> str:
        """As `--system` names it."""
        ...

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Its routes, made by `headway.server.routing`; each names its policy."""
        ...

    def declare(self, app: App) -> None:
        """Add its kinds to the app whose worker runs them; nothing if it has none."""
        ...

    async def start(self, service: Service) -> None:
        """Declare what it needs, and spawns what must run beside the server.

        Called before the first request is answered.
        """
        ...
