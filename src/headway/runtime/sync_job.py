"""The job as a handler sees it that cannot await: in a thread, or in a process of its own."""

from __future__ import annotations

from typing import Protocol

from headway.contract.outcomes import GaveBack, HandedOver, KnownAs, Outcome, Verdict
from headway.core.naming import check_name
from headway.runtime.desk import Desk
from headway.runtime.encoding import encode


class Handing(Protocol):
    """What is needed of the job itself."""

    @property
    def id(self) -> str:
        """The job's id."""
        ...

    @property
    def run(self) -> int:
        """The number of this run."""
        ...

    def handing_over(self, key: str | None, timeout: object) -> HandedOver:
        """The hand-over, with all that must follow it."""
        ...

    def settled_by(self, outcome: Outcome, verdict: Verdict) -> None:
        """Takes note of what the store answered while the handler still runs."""
        ...


class SyncJob:
    """What a handler in a thread or a process calls instead of awaiting."""

    __slots__ = ("_desk", "_job")

    def __init__(self, job: Handing, desk: Desk) -> None:
        self._job = job
        self._desk = desk

    def hand_over(self, key: str | None = None, *, timeout: object = "30m") -> None:
        """As `Job.hand_over`.

        Raises:
            LeaseLost: the run is not live any more; nothing was written.
            HandlerCancelled: somebody cancelled the job; do not touch the outside world.
        """
        self._write(self._job.handing_over(key, timeout))

    def offer(self, *, timeout: object = "5m") -> None:
        """As `Job.offer`.

        Raises:
            LeaseLost: the run is not live any more; nothing was written.
            HandlerCancelled: somebody cancelled the job; do not ask the candidate.
        """
        self.hand_over(timeout=timeout)

    def known_as(self, key: str) -> None:
        """As `Job.known_as`.

        Raises:
            LeaseLost: the run is not live any more; nothing was written.
        """
        self._write(KnownAs(self._job.id, self._job.run, key=check_name("key", key)))

    def give_back(self, gate: str) -> None:
        """As `Job.give_back`.

        Raises:
            LeaseLost: the run is not live any more; nothing was written.
        """
        self._write(GaveBack(self._job.id, self._job.run, gate=check_name("gate", gate)))

    def progress(self, value: object) -> None:
        """As `Job.progress`.

        Raises:
            PayloadTooLarge: it is above the limit.
        """
        job = self._job
        self._desk.note_progress(job.id, job.run, encode("progress", value))

    def _write(self, outcome: Outcome) -> None:
        self._job.settled_by(outcome, self._desk.write_from_thread(outcome))
