"""The tables of keys, signals, workers, timetable, trail and the store's own facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headway.contract.repair import Suspicion
from headway.stores.ledger.rows import EntryRow, KeyRow, SignalRow, TrailRow, WorkerRow


class KeyTable(Protocol):
    """Keys that make enqueue idempotent."""

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        """Return the keys that have a row, by (tenant, key)."""
        ...

    def save(self, rows: Iterable[KeyRow]) -> None:
        """Write keys."""
        ...


class SignalTable(Protocol):
    """Signal keys of runs, and events that were received."""

    def known(self, key: str) -> tuple[str, int] | None:
        """Return the (job, run) of a signal key."""
        ...

    def make_known(self, key: str, job: str, run: int) -> None:
        """Assign a signal key to a run; a later run takes it over."""
        ...

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return the (key, job, run) of these jobs' runs, in any order."""
        ...

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        """Return all (key, job, run), by key, those above `after`."""
        ...

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        """Return events by (scope, event), those above `after`."""
        ...

    def heard(self, scope: str, event: str) -> SignalRow | None:
        """Return the event, if it was received in the scope."""
        ...

    def save(self, row: SignalRow) -> None:
        """Write an event; writing it again, as by an import that is repeated, changes nothing."""
        ...

    def kept(self, key: str) -> list[SignalRow]:
        """Return events kept for a key, oldest first."""
        ...

    def kept_count(self) -> int:
        """Return how many events are kept."""
        ...

    def drop(self, rows: Iterable[SignalRow]) -> None:
        """Remove events."""
        ...

    def stale(self, limit: int) -> list[SignalRow]:
        """Return kept events past their time limit."""
        ...


class WorkerTable(Protocol):
    """Workers and their leases."""

    def load(self, worker: str) -> WorkerRow | None:
        """Return a copy of a worker's row."""
        ...

    def save(self, row: WorkerRow) -> None:
        """Write a worker."""
        ...

    def remove(self, workers: Sequence[str]) -> None:
        """Remove workers."""
        ...

    def lapsed(self, limit: int) -> list[WorkerRow]:
        """Return workers whose lease has ended and that no sweep has marked yet."""
        ...

    def next_lapse(self) -> int | None:
        """Return when the next lease ends."""
        ...

    def all(self) -> list[WorkerRow]:
        """Return all workers, by id."""
        ...


class EntryTable(Protocol):
    """The timetable."""

    def load(self, name: str) -> EntryRow | None:
        """Return a copy of an entry."""
        ...

    def all(self) -> list[EntryRow]:
        """Return all entries, including removed ones, by name."""
        ...

    def save(self, row: EntryRow) -> None:
        """Write an entry."""
        ...


class TrailTable(Protocol):
    """Who did what, when and why; and replies to requests, in case they are repeated."""

    def add(self, rows: Sequence[TrailRow]) -> None:
        """Add lines, and assign their `seq`."""
        ...

    def remove(self, rows: Sequence[TrailRow]) -> None:
        """Remove the oldest lines, in order; never the newest of all."""
        ...

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        """Return lines of one target or all, newest first, with a smaller seq than `before`."""
        ...

    def since(self, after: int, limit: int) -> list[TrailRow]:
        """Return lines, oldest first, those with a larger seq than `after`."""
        ...

    def answer(self, request: str) -> bytes | None:
        """Return the stored reply to a request."""
        ...

    def keep_answer(self, request: str, answer: bytes) -> None:
        """Store the reply to a request, for an hour at least."""
        ...


class FactTable(Protocol):
    """The store's own facts."""

    def identity(self) -> str:
        """Return the random identity, which is written once."""
        ...

    def epoch(self) -> int:
        """Return the epoch, which an operator raises after a restore; it fences older runs."""
        ...

    def revision(self) -> int:
        """Return the revision of the definitions."""
        ...

    def bump_revision(self) -> int:
        """Increase the revision, and return it."""
        ...

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        ...

    def suspicion(self) -> Suspicion | None:
        """Return why claims are refused in the whole store; None if they are not."""
        ...

    def leader(self, role: str) -> tuple[str, int, int] | None:
        """Return the (holder, term, until) of a role."""
        ...

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        """Write a role's leader."""
        ...
