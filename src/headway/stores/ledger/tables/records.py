"""The tables of keys, signals, workers, timetable, trail and the store's own facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headway.contract.mending import Suspicion
from headway.stores.ledger.rows import EntryRow, KeyRow, SignalRow, TrailRow, WorkerRow


class KeyTable(Protocol):
    """Keys that make enqueue idempotent."""

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        """The keys that have a row, by (tenant, key)."""
        ...

    def save(self, rows: Iterable[KeyRow]) -> None:
        """Writes keys."""
        ...


class SignalTable(Protocol):
    """Keys that runs are known as, and events that were heard."""

    def known(self, key: str) -> tuple[str, int] | None:
        """The (job, run) known under a key."""
        ...

    def make_known(self, key: str, job: str, run: int) -> None:
        """Makes a run known under a key; a later run takes the key over."""
        ...

    def known_as(self, jobs: Sequence[str]) -> list[tuple[str, str, int]]:
        """The (key, job, run) of these jobs' runs, in any order."""
        ...

    def all_known(self, after: str, limit: int) -> list[tuple[str, str, int]]:
        """The (key, job, run) that are known, by key, those above `after`."""
        ...

    def all_heard(self, after: tuple[str, str], limit: int) -> list[SignalRow]:
        """Events by (scope, event), those above `after`."""
        ...

    def heard(self, scope: str, event: str) -> SignalRow | None:
        """The event, if it was heard in the scope."""
        ...

    def save(self, row: SignalRow) -> None:
        """Writes an event; one that is written again (a parcel put in twice) is the same."""
        ...

    def kept(self, key: str) -> list[SignalRow]:
        """Events kept for a key, oldest first."""
        ...

    def kept_count(self) -> int:
        """How many events are kept."""
        ...

    def drop(self, rows: Iterable[SignalRow]) -> None:
        """Forgets events."""
        ...

    def stale(self, limit: int) -> list[SignalRow]:
        """Events kept for longer than they may be."""
        ...


class WorkerTable(Protocol):
    """Workers and their leases."""

    def load(self, worker: str) -> WorkerRow | None:
        """A worker; a copy."""
        ...

    def save(self, row: WorkerRow) -> None:
        """Writes a worker."""
        ...

    def remove(self, workers: Sequence[str]) -> None:
        """Forgets workers."""
        ...

    def lapsed(self, limit: int) -> list[WorkerRow]:
        """Workers whose lease has ended and that no sweep has seen yet."""
        ...

    def next_lapse(self) -> int | None:
        """When the next lease ends."""
        ...

    def all(self) -> list[WorkerRow]:
        """All workers, by id."""
        ...


class EntryTable(Protocol):
    """The timetable."""

    def load(self, name: str) -> EntryRow | None:
        """An entry; a copy."""
        ...

    def all(self) -> list[EntryRow]:
        """All entries, removed ones among them, by name."""
        ...

    def save(self, row: EntryRow) -> None:
        """Writes an entry."""
        ...


class TrailTable(Protocol):
    """Who did what, when and why; and requests that were answered."""

    def add(self, rows: Sequence[TrailRow]) -> None:
        """Adds lines; `seq` is given here."""
        ...

    def remove(self, rows: Sequence[TrailRow]) -> None:
        """Remove lines: the oldest, in order, and never the newest of all."""
        ...

    def page(self, target: str | None, before: int | None, limit: int) -> list[TrailRow]:
        """Lines, newest first; of one target, or all; those with a smaller seq than `before`."""
        ...

    def since(self, after: int, limit: int) -> list[TrailRow]:
        """Lines, oldest first; those with a larger seq than `after`."""
        ...

    def answer(self, request: str) -> bytes | None:
        """What a request was answered."""
        ...

    def keep_answer(self, request: str, answer: bytes) -> None:
        """Keeps what a request was answered, for an hour at least."""
        ...


class FactTable(Protocol):
    """The store's own facts."""

    def identity(self) -> str:
        """Written once, random."""
        ...

    def epoch(self) -> int:
        """Raised when an older state came back; part of the fence."""
        ...

    def revision(self) -> int:
        """Of the definitions."""
        ...

    def bump_revision(self) -> int:
        """One more."""
        ...

    def clock_ahead_ms(self) -> int:
        """By how much the store's time is ahead of its clock."""
        ...

    def suspicion(self) -> Suspicion | None:
        """Why claims are refused in the whole store; None while they are answered."""
        ...

    def leader(self, role: str) -> tuple[str, int, int] | None:
        """(holder, term, until) of a role."""
        ...

    def set_leader(self, role: str, holder: str, term: int, until_at: int) -> None:
        """Writes a role's leader."""
        ...
