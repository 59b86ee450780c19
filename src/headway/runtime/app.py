"""The app: what a program declares, and the store that holds its jobs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Self, TypeVar, Unpack, assert_never, cast, overload
from uuid import uuid4

from headway.contract.extensions import InsertsWithin, SendsAhead
from headway.contract.operate import Acted, ActRequest, Edit, Verb
from headway.contract.signals import SignalReply
from headway.contract.store import Sent, Store
from headway.contract.views import (
    JobQuery,
    JobView,
    LanesQuery,
    Page,
    WhyQuery,
    WhyView,
)
from headway.core.check import check_job_id
from headway.core.duration import Duration, parse_duration
from headway.core.errors import (
    AccessError,
    Forbidden,
    InvalidState,
    InvalidValue,
    StoreMisconfigured,
    UnknownGate,
    UnknownJob,
    UnknownKind,
)
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.core.naming import check_name, did_you_mean
from headway.core.state import FINAL
from headway.runtime import event_loop
from headway.runtime.chores import Sweepers
from headway.runtime.declaration import (
    Declaration,
    EntryOptions,
    LaneOptions,
    read_entry,
    read_lane,
)
from headway.runtime.event_loop import Background
from headway.runtime.inserting import (
    Importer,
    batches,
    checked,
    inserts_within,
    send_in_steps,
)
from headway.runtime.job import Job
from headway.runtime.job_filters import JobFilters, read_filters
from headway.runtime.kind import NOOP, HandlerParameters, HandlerValue, Kind
from headway.runtime.kind_options import JobOptions, KindOptions, read_options
from headway.runtime.records import encode
from headway.runtime.signals import SignalOptions, read_signal
from headway.runtime.sources import RowsFunction, Source, SourceOptions, SourceSync
from headway.runtime.timing import Timing, persist
from headway.runtime.worker.outcomes import OnFailure, check_function, check_hook
from headway.runtime.worker.plans import Middleware
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import Lanes, WorkerOptions, read_lanes

Function = TypeVar("Function", bound=Callable[..., Any])
Opener = Callable[[str], Store]
Result = TypeVar("Result")

FIRST_POLL = 0.02
LONGEST_POLL = 0.5
"""Maximum seconds between two checks of a job that `App.wait` waits for."""
_FIND_IDS = "pass the id that send returned; final jobs are removed after `keep`"

_log = logging.getLogger("headway.worker")


class App:
    """The kinds of work of a program, and the store that holds their jobs.

    Attributes:
        kinds: by name; `noop` is built in.
        importers: by name.
        sources: by name.
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
        """Create an app; the store is opened when it is first needed.

        Args:
            store: open store to use instead; the app does not close it.
            name: author recorded in the trail for what the app declares.

        Raises:
            InvalidValue: `store` is not an open store, or the name is not valid.
        """
        if store is not None:
            _refuse_unopened(store)
        self.importers: dict[str, Importer] = {}
        self.sources: dict[str, Source] = {}
        self._noop = Kind(KindOptions(name=NOOP), _noop)
        self.kinds: dict[str, Kind] = {self._noop.name: self._noop}
        self._timing = timing or Timing()
        self._middleware: list[Middleware] = []
        self._on_failure: list[OnFailure] = []
        self._sweepers = Sweepers()
        self._declaration = Declaration(check_name("app", name))
        self._url = url or ""
        self._opener = opener
        # The store in use; None until it is opened.
        self._store = store
        # The same if the caller opened it, and so closes it.
        self._given = store
        # The store passed to `use`, before it was wrapped.
        self._lent: Store | None = None
        self._around: list[Callable[[Store], Store]] = []
        self._opening = Lock()
        self._background = Background()

    # ------------------------------------------------------------------------------ declarations

    @property
    def lanes(self) -> tuple[str, ...]:
        """All lanes of this app: those of its kinds, and those it declares."""
        lanes = {kind.lane: None for kind in self.kinds.values() if kind is not self._noop}
        lanes |= dict.fromkeys(self._declaration.lanes)
        return tuple(lanes) or (self._noop.lane,)

    @overload
    def job(
        self, fn: Callable[HandlerParameters, HandlerValue], /
    ) -> Kind[HandlerParameters, HandlerValue]: ...

    @overload
    def job(
        self, /, **options: Unpack[JobOptions]
    ) -> Callable[
        [Callable[HandlerParameters, HandlerValue]], Kind[HandlerParameters, HandlerValue]
    ]: ...

    def job(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[JobOptions]) -> object:
        """Declare a kind of work by its handler, as `@app.job` or `@app.job(...)` with options."""

        def declare(fn: Callable[..., Any]) -> Kind:
            # From Python 3.14, a functools.partial counts as a routine.
            if not (inspect.isroutine(fn) and hasattr(fn, "__name__")):
                message = f"{fn!r:.80} is not a function"
                raise InvalidValue(message, hint="put `@app.job` above a def or an async def")
            kind = Kind(
                read_options(fn.__name__, options),
                fn,
                reconciler=self._reconciler,
                kinds=self.kinds.get,
                timing=self._timing,
            )
            self._add(kind)
            if "reconcile" in options:
                kind.reconcile(options["reconcile"])
            return kind

        return declare if fn is None else declare(fn)

    def lane(self, name: str, **options: Unpack[LaneOptions]) -> None:
        """Set the options of a lane; a lane that is not declared has the defaults.

        Raises:
            InvalidValue: an option is not valid.
        """
        self._declaration.add_lane(read_lane(name, options))

    def timetable(self, name: str, kind: Kind | str, **options: Unpack[EntryOptions]) -> None:
        """Declare recurring work.

        Args:
            kind: the kind of job that each fire creates.
            options: see `EntryOptions`; `schedule` is required.

        Raises:
            UnknownKind: this app has no such kind.
            InvalidValue: an option is not valid.
        """
        self._declaration.add_entry(read_entry(name, self.kind(kind), options))

    def middleware(self, fn: Middleware) -> Middleware:
        """Wrap each handler in a function: `async def fn(job, call_next)`.

        Args:
            fn: awaits `call_next()`, and returns its result or another one.

        Returns:
            The function, unchanged. The first one declared is the outermost.

        Raises:
            InvalidValue: it is not a function.
        """
        self._middleware.append(check_function("a middleware", fn))
        return fn

    def on_failure(self, fn: OnFailure) -> OnFailure:
        """Call a function with the `Failure` of each failed attempt, for error trackers.

        Args:
            fn: a plain function that returns quickly. It is called in the worker's event loop after
                the attempt is logged. Exceptions it raises are logged and have no other effect.

        Raises:
            InvalidValue: it is an async function, or not a function.
        """
        self._on_failure.append(check_hook(fn))
        return fn

    def importer(self, name: str) -> Callable[[Function], Function]:
        """Declare a function that creates jobs from the rows of a file.

        Args:
            name: the name by which `headway import` selects it.

        Returns:
            A decorator that leaves the function unchanged. The function takes one row and returns
            the jobs (from a kind's `make`) to create, or raises any exception to refuse the row.

        Raises:
            InvalidValue: there already is an importer of this name, the name is not valid, or what
                it decorates is not a function.
        """
        check_name("importer", name)
        if name in self.importers:
            message = f"there are two importers {name!r}"
            raise InvalidValue(message, hint="give one of them another name")

        def add(fn: Function) -> Function:
            self.importers[name] = check_function(f"the importer {name!r}", fn, yields=True)
            return fn

        return add

    @overload
    def source(self, fn: RowsFunction, /) -> Source: ...

    @overload
    def source(self, /, **options: Unpack[SourceOptions]) -> Callable[[RowsFunction], Source]: ...

    def source(self, fn: RowsFunction | None = None, /, **options: Unpack[SourceOptions]) -> object:
        """Declare the jobs that should be pending according to the application's own tables.

        Returns:
            The `Source` of the function, or with options a decorator that returns it. The function
            yields jobs (from a kind's `make`, each with a key); jobs that the store already has are
            left unchanged.

        Raises:
            InvalidValue: an option is not valid, there already is a source of this name, or what it
                decorates is not a function.
        """

        def declare(fn: RowsFunction) -> Source:
            source = Source(check_function("a source", fn, yields=True), options)
            if source.name in self.sources:
                message = f"there are two sources {source.name!r}"
                raise InvalidValue(message, hint="give one of them another name")
            self.sources[source.name] = source
            return source

        return declare if fn is None else declare(fn)

    def kind(self, kind: Kind | str) -> Kind:
        """Return the kind with this name.

        Raises:
            UnknownKind: this app has no such kind.
        """
        if not isinstance(cast("object", kind), Kind | str):
            message = f"{kind!r:.80} is not a kind"
            raise UnknownKind(message, hint="pass what @app.job() returned, or its name")
        name = kind if isinstance(kind, str) else kind.name
        found = self.kinds.get(name)
        if found is None or (isinstance(kind, Kind) and found is not kind):
            message = f"this app has no kind {name[:80]!r}"
            hint = did_you_mean(name, self.kinds, "declare it with @app.job()")
            raise UnknownKind(message, hint=hint)
        return found

    # --------------------------------------------------------------------------------- the store

    @property
    def store(self) -> Store:
        """The store; opened on first use."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    opened = self._opener(self._url)
                    for wrap in self._around:
                        opened = wrap(opened)
                    self._store = opened
        return self._store

    @property
    def url(self) -> str:
        """The URL of the store; empty if the app was given an open store."""
        return "" if self._given is not None else self._url

    def move_to(self, url: str) -> None:
        """Use another store than configured, for example from a command's `--store`.

        Raises:
            InvalidValue: a store was passed in or is already open, or this is not text.
        """
        if not isinstance(cast("object", url), str):
            message = f"{url!r:.80} is not the URL of a store"
            raise InvalidValue(message, hint='pass text such as "sqlite:jobs.db"')
        if self._store is not None:
            message = "the app has already opened its store"
            raise InvalidValue(message, hint="set the store before it is used")
        self._url = url

    def use(self, store: Store) -> None:
        """Use this open store from now on, for example in a test; the app does not close it.

        Raises:
            InvalidValue: the app was created with another open store or has already opened one, or
                this is not an open store.
        """
        if self._lent is store:
            return
        _refuse_unopened(store)
        if self._store is not None and self._lent is None:
            message = "the app has already opened its store"
            raise InvalidValue(message, hint="set the store before it is used")
        self._lent = store
        for wrap in self._around:
            store = wrap(store)
        self._given = self._store = store

    def observe(self, around_store: Callable[[Store], Store], around_handlers: Middleware) -> None:
        """Wrap the app's store, and wrap each handler as the outermost middleware.

        Raises:
            InvalidValue: the app has already opened its store, or one of these is not a function.
        """
        check_function("what wraps a store", around_store)
        check_function("what wraps handlers", around_handlers)
        if self._store is not self._given:
            message = "the app has already opened its store"
            raise InvalidValue(message, hint="observe it before it is used")
        self._around.append(around_store)
        if self._given is not None:
            self._given = self._store = around_store(self._given)
        self._middleware.insert(0, around_handlers)

    async def declare(self) -> None:
        """Declare gates, lanes and timetable entries to the store; called on first use."""
        await self._declaration.declare(self.store, self.kinds)

    async def reach(self, within: Duration = "1m") -> None:
        """Open the store and declare to it, retrying while the store is unreachable.

        Args:
            within: how long to keep trying, as "1m" or a timedelta; "0s" tries once.

        Raises:
            StoreError: the store is still unreachable, or the error is permanent, such as a wrong
                password, which is raised at once.
            Unauthenticated: the store is a server that does not know the token.
        """
        timing = self._timing
        give_up_at = timing.monotonic() + parse_duration(within) / 1000
        await persist(
            timing,
            "opening the store",
            self._make_first_call,
            until=lambda error: (
                isinstance(error, StoreMisconfigured) or timing.monotonic() >= give_up_at
            ),
        )

    async def _make_first_call(self) -> None:
        await self.declare()
        # If there is nothing to declare, a client of a server has not connected yet.
        with suppress(Forbidden):
            await self.store.read(LanesQuery(names=("main",)))

    async def declare_gates(self, *specs: GateSpec) -> None:
        """Declare gates that the program chooses at run time; all of them or none.

        They apply at once, also to jobs that are already waiting. If the store is lost and
        replaced, they are declared to the new one again.

        Raises:
            InvalidValue: the store knows one as another kind of gate, or one is not a gate; nothing
                was written.
            StoreError: the store cannot serve the call now.
        """
        await self._declaration.declare_gates(self.store, specs)

    def open(self) -> Self:
        """Open the store and declare to it."""
        self._wait_for(self.declare())
        return self

    def close(self) -> None:
        """Close the store if the app opened it; the next call opens it again."""
        store = self._store
        self._background.run(self._close_store(), inline=store is not None and store.runs_inline)
        self._background.close()

    async def close_async(self) -> None:
        """Asynchronous version of `close`."""
        await self._close_store()
        self._background.close()

    async def _close_store(self) -> None:
        store, self._store = self._store, self._given
        if store is not None and store is not self._given:
            await store.close()

    def __enter__(self) -> Self:
        """Same as `open`."""
        return self.open()

    def __exit__(self, *_: object) -> None:
        """Same as `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        """Open the store and declare to it."""
        await self.declare()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Same as `close_async`."""
        await self.close_async()

    # ---------------------------------------------------------------------------------- jobs

    def send(self, kind: Kind | str, /, *, connection: object = None, **given: Any) -> Sent:  # noqa: ANN401  (checked by the kind)
        """Send a job; when this returns, the job is stored.

        Args:
            kind: a kind or its name.
            connection: an open connection to the store's database (psycopg 3, SQLAlchemy or
                Django): the job then exists if and only if its current transaction commits.
            given: the handler's arguments, and the options of `Kind.make`.

        Returns:
            The id of the job, and whether this call created it.

        Raises:
            UnknownKind: this app has no such kind.
            InvalidValue: the store cannot insert within this connection's transaction.
            CallerError: an argument or option is refused; see `Kind.make` and `Store.enqueue`.
            StoreError: the store cannot serve the call now.
        """
        job = self.kind(kind).make(**given)
        if connection is not None:
            return self._enqueue_within(connection, [job])[0]
        return self._wait_for(self._enqueue([job]))[0]

    async def send_async(
        self,
        kind: Kind | str,
        /,
        *,
        connection: object = None,
        **given: Any,  # noqa: ANN401  (checked by the kind)
    ) -> Sent:
        """Asynchronous version of `send`; the connection may be an asynchronous one."""
        return (await self._enqueue([self.kind(kind).make(**given)], connection))[0]

    def send_many(self, jobs: Iterable[NewJob], *, connection: object = None) -> list[Sent]:
        """Send many jobs in steps of 1000; each step is stored completely or not at all.

        Args:
            jobs: created by a kind's `make`.
            connection: as for `send`; then either all jobs are stored, or none.

        Returns:
            For each job, in this order, its id and whether this call created it.

        Raises:
            InvalidValue: the store cannot insert within this connection's transaction.
            CallerError: a step is refused; the steps before it are stored.
            StoreError: the store cannot serve the call now; the steps before are stored.
        """
        # On the caller's thread, to which the iterator's own connections may be bound.
        return [
            sent
            for batch in batches(checked(jobs))
            for sent in (
                self._wait_for(self._enqueue(batch))
                if connection is None
                else self._enqueue_within(connection, batch)
            )
        ]

    async def send_many_async(
        self, jobs: Iterable[NewJob], *, connection: object = None
    ) -> list[Sent]:
        """Asynchronous version of `send_many`; prepares a step while the previous one is stored.

        Raises:
            InvalidValue: one of them is not a job; the steps before it are stored.
        """
        return await send_in_steps(
            checked(jobs), lambda step, sent: self._enqueue(step, connection, sent)
        )

    def wake(self, *lanes: str) -> None:
        """Wake waiting workers after the commit of a transaction in which jobs were sent.

        Without it, workers find the jobs within seconds. SQLAlchemy sessions and Django connections
        do this automatically.

        Args:
            lanes: lanes of the jobs; any lane if none is named.
        """
        store = self.store
        if isinstance(store, InsertsWithin):
            store.wake(lanes)

    def signal(self, key: str, *, event: str, **options: Unpack[SignalOptions]) -> SignalReply:
        """Report an external event for a job that awaits it.

        Args:
            key: the reference of the job's run, or a key it is known by.
            event: id of the event; each event is applied once.

        Returns:
            The store's reply.

        Raises:
            InvalidValue: the signal specifies nothing or too much, or a value is not valid.
            PayloadTooLarge: the body exceeds the size limit.
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.store.signal(read_signal(key, event, options)))

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """Asynchronous version of `signal`."""
        return await self.store.signal(read_signal(key, event, options))

    # ------------------------------------------------------------------------------------- reads

    def find(self, job: str) -> JobView | None:
        """Return a job with its state, result, runs and trail, or None if there is no such job.

        Raises:
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.find_async(job))

    async def find_async(self, job: str) -> JobView | None:
        """Asynchronous version of `find`."""
        return await self.store.read(JobQuery(id=check_job_id(job)))

    def jobs(self, **filters: Unpack[JobFilters]) -> Page[JobView]:
        """Return a page of jobs, oldest first, and the cursor of the next page.

        Raises:
            InvalidValue: there is no such filter, or its value is invalid.
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.jobs_async(**filters))

    async def jobs_async(self, **filters: Unpack[JobFilters]) -> Page[JobView]:
        """Asynchronous version of `jobs`."""
        return await self.store.read(read_filters(filters))

    def why(self, job: str) -> WhyView | None:
        """Return why a job is in its current state, or None if there is no such job.

        Raises:
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.why_async(job))

    async def why_async(self, job: str) -> WhyView | None:
        """Asynchronous version of `why`."""
        return await self.store.read(WhyQuery(id=check_job_id(job)))

    def cancel(self, job: str, *, reason: str = "") -> str | None:
        """Cancel a queued job, or request that a running or awaiting job stops.

        Args:
            job: id of the job.
            reason: reason to record in the trail.

        Returns:
            The state of the job after the call.

        Raises:
            UnknownJob: there is no job with this id.
            InvalidState: the job is already final.
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.cancel_async(job, reason=reason))

    async def cancel_async(self, job: str, *, reason: str = "") -> str | None:
        """Asynchronous version of `cancel`."""
        return await act_on(
            self.store, Verb.CANCEL, job, author=self._declaration.author, reason=reason
        )

    def retry(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """Run a dead or cancelled job again, with all its attempts.

        Args:
            job: id of the job.
            reason: reason to record in the trail.
            args: new arguments; they replace all the old ones.

        Returns:
            The state of the job after the call.

        Raises:
            UnknownJob: there is no job with this id.
            InvalidState: the job is neither dead nor cancelled.
            InvalidValue: the arguments are not JSON-serialisable.
            StoreError: the store cannot serve the call now.
        """
        return self._wait_for(self.retry_async(job, reason=reason, args=args))

    async def retry_async(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """Asynchronous version of `retry`."""
        author = self._declaration.author
        return await act_on(self.store, Verb.RETRY, job, author=author, reason=reason, args=args)

    def wait(self, job: str, *, within: Duration = "30s") -> JobView | None:
        """Wait until a job is final, and return it with its state and result.

        Args:
            job: id of the job; it is checked every half second, and more often at first.
            within: maximum time to wait, as "30s" or a timedelta; "0s" checks once.

        Returns:
            The job in its final state, or None if it is not final in time.

        Raises:
            UnknownJob: there is no job with this id.
            StoreError: the store cannot serve the call now.
        """
        return self._background.run(self.wait_async(job, within=within))

    async def wait_async(self, job: str, *, within: Duration = "30s") -> JobView | None:
        """Asynchronous version of `wait`.

        Raises:
            UnknownJob: there is no job with this id.
        """
        timing = self._timing
        give_up_at = timing.monotonic() + parse_duration(within) / 1000
        seconds = FIRST_POLL
        while True:
            found = await self.find_async(job)
            if found is None:
                message = f"there is no job {job!r:.80}"
                raise UnknownJob(message, hint=_FIND_IDS)
            if found.state in FINAL:
                return found
            left = give_up_at - timing.monotonic()
            if left <= 0:
                return None
            await timing.pause(min(seconds, left))
            seconds = min(seconds * 1.5, LONGEST_POLL)

    # ----------------------------------------------------------------------------------- workers

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Create a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; the worker serves all lanes of the app by default.

        Returns:
            The worker; `await worker.run()` runs it until `worker.stop()` is called.
        """
        given: WorkerOptions = {
            "lanes": self.lanes,
            "middleware": tuple(self._middleware),
            "on_failure": tuple(self._on_failure),
            "timing": self._timing,
            "sweepers": self._sweepers,
            "before": self.declare,
        }
        if "lanes" in options:
            given["before"] = partial(self._declare_and_warn, options["lanes"])
        if self.sources:
            given |= self._source_options()
        lease_ms = self._declaration.shortest_lease_ms(self.lanes)
        if lease_ms is not None:
            given["lease"] = f"{lease_ms}ms"
        worker = Worker(self.store, self.kinds, **{**given, **options})
        worker.follows_lanes = "lease" not in options
        return worker

    async def scan_sources(self) -> None:
        """Synchronise the store with the app's sources, as workers do from time to time.

        Raises:
            InvalidValue: a source yielded something that is not a job with a key.
            CallerError: a job was refused; the jobs before it are created.
            StoreError: the store cannot serve the call now.
        """
        sync = self._source_sync()
        await self.declare()
        await sync.begin()
        for source in self.sources.values():
            await sync.scan(source)

    async def _declare_and_warn(self, lanes: Lanes) -> None:
        """Declare, and warn of lanes that neither the app nor its store knows.

        These are probably misspelt, but it is not an error: a lane is created with its first job.
        """
        await self.declare()
        unknown = {name for name, _ in read_lanes(lanes)} - set(self.lanes)
        if not unknown:
            return
        # The token of a worker over HTTP may not be allowed to list lanes.
        with suppress(AccessError):
            known = {one.name for one in await self.store.read(LanesQuery())}
            for name in sorted(unknown - known):
                meant = did_you_mean(name, known.union(self.lanes))
                hint = meant and f"; {meant}"
                _log.warning("worker serves an unknown lane: lane=%r%s", name, hint)

    def _source_sync(self) -> SourceSync:
        return SourceSync(
            self.store,
            tuple(self.sources.values()),
            self._declare_again,
            timing=self._timing,
            name=self._declaration.author,
        )

    def _source_options(self) -> WorkerOptions:
        """Return the worker options that synchronise the sources."""
        sync = self._source_sync()

        async def before() -> None:
            await self.declare()
            await sync.begin()

        duties = tuple(partial(sync.run, source) for source in self.sources.values())
        return {"before": before, "rebuild": sync.rebuild, "duties": duties}

    def run(self, **options: Unpack[WorkerOptions]) -> None:
        """Run a worker until SIGTERM or Ctrl-C; a second signal does not wait for handlers.

        A third signal kills the process at once. If the store is unreachable at the start, opening
        it is retried as by `reach`.
        """
        event_loop.run(self._work(options))

    async def _work(self, options: WorkerOptions) -> None:
        await self.reach()
        try:
            worker = self.worker(**options)
            event_loop.on_signals(lambda now: worker.stop(now=now))
            await worker.run()
        finally:
            await self.close_async()

    # --------------------------------------------------------------------------------- internals

    def _add(self, kind: Kind) -> None:
        if kind.name in self.kinds:
            built_in = self.kinds[kind.name] is self._noop
            message = f"there are two kinds {kind.name!r}{', one of them built in' * built_in}"
            raise InvalidValue(message, hint="give one of them another name: @app.job(name=...)")
        self.kinds[kind.name] = kind

    def _reconciler(self, kind: Kind, ask: Callable[..., Any]) -> str:
        """Declare the kind whose jobs query the provider about another kind's jobs."""
        asking = Kind(
            KindOptions(name=f"{kind.name}.reconcile", lane=kind.lane),
            _reconcile_stand_in,
            asks=check_function(f"reconcile of {kind.name!r}", ask),
        )
        self._add(asking)
        return asking.name

    def _wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine for a caller that cannot await."""
        try:
            inline = self.store.runs_inline
        except BaseException:
            work.close()  # never awaited, because the store could not be opened
            raise
        return self._background.run(work, inline=inline)

    async def _declare_again(self) -> None:
        self._declaration.forget()
        await self.declare()

    async def _enqueue(
        self, jobs: list[NewJob], connection: object = None, sent: Callable[[], None] | None = None
    ) -> list[Sent]:
        store = self.store
        await self._declaration.declare(store, self.kinds)
        insert = store.enqueue
        if connection is not None:
            insert = partial(inserts_within(store).enqueue_within_async, connection)
        if sent is not None:
            if connection is None and isinstance(store, SendsAhead):
                insert = partial(store.enqueue_ahead, sent=sent)
            else:
                sent()
        try:
            return await insert(jobs)
        except UnknownGate:
            # The store may have been lost since the gates were declared.
            await self._declare_again()
            return await insert(jobs)

    def _enqueue_within(self, connection: object, jobs: list[NewJob]) -> list[Sent]:
        # On the caller's thread: the connection is its own.
        store = inserts_within(self.store)
        self._wait_for(self.declare())
        try:
            return store.enqueue_within(connection, jobs)
        except UnknownGate:
            self._wait_for(self._declare_again())
            return store.enqueue_within(connection, jobs)


def _refuse_unopened(store: object) -> None:
    if isinstance(store, type) or not hasattr(store, "runs_inline"):
        message = f"{store!r:.80} is not an open store"
        raise InvalidValue(message, hint="pass one such as MemoryStore(); a URL is for hw.App(url)")


async def _reconcile_stand_in(**facts: object) -> None:
    """Stand in for a reconcile handler, which workers call differently."""


async def _noop(job: Job, **_: object) -> None:
    """Do nothing: the handler of the built-in kind."""


async def act_on(
    store: Store,
    verb: Verb,
    job: str,
    *,
    author: str,
    reason: str,
    args: Mapping[str, object] | None = None,
) -> str | None:
    """Apply an operator's action to a job; return its state afterwards.

    Args:
        job: id of the job.
        args: new arguments; None leaves them unchanged.

    Raises:
        UnknownJob: no job has this id.
        InvalidState: the action does not apply to its state.
        InvalidValue: the arguments are not JSON-serialisable.
    """
    request = ActRequest(
        request=uuid4().hex,
        ids=(check_job_id(job),),
        verb=verb,
        edit=Edit(args=None if args is None else encode("arguments", args)),
        author=author,
        reason=reason,
    )
    reply = (await store.act(request))[0]
    match reply.answer:
        case Acted.DONE | Acted.ASKED:
            return reply.state
        case Acted.REFUSED:
            message = f"{verb} does not apply to the job {reply.id}: it is {reply.state}"
            hint = "only dead and cancelled jobs can be retried" if verb is Verb.RETRY else ""
            raise InvalidState(message, hint=hint or f"`headway why {reply.id}` says why")
        case Acted.UNKNOWN:
            message = f"there is no job {reply.id!r:.80}"
            raise UnknownJob(message, hint=_FIND_IDS)
        case _:
            assert_never(reply.answer)
