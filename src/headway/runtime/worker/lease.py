"""The lease of a worker's runs, on the worker's own clock."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

from headway.contract.claims import Claimed

_NEVER = float("-inf")


class Lease:
    """How long the runs live without a beat.

    Attributes:
        ms: what is asked for with each claim and beat.
        ends: until when they certainly live, in seconds on the worker's clock.
    """

    def __init__(self, ms: int) -> None:
        self.ms = ms
        self.ends = _NEVER

    @property
    def interval(self) -> float:
        """Seconds between two beats."""
        return self.ms / 3000

    @property
    def stop_by(self) -> float:
        """When handlers must be asked to stop, so that they end before the lease does."""
        return self.ends - self.ms / 6000

    def lapsing(self, now: float) -> bool:
        """Return whether handlers must stop now; False before the store has given a lease."""
        return now >= self.stop_by and self.ends != _NEVER

    def extend(self, sent: float, left_ms: int) -> None:
        """Take note of an answer of the store.

        Args:
            sent: when the store was asked, in seconds on the worker's clock.
            left_ms: how long the lease lives from the store's time in its answer.
        """
        self.ends = max(self.ends, sent + left_ms / 1000)


_WINDOW = 30.0


class StoreTime:
    """Bounds the store's moments from below on a clock that never goes back.

    An exchange that was sent at `sent` and answered with the store's time `now` shows that `now`
    was not before `sent`. The tightest such bound of the last half to whole minute is kept, so
    that one slow exchange does not make a job look older than it is.
    """

    def __init__(self) -> None:
        self._since = float("-inf")
        self._newer = float("-inf")
        self._older = float("-inf")

    def observe(self, sent: float, now: int) -> None:
        """Take note of an exchange.

        Args:
            sent: when it was sent, in seconds on the worker's clock.
            now: the store's time in its answer, in ms.
        """
        if sent - self._since > _WINDOW:
            self._since, self._older, self._newer = sent, self._newer, float("-inf")
        self._newer = max(self._newer, sent - now / 1000)

    def earliest(self, at: int, received: float) -> float:
        """The earliest that a moment of the store can have been.

        Args:
            at: the moment, in ms by the store's time.
            received: when it was certainly past, in seconds on the worker's clock.

        Returns:
            Seconds on the worker's clock.
        """
        return min(at / 1000 + max(self._newer, self._older), received)


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
        """List what a claim handed out."""
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
        """Keep the newest progress of a run for the next beat."""
        with self._lock:
            self._progress[run] = data

    def take_progress(self) -> tuple[tuple[str, int, bytes], ...]:
        """The progress that no beat has carried yet."""
        with self._lock:
            taken, self._progress = self._progress, {}
        return tuple((job, run, data) for (job, run), data in taken.items())

    def put_back(self, progress: Iterable[tuple[str, int, bytes]]) -> None:
        """Keep progress whose beat failed, unless there is newer."""
        with self._lock:
            for job, run, data in progress:
                self._progress.setdefault((job, run), data)
