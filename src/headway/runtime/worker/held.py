"""What a worker holds, as its beats tell it; written in its event loop, read by the heart's thread.

A run is listed from the moment its claim's reply is here until the store has answered its
settlement: one that is not listed, though its claim's reply is, would be released as unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from headway.contract.claims import Claimed

Run = tuple[str, int]
"""A job's id and the number of its run."""


class Held:
    """The runs of one worker, and their newest progress.

    Attributes:
        runs: each with what its claim said.
        request: the last claim whose reply is here.
    """

    def __init__(self) -> None:
        self.runs: dict[Run, Claimed] = {}
        self.request = 0
        self._progress: dict[Run, bytes] = {}
        self._lock = Lock()

    def take(self, request: int, jobs: Iterable[Claimed]) -> None:
        """Lists what a claim handed out."""
        runs = self.runs
        for claimed in jobs:
            runs[claimed.id, claimed.run] = claimed
        # Last, so that a beat in between still names the claim before.
        self.request = request

    def listed(self) -> tuple[int, tuple[Run, ...]]:
        """The last claim and the runs; these are at least all that it and earlier ones gave."""
        request = self.request
        # A copy is made in one go, though another thread may be writing.
        return request, tuple(self.runs.copy())

    def note_progress(self, run: Run, data: bytes) -> None:
        """Keeps the newest progress of a run for the next beat."""
        with self._lock:
            self._progress[run] = data

    def take_progress(self) -> tuple[tuple[str, int, bytes], ...]:
        """The progress that no beat has carried yet."""
        with self._lock:
            taken, self._progress = self._progress, {}
        return tuple((job, run, data) for (job, run), data in taken.items())

    def put_back(self, progress: Iterable[tuple[str, int, bytes]]) -> None:
        """Keeps progress whose beat failed, unless there is newer."""
        with self._lock:
            for job, run, data in progress:
                self._progress.setdefault((job, run), data)
