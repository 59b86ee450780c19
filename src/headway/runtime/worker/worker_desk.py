"""The desk of a worker: its settler and its heart, as a handler reaches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.contract.outcomes import Outcome, Verdict
from headway.runtime.worker.held import Held
from headway.runtime.worker.settler import Settler
from headway.runtime.worker.worker_options import SignalUrl


class WorkerDesk:
    """Writes for the runs of one worker.

    Attributes:
        on_progress: called when there is progress to carry, from any thread.
    """

    def __init__(self, settler: Settler, held: Held, signal_url: SignalUrl) -> None:
        self.on_progress: Callable[[], None] = lambda: None
        self._signal_url = signal_url
        self._settler = settler
        self._held = held
        self._loop = asyncio.get_running_loop()

    def signal_url(self, ref: str) -> str | None:
        """Where the outside world signals a run; None while no server is configured."""
        return self._signal_url(ref)

    async def write(self, outcome: Outcome) -> Verdict:
        """Writes an outcome of a live run, and says what the store answered."""
        return await self._settler.write(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        """The same, for a handler that is not in the event loop."""
        return asyncio.run_coroutine_threadsafe(self._settler.write(outcome), self._loop).result()

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        """Keeps the newest progress of a run for the next beat, which is soon."""
        self._held.note_progress((job, run), data)
        self.on_progress()
