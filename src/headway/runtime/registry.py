"""What an app declares: kinds, lanes, entries, middleware, importers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, Unpack, cast

from headway.core.errors import InvalidValue, UnknownKind
from headway.core.naming import check_name, did_you_mean
from headway.runtime.declaration import Declaration
from headway.runtime.entries import EntryOptions, read_entry
from headway.runtime.importing import Importer
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.kind_options import JobOptions, KindOptions, read_options
from headway.runtime.lanes import LaneOptions, read_lane
from headway.runtime.noop import noop_kind
from headway.runtime.sources.source import Rows, Source, SourceOptions
from headway.runtime.timing import Timing
from headway.runtime.worker.plans import Middleware
from headway.runtime.worker.reports import OnFailure, check_hook

Function = TypeVar("Function", bound=Callable[..., Any])


class Registry:
    """The declarations of an app.

    Attributes:
        kinds: by name; `noop` is built in.
        importers: by name.
        sources: by name.
    """

    def __init__(self, name: str, timing: Timing) -> None:
        """Makes one that declares nothing yet but `noop`.

        Args:
            name: of the app.
            timing: for what expires.
        """
        self.importers: dict[str, Importer] = {}
        self.sources: dict[str, Source] = {}
        self._noop = noop_kind()
        self.kinds: dict[str, Kind] = {self._noop.name: self._noop}
        self._timing = timing
        self._middleware: list[Middleware] = []
        self._on_failure: list[OnFailure] = []
        self._declaration = Declaration(check_name("app", name))

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes of this app: those of its kinds, and those that it declares."""
        lanes = {kind.lane: None for kind in self.kinds.values() if kind is not self._noop}
        lanes |= dict.fromkeys(self._declaration.lanes)
        return tuple(lanes) or (self._noop.lane,)

    def job(self, **options: Unpack[JobOptions]) -> Callable[[Callable[..., Any]], Kind]:
        """Declares a kind of work by its handler.

        Args:
            options: see `JobOptions`.

        Returns:
            A decorator that makes the function a `Kind`.
        """

        def declare(fn: Callable[..., Any]) -> Kind:
            if not inspect.isroutine(fn):
                message = f"{fn!r:.80} is no function"
                raise InvalidValue(message, hint="write `@app.job()` over a def or an async def")
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

    def on_failure(self, fn: OnFailure) -> OnFailure:
        """Calls a function with the `Failure` of each failed attempt, as error trackers need it.

        Args:
            fn: a plain function that returns quickly; it is called in the worker's event loop
                after the attempt was logged. What it raises is logged, and changes nothing.

        Returns:
            The function as it is.

        Raises:
            InvalidValue: it is an async function.
        """
        self._on_failure.append(check_hook(fn))
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

    def source(self, **options: Unpack[SourceOptions]) -> Callable[[Rows], Source]:
        """Declares what the application's own tables say should be pending.

        Args:
            options: see `SourceOptions`.

        Returns:
            A decorator that makes the function a `Source`. The function yields jobs (from a
            kind's `make`, each with a key); a job that the store has is left as it is.

        Raises:
            InvalidValue: an option is unusable, or there is one of this name already.
        """

        def declare(fn: Rows) -> Source:
            source = Source(fn, options)
            if source.name in self.sources:
                message = f"there are two sources {source.name!r}"
                raise InvalidValue(message, hint="name one of them otherwise")
            self.sources[source.name] = source
            return source

        return declare

    def kind(self, kind: Kind | str) -> Kind:
        """The kind of a name.

        Raises:
            UnknownKind: this app has none.
        """
        if not isinstance(cast("object", kind), Kind | str):
            message = f"{kind!r:.80} is no kind"
            raise UnknownKind(message, hint="pass what @app.job() made of a function, or its name")
        name = kind if isinstance(kind, str) else kind.name
        found = self.kinds.get(name)
        if found is None or (isinstance(kind, Kind) and found is not kind):
            message = f"this app has no kind {name[:80]!r}"
            hint = did_you_mean(name, self.kinds, "declare it with @app.job()")
            raise UnknownKind(message, hint=hint)
        return found

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
