"""A handler: the function that does the work of a kind, or of one of its stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from headway.core.errors import InvalidValue
from headway.runtime.arguments import Arguments, read_parameters, refuse_reserved
from headway.runtime.job import Job


class Place(StrEnum):
    """Where a handler runs."""

    LOOP = "loop"
    """An async one: in the worker's event loop."""
    THREAD = "thread"
    """A plain one: in a thread of its own."""
    PROCESS = "process"
    """Either: in a process of its own, whose crash fails only this attempt."""


class Handler:
    """A function, where it runs, and what it takes.

    Attributes:
        fn: the function as the user wrote it.
        wants_job: whether its first parameter is the job.
    """

    __slots__ = ("arguments", "fn", "place", "wants_job")

    def __init__(
        self, kind: str, fn: Callable[..., Any], *, processes: bool = False, strict: bool = True
    ) -> None:
        parameters = read_parameters(kind, fn)
        self.fn = fn
        self.wants_job = bool(parameters) and _is_job(parameters[0])
        self.arguments = Arguments(kind, parameters[self.wants_job :], strict=strict)
        refuse_reserved(kind, self.arguments.names)
        self.place = _place(kind, fn, processes=processes)

    def call(self, job: Job, args: bytes) -> object:
        """Call the function; the result of an async one is to be awaited.

        Raises:
            InvalidArguments: its annotations refuse the arguments; it was not called.
        """
        first = (job,) if self.wants_job else ()
        return self.arguments.call(self.fn, args, *first)


def _is_job(parameter: inspect.Parameter) -> bool:
    if parameter.annotation is parameter.empty:
        return parameter.name == "job"
    return parameter.annotation is Job


def _place(kind: str, fn: Callable[..., Any], *, processes: bool) -> Place:
    if not processes:
        return Place.LOOP if inspect.iscoroutinefunction(fn) else Place.THREAD
    if "<" in fn.__qualname__:
        message = f"the handler of {kind!r} cannot be found by another process"
        raise InvalidValue(message, hint="processes=True needs a function of a module")
    return Place.PROCESS
