"""The app: declares kinds, gates, lanes and entries, sends jobs, and makes workers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from difflib import get_close_matches
from threading import Lock
from typing import Any, Self, TypeVar, Unpack

from headway.contract.signals import SignalReply
from headway.contract.store import Store
from headway.core.errors import InvalidValue, UnknownKind
from headway.core.job import MAX_BATCH, NewJob
from headway.core.naming import check_name
from headway.runtime import event_loop
from headway.runtime.background import Background
from headway.runtime.declaration import Declaration
from headway.runtime.entries import EntryOptions, read_entry
from headway.runtime.importing import Importer
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.kind_options import JobOptions, KindOptions, read_options
from headway.runtime.lanes import LaneOptions, read_lane
from headway.runtime.noop import noop_kind
from headway.runtime.sent import Sent
from headway.runtime.signals import SignalOptions, read_signal
from headway.runtime.timing import Timing
from headway.runtime.worker.plans import Middleware
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

Opener = Callable[[str], Store]
Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")


class App:
    """A program's kinds of work, and the store that they live in.

    Attributes:
        kinds: by name; `noop` is built in.
        importers: by name.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        opener: Opener,
        store: Store | None = None,
        name: str = "app",
        timing: Timing | None = None,
    ) -> None:
        """Makes an app; the store is opened when it is first needed.

        Args:
            url: where the store is.
            opener: opens it.
            store: an open one instead; the app does not close it.
            name: stands on the trail as the author of what the app declares.
            timing: the simulator's.
        """
        self.importers: dict[str, Importer] = {}
        self._noop = noop_kind()
        self.kinds: dict[str, Kind] = {self._noop.name: self._noop}
        self._url = url or ""
        self._opener = opener
        self._given = store
        self._store = store
        self._timing = timing or Timing()
        self._opening = Lock()
        self._background = Background()
        self._middleware: list[Middleware] = []
        self._declaration = Declaration(check_name("app", name))

    # -------------------------------------------------------------------------- declarations

    def job(self, **options: Unpack[JobOptions]) -> Callable[[Callable[..., Any]], Kind]:
        """Declares a kind of work by its handler.

        Args:
            options: see `JobOptions`.

        Returns:
            A decorator that makes the function a `Kind`.
        """

        def declare(fn: Callable[..., Any]) -> Kind:
            kind = Kind(
                read_options(fn.__name__, options),
                fn,
                reconciler=self._reconciler,
                lanes=self._lane_of,
                timing=self._timing,
            )
            self._add(kind)
            if "reconcile" in options:
                kind.reconcile(options["reconcile"])
            return kind

        return declare

    def lane(self, name: str, **options: Unpack[LaneOptions]) -> None:
        """Declares what a lane carries; a lane that is not declared carries the defaults.

        Args:
            name: of the lane.
            options: see `LaneOptions`.

        Raises:
            InvalidValue: an option is unusable.
        """
        self._declaration.add_lane(read_lane(name, options))

    def timetable(self, name: str, kind: Kind | str, **options: Unpack[EntryOptions]) -> None:
        """Declares work that recurs.

        Args:
            name: of the entry.
            kind: what each fire is a job of.
            options: see `EntryOptions`; `schedule` must be given.

        Raises:
            UnknownKind: this app has no such kind.
            InvalidValue: an option is unusable.
        """
        self._declaration.add_entry(read_entry(name, self.kind(kind), options))

    def middleware(self, fn: Middleware) -> Middleware:
        """Puts a function around each handler: `async def fn(job, call_next)`.

        Args:
            fn: awaits `call_next()` and returns what that returned, or something else.

        Returns:
            The function as it is. The first one declared is the outermost.
        """
        self._middleware.append(fn)
        return fn

    def importer(self, name: str) -> Callable[[Function], Function]:
        """Declares a function that makes jobs of the rows of a file.

        Args:
            name: under which `headway import` finds it.

        Returns:
            A decorator that leaves the function as it is. It takes one row, and returns the
            jobs (from a kind's `make`) that come of it, or raises anything to refuse the row.

        Raises:
            InvalidValue: there is one of this name already.
        """
        if name in self.importers:
            message = f"there are two importers {name!r}"
            raise InvalidValue(message, hint="name one of them otherwise")

        def add(fn: Function) -> Function:
            self.importers[name] = fn
            return fn

        return add

    def kind(self, kind: Kind | str) -> Kind:
        """The kind of a name.

        Raises:
            UnknownKind: this app has none.
        """
        name = kind if isinstance(kind, str) else kind.name
        found = self.kinds.get(name)
        if found is None or (isinstance(kind, Kind) and found is not kind):
            near = get_close_matches(name, self.kinds, n=1)
            message = f"this app has no kind {name[:80]!r}"
            hint = f"did you mean {near[0]!r}?" if near else "declare it with @app.job()"
            raise UnknownKind(message, hint=hint)
        return found

    # --------------------------------------------------------------------------------- store

    @property
    def store(self) -> Store:
        """The store; opened now if it was not."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._opener(self._url)
        return self._store

    def move_to(self, url: str) -> None:
        """Uses another store than was said, as a command's `--store` asks for.

        Args:
            url: where the store is.

        Raises:
            InvalidValue: a store was given open, or is open already.
        """
        if self._store is not None:
            message = "the app has its store open already"
            raise InvalidValue(message, hint="say where the store is before it is used")
        self._url = url

    async def declare(self) -> None:
        """Tells the store what gates, lanes and entries there are; done at the first use."""
        await self._declaration.tell(self.store, self.kinds)

    def open(self) -> Self:
        """Opens the store, and declares."""
        self._wait_for(self.declare())
        return self

    def close(self) -> None:
        """Closes the store that the app opened; a later call opens it again."""
        store = self._store
        self._background.run(self.close_async(), inline=store is not None and store.runs_inline)
        self._background.close()

    async def close_async(self) -> None:
        """As `close`, for callers that can await."""
        store, self._store = self._store, self._given
        if store is not None and store is not self._given:
            await store.close()

    def __enter__(self) -> Self:
        """As `open`."""
        return self.open()

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """Opens the store, and declares."""
        await self.declare()
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `close_async`."""
        await self.close_async()

    # ---------------------------------------------------------------------------------- jobs

    def send(self, kind: Kind | str, /, **given: Any) -> Sent:  # noqa: ANN401  (checked by the kind)
        """Makes a job; when this returns, it is stored.

        Args:
            kind: a kind or its name.
            given: the handler's arguments, and the options of `Kind.make`.

        Returns:
            Its id, and whether this call made it.

        Raises:
            UnknownKind: this app has no such kind.
            CallerError: an argument or option is refused, see `Kind.make` and `Store.enqueue`.
            StoreError: the store cannot do it now.
        """
        job = self.kind(kind).make(**given)
        return self._wait_for(self._enqueue([job]))[0]

    async def send_async(self, kind: Kind | str, /, **given: Any) -> Sent:  # noqa: ANN401  (checked by the kind)
        """As `send`, for callers that can await."""
        return (await self._enqueue([self.kind(kind).make(**given)]))[0]

    def send_many(self, jobs: Iterable[NewJob]) -> list[Sent]:
        """Makes many jobs, in steps of 1000; each step is stored whole or not at all.

        Args:
            jobs: from a kind's `make`.

        Returns:
            For each job, in this order, its id and whether this call made it.

        Raises:
            CallerError: a step is refused; those before it are stored.
            StoreError: the store cannot do it now; those before it are stored.
        """
        return self._wait_for(self.send_many_async(jobs))

    async def send_many_async(self, jobs: Iterable[NewJob]) -> list[Sent]:
        """As `send_many`, for callers that can await."""
        sent: list[Sent] = []
        batch: list[NewJob] = []
        for job in jobs:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                sent += await self._enqueue(batch)
                batch = []
        return sent + (await self._enqueue(batch) if batch else [])

    def signal(self, key: str, *, event: str, **options: Unpack[SignalOptions]) -> SignalReply:
        """Tells what the outside world says about a job that awaits it.

        Args:
            key: the job's reference, or a key that it is known as.
            event: the event's id; each is applied once.
            options: see `SignalOptions`.

        Returns:
            What became of it.

        Raises:
            InvalidValue: the signal says nothing or too much, or a value is not understood.
            PayloadTooLarge: the body is above the limit.
            StoreError: the store cannot do it now.
        """
        return self._wait_for(self.store.signal(read_signal(key, event, options)))

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """As `signal`, for callers that can await."""
        return await self.store.signal(read_signal(key, event, options))

    # ------------------------------------------------------------------------------- workers

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes of this app: those of its kinds, and those that it declares."""
        lanes = {kind.lane: None for kind in self.kinds.values() if kind is not self._noop}
        lanes |= dict.fromkeys(self._declaration.lanes)
        return tuple(lanes) or (self._noop.lane,)

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Makes a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; it serves all lanes of the app if none are given.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.
        """
        given: WorkerOptions = {
            "lanes": self.lanes,
            "middleware": tuple(self._middleware),
            "timing": self._timing,
            "before": self.declare,
        }
        lease_ms = self._declaration.shortest_lease_ms(self.lanes)
        if lease_ms is not None:
            given["lease"] = f"{lease_ms}ms"
        return Worker(self.store, self.kinds, **{**given, **options})

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Works until SIGTERM or Ctrl-C; a second one does not wait for handlers.

        Args:
            options: as for `worker`.
        """
        event_loop.run(self._work(options))

    async def _work(self, options: WorkerOptions) -> None:
        worker = self.worker(**options)
        event_loop.on_signals(lambda now: worker.stop(now=now))
        try:
            await worker.run()
        finally:
            await self.close_async()

    # ------------------------------------------------------------------------------ internals

    def _wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._background.run(work, inline=self.store.runs_inline)

    async def _enqueue(self, jobs: list[NewJob]) -> list[Sent]:
        await self.declare()
        return [Sent(*reply) for reply in await self.store.enqueue(jobs)]

    def _add(self, kind: Kind) -> None:
        if kind.name in self.kinds:
            message = f"there are two kinds {kind.name!r}"
            raise InvalidValue(message, hint="name one of them otherwise: @app.job(name=...)")
        self.kinds[kind.name] = kind

    def _lane_of(self, kind: str) -> str | None:
        found = self.kinds.get(kind)
        return found.lane if found else None

    def _reconciler(self, kind: Kind, ask: Callable[..., Any]) -> str:
        """Declares the kind whose jobs ask the provider about another's."""
        asking = Kind(KindOptions(name=f"{kind.name}.reconcile", lane=kind.lane), _asking, asks=ask)
        self._add(asking)
        return asking.name


async def _asking(job: Job, **facts: object) -> None:
    """Stands for a reconcile handler, which a worker calls in its own way."""
