"""Headway dispatches work when it is due, to whoever is free, within the limits of the real world.

This is all that a program needs to declare work, to send it, and to run it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Unpack

from headway.client.address import is_server, read_address
from headway.client.client import Client
from headway.client.remote_store import RemoteStore
from headway.contract.outcomes import Closing
from headway.contract.signals import Decided, Heard, SignalReply
from headway.contract.store import Store
from headway.core.errors import (
    AccessError,
    BacklogFull,
    CallerError,
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
from headway.runtime.answers import Dead, Ended, Next, Retry, Running, Snooze, Unfit, Unknown
from headway.runtime.app import App as _App
from headway.runtime.awaited import Awaited
from headway.runtime.importing import CalledOff
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.sent import Sent
from headway.runtime.sources.source import Source
from headway.runtime.sources.under_way import in_flight
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

__all__ = [
    "AccessError",
    "App",
    "At",
    "Awaited",
    "BacklogFull",
    "Backoff",
    "CalledOff",
    "CallerError",
    "Client",
    "Closing",
    "Cron",
    "Dead",
    "Decided",
    "Ended",
    "Every",
    "Forbidden",
    "HandlerCancelled",
    "HandlerError",
    "HandlerTimeout",
    "HeadwayError",
    "Heard",
    "Hours",
    "IdConflict",
    "InvalidArguments",
    "InvalidState",
    "InvalidValue",
    "InvariantBroken",
    "Job",
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
    "Slots",
    "Snooze",
    "Source",
    "State",
    "Store",
    "StoreChanged",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
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

DEFAULT_STORE = "sqlite:///headway.db"
"""Where an app lives that says nothing else."""


class App(_App):
    """A program's kinds of work, and the store that they live in."""

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        name: str = "app",
        timing: Timing | None = None,
    ) -> None:
        """Makes an app; the store is opened when it is first needed.

        Args:
            url: such as "sqlite:///headway.db" or "memory://", or of a server, as
                "https://jobs.example.com"; if not given, HEADWAY_STORE in the environment, else
                "sqlite:///headway.db".
            store: an open one instead; the app does not close it.
            name: stands on the trail as the author of what the app declares.
            timing: the simulator's.
        """
        super().__init__(
            url or os.environ.get("HEADWAY_STORE") or DEFAULT_STORE,
            opener=_open,
            store=store,
            name=name,
            timing=timing,
        )

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Makes a worker for this app's kinds.

        Args:
            options: see `WorkerOptions`; it serves all lanes of the app if none are given. On a
                server, the chores are the server's.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.
        """
        store = self.store
        if isinstance(store, RemoteStore):
            here: WorkerOptions = {"chores": False, "signal_url": store.signal_url}
            options = {**here, **options}
        return super().worker(**options)


def _open(url: str) -> Store:
    if is_server(url):
        if find_spec("httpx") is None:
            # Told now: a worker would take it for a server that is away, and wait for ever.
            message = "a server as the store needs the package httpx, which is not installed"
            raise StoreUnavailable(message, hint="pip install 'headway[client]'")
        return RemoteStore(read_address(url))
    # Not before it is needed: a program that is given a store loads no database.
    from headway.stores import open_store  # noqa: PLC0415

    return open_store(url)
