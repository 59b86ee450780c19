"""The service: state that the routes of a server share, and the interface of systems."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
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
from headway.server.alerts.rule_set import Alerts
from headway.server.hooks.providers import Hooks
from headway.server.long_polling.registry import LongPollRegistry
from headway.server.metrics import MetricsScraper, RequestMetrics
from headway.server.overview import EventFeed

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerOptions:
    """The options of a server.

    Attributes:
        open_here: whether no token is required until the store has its first; only for loopback.
        hosts: host names that requests may use; None for any. Set if the server is open.
        public_url: the server's URL as the outside world sees it; the base of signal URLs.
        signing_keys: keys for signal URLs; the first one signs, all are accepted.
        trusted_proxies: addresses whose X-Forwarded-* headers are trusted.
        hooks: the `[hooks]` table of the settings, by provider.
        alerts: the `[alerts]` table of the settings.
        max_body: maximum size of a request body, in bytes.
        body_timeout_s: how long a body may take to arrive.
        requests_per_s: rate limit of a token; None for no limit.
        longest_wait_s: maximum time that a claim may wait for jobs.
        events_each_s: interval between two reads for the event streams.
        chores: whether the server sweeps, runs the timetable and sends alerts.
        keep_trail_ms: how long lines of the trail are kept.
        traces: whether traces of callers are continued; needs the extra `otel`.
        docs: whether `GET /docs` serves the API's documentation.
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


STORE_TIMEOUT_S = 2.0
FRESH_S = 1.0
"""How long the result is cached, because the route requires no token."""


class Readiness:
    """Whether the store responds, checked at most once a second for all callers."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._lock = asyncio.Lock()
        self._checked_at: float | None = None
        self._fault: HeadwayError | None = None

    async def fault(self) -> HeadwayError | None:
        """Return why the server cannot serve requests; None if it can."""
        async with self._lock:
            now = self._timing.monotonic()
            if self._checked_at is None or now - self._checked_at >= FRESH_S:
                self._fault = await self._check()
                self._checked_at = self._timing.monotonic()
            return self._fault

    async def _check(self) -> HeadwayError | None:
        try:
            async with self._timing.limit(STORE_TIMEOUT_S):
                await self._store.read(StatsQuery())
                if isinstance(self._store, Repairable):
                    found = await self._store.suspicion()
                    return found and StoreChanged(found.message, hint=found.hint)
        except HeadwayError as error:
            return error
        except TimeoutError:
            return StoreUnavailable(f"the store did not respond within {STORE_TIMEOUT_S:g} s")
        return None


GATES_FRESH_S = 5.0
"""How long the gates are cached; only zones and amounts can be outdated."""


class DeclaredGates:
    """A cache of the declared gates."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._known: Mapping[str, GateSpec] = {}
        self._read_at = float("-inf")
        self._changes = 0

    async def find(self, names: Iterable[str]) -> Mapping[str, GateSpec]:
        """Check that gates are declared, and return all declared gates by name.

        Raises:
            UnknownGate: one of the gates is not declared.
        """
        wanted = set(names)
        if not wanted:
            return {}
        stale = self._timing.monotonic() - self._read_at > GATES_FRESH_S
        if stale or not wanted <= self._known.keys():
            changes = self._changes
            self._known = {spec.name: spec for spec in await self._store.read(SpecsQuery())}
            if changes == self._changes:
                self._read_at = self._timing.monotonic()
        missing = sorted(wanted - self._known.keys())
        if missing:
            message = f"the gate {missing[0][:80]!r} is not declared"
            raise UnknownGate(
                message, hint="declare it first, with PUT /v1/gates/NAME or in an App"
            )
        return self._known

    def forget(self) -> None:
        """Invalidate the cache, because the definitions were changed.

        A read that began before is not cached, either.
        """
        self._read_at = float("-inf")
        self._changes += 1


AGAIN_S = 10.0
"""How long after its failure a background task starts again."""
A_TURN = 100
"""Number of items of a long list to process before yielding to the event loop."""
A_TURN_BYTES = 65_536
"""Number of bytes of a long list to process before yielding to the event loop."""

Item = TypeVar("Item")

_log = logging.getLogger("headway.server")


class Service:
    """The state that the routes of a server share.

    Attributes:
        app: the App whose kinds create jobs; None for no App.
        tokens: authenticates callers.
        long_polls: claims that wait for jobs.
        feed: the changes in the store, for event streams.
        scrapes: collects the metrics; systems add theirs.
        alerts: the alert rules that systems add.
        large_body: lock held while a large body is decoded and validated, so that there is only
            one at a time; for a list, until its request has been answered.
        readiness: whether the server can serve requests.
        stopping: set when the server starts to stop; long polls return then.
        system_services: state that the routes of a system share, by the system's name; set when
            the system starts.
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
        """Yield items, and yield to the event loop after every `A_TURN` of them."""
        for place, item in enumerate(items, 1):
            yield item
            if place % A_TURN == 0:
                await self.timing.pause(0)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task that is cancelled when the server closes.

        Args:
            work: runs until cancelled. If it fails, the error is logged and the server continues.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def keep_running(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Start a background task as `spawn` does, and again after a pause if it fails."""

        async def kept() -> None:
            while True:
                try:
                    return await run()
                except Exception as error:  # noqa: BLE001  (whatever it is, the work must go on)
                    message = "background task %s failed, and starts again in %g s: %s"
                    _log.error(message, name, AGAIN_S, error, exc_info=error)
                await self.timing.pause(AGAIN_S)

        self.spawn(kept(), name)

    def begin_stop(self) -> None:
        """Finish long polls and event streams, so that the server can stop."""
        self.stopping.set()
        self.long_polls.close()
        self.feed.close()

    async def close(self) -> None:
        """Cancel the background tasks, release undelivered jobs, and store the uses of tokens."""
        self.begin_stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.long_polls.finish()
        await self.tokens.note()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("background task %s failed: %s", task.get_name(), error, exc_info=error)


class System(Protocol):
    """A built-in system on the engine."""

    @property
    def name(self) -> str:
        """The name for `--system`."""
        ...

    @property
    def routers(self) -> Sequence[APIRouter]:
        """The routes of the system, from `headway.server.routing`; each declares its policy."""
        ...

    def declare(self, app: App) -> None:
        """Add the system's kinds, if any, to the app whose worker runs them."""
        ...

    async def start(self, service: Service) -> None:
        """Declare what the system needs, and start its background tasks.

        Called before the server accepts requests.
        """
        ...
