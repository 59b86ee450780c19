"""Headway dispatches work when it is due, to free workers, within the limits of the real world.

This module contains all that a program needs to declare work, to send it, and to run it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only for type checkers: at run time each name is imported on first use, so that the command
    # line and programs that use a part of the package load only that part.
    from headway.app import App
    from headway.client.client import Client
    from headway.contract.outcomes import Closing
    from headway.contract.signals import Decided, SignalReply, SignalResult
    from headway.contract.store import Sent, Store
    from headway.contract.views import JobView
    from headway.core.errors import (
        AccessError,
        BacklogFull,
        CallerError,
        ClockSkewed,
        Forbidden,
        HandlerCancelled,
        HandlerError,
        HandlerTimeout,
        HeadwayError,
        IdConflict,
        InvalidArguments,
        InvalidState,
        InvalidValue,
        InvariantBroken,
        KeyConflict,
        LeaseLost,
        OutcomeUnknown,
        OwnershipError,
        PayloadTooLarge,
        ProviderError,
        ProviderRefused,
        ProviderUnsure,
        RevisionConflict,
        SchemaMismatch,
        StoreChanged,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreMisconfigured,
        StoreReadOnly,
        StoreUnavailable,
        TooManyRequests,
        Unauthenticated,
        UnknownEntry,
        UnknownGate,
        UnknownJob,
        UnknownKind,
        UnknownRecord,
    )
    from headway.core.gates.opening import Hours
    from headway.core.gates.pool import Pool
    from headway.core.gates.rate import Rate
    from headway.core.gates.slots import Slots
    from headway.core.job import NewJob
    from headway.core.retry import Backoff
    from headway.core.state import State
    from headway.core.timetable.schedule import At, Cron, Every
    from headway.runtime.handler_results import (
        Dead,
        Ended,
        Next,
        Retry,
        Running,
        Snooze,
        Unfit,
        Unknown,
    )
    from headway.runtime.inserting import CancelledJob
    from headway.runtime.job import Job
    from headway.runtime.kind import Kind
    from headway.runtime.reconciliation import Awaited
    from headway.runtime.sources import Source, in_flight
    from headway.runtime.timing import Timing
    from headway.runtime.worker.outcomes import Failure
    from headway.runtime.worker.worker import Worker

    __version__: str

__all__ = [
    "AccessError",
    "App",
    "At",
    "Awaited",
    "BacklogFull",
    "Backoff",
    "CallerError",
    "CancelledJob",
    "Client",
    "ClockSkewed",
    "Closing",
    "Cron",
    "Dead",
    "Decided",
    "Ended",
    "Every",
    "Failure",
    "Forbidden",
    "HandlerCancelled",
    "HandlerError",
    "HandlerTimeout",
    "HeadwayError",
    "Hours",
    "IdConflict",
    "InvalidArguments",
    "InvalidState",
    "InvalidValue",
    "InvariantBroken",
    "Job",
    "JobView",
    "KeyConflict",
    "Kind",
    "LeaseLost",
    "NewJob",
    "Next",
    "OutcomeUnknown",
    "OwnershipError",
    "PayloadTooLarge",
    "Pool",
    "ProviderError",
    "ProviderRefused",
    "ProviderUnsure",
    "Rate",
    "Retry",
    "RevisionConflict",
    "Running",
    "SchemaMismatch",
    "Sent",
    "SignalReply",
    "SignalResult",
    "Slots",
    "Snooze",
    "Source",
    "State",
    "Store",
    "StoreChanged",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMisconfigured",
    "StoreReadOnly",
    "StoreUnavailable",
    "Timing",
    "TooManyRequests",
    "Unauthenticated",
    "Unfit",
    "Unknown",
    "UnknownEntry",
    "UnknownGate",
    "UnknownJob",
    "UnknownKind",
    "UnknownRecord",
    "Worker",
    "in_flight",
]

_HOMES = {
    "headway.app": "App",
    "headway.client.client": "Client",
    "headway.contract.outcomes": "Closing",
    "headway.contract.signals": "Decided SignalResult SignalReply",
    "headway.contract.store": "Sent Store",
    "headway.contract.views": "JobView",
    "headway.core.gates.opening": "Hours",
    "headway.core.gates.pool": "Pool",
    "headway.core.gates.rate": "Rate",
    "headway.core.gates.slots": "Slots",
    "headway.core.job": "NewJob",
    "headway.core.retry": "Backoff",
    "headway.core.state": "State",
    "headway.core.timetable.schedule": "At Cron Every",
    "headway.runtime.handler_results": "Dead Ended Next Retry Running Snooze Unfit Unknown",
    "headway.runtime.reconciliation": "Awaited",
    "headway.runtime.inserting": "CancelledJob",
    "headway.runtime.job": "Job",
    "headway.runtime.kind": "Kind",
    "headway.runtime.sources": "Source in_flight",
    "headway.runtime.timing": "Timing",
    "headway.runtime.worker.outcomes": "Failure",
    "headway.runtime.worker.worker": "Worker",
}
"""Public names by module; all others are errors."""

_MODULES = {
    **dict.fromkeys(__all__, "headway.core.errors"),
    **{name: module for module, names in _HOMES.items() for name in names.split()},
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used.

    Raises:
        AttributeError: there is no such name.
    """
    if name == "__version__":
        # Importing importlib.metadata takes as long as the rest of the package.
        return import_module("importlib.metadata").version("headway")
    module = _MODULES.get(name)
    if module is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
