"""The desk: where a job's handler writes what must be known before it returns."""

from __future__ import annotations

from typing import Protocol

from headway.contract.outcomes import Outcome, Verdict


class Desk(Protocol):
    """Writes for the runs of one worker."""

    def signal_url(self, ref: str) -> str | None:
        """Where the outside world signals a run; None while no server is configured."""
        ...

    async def write(self, outcome: Outcome) -> Verdict:
        """Writes an outcome of a live run, and says what the store answered."""
        ...

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """The same, for a handler that is not in the event loop."""
        ...

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        """Keeps the newest progress of a run for the next beat."""
        ...
