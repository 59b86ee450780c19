"""A source: what an application's own tables say should be pending, and what is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypedDict, TypeVar, cast

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.job import MAX_BATCH
from headway.core.naming import check_name

Function = TypeVar("Function", bound=Callable[..., Any])
Rows = Callable[[], AsyncIterable[Any] | Iterable[Any]]


class SourceOptions(TypedDict, total=False):
    """The options of `@app.source`.

    Attributes:
        name: of the source; the function's name if not given.
        every: how long to rest between two looks at the whole table.
        rate: how many missing jobs a second are let go: the more are missing, the longer the
            window over which they are spread.
    """

    name: str
    every: object
    rate: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What the last look at a source came to.

    Attributes:
        rows: jobs that the source named.
        missing: those that the store did not have, and has now.
        window_ms: over how long the missing ones that were due were spread.
        error: why it ended early; empty if it did not.
    """

    rows: int = 0
    missing: int = 0
    window_ms: int = 0
    error: str = ""


class Source:
    """What `@app.source` makes of a function.

    Attributes:
        name: unique in the app.
        every_ms: between two looks.
        rate: missing jobs that are let go in a second.
        last: what the last look came to; None before the first.
    """

    def __init__(self, pending: Rows, options: SourceOptions) -> None:
        """Makes a source; nobody looks at it yet.

        Args:
            pending: yields the jobs that should be pending, each with a key.
            options: see `SourceOptions`.

        Raises:
            InvalidValue: an option is unusable.
        """
        unknown = sorted(options.keys() - SourceOptions.__annotations__.keys())
        if unknown:
            message = f"a source has no option {unknown[0]!r}"
            raise InvalidValue(message, hint=f"it has {', '.join(SourceOptions.__annotations__)}")
        self.name = check_name("source", options.get("name") or pending.__name__)
        self.every_ms = parse_duration(options.get("every", "1m"))
        if self.every_ms < 1_000:
            message = f"the source {self.name!r} is looked at every {self.every_ms} ms"
            raise InvalidValue(message, hint="at least 1s")
        self.rate = check_count("rate", options.get("rate", 100), least=1)
        self.last: Look | None = None
        self._pending = pending
        self._under_way: Rows | None = None

    def in_flight(self, fn: Function) -> Function:
        """Declares what is under way: a function that yields what `hw.in_flight` returns.

        Returns:
            The function as it is.

        Raises:
            InvalidValue: the source has one already.
        """
        if self._under_way is not None:
            message = f"the source {self.name!r} says twice what is in flight"
            raise InvalidValue(message, hint="yield all of it from one function")
        self._under_way = fn
        return fn

    def pending(self) -> AsyncGenerator[list[Any]]:
        """What should be pending, in pages of at most 1000."""
        return _pages(self._pending)

    def under_way(self) -> AsyncGenerator[list[Any]]:
        """What is in flight, in pages of at most 1000."""
        return _pages(self._under_way or tuple)


async def _pages(rows: Rows) -> AsyncGenerator[list[Any]]:
    found = rows()
    if isinstance(found, AsyncIterable):
        page: list[Any] = []
        async for row in found:
            page.append(row)
            if len(page) == MAX_BATCH:
                yield page
                page = []
        if page:
            yield page
        return
    if not isinstance(cast("object", found), Iterable):
        message = f"a source gave {found!r:.80}"
        raise InvalidValue(message, hint="yield from it, or return a list")
    # A table that is read with a blocking driver must not hold up the loop.
    rest = iter(found)
    while page := await asyncio.to_thread(lambda: list(islice(rest, MAX_BATCH))):
        yield page
