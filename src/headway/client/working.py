"""What a program works on: with the handlers of an App, or by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from headway.client.by_hand import ClaimAsked, claim_call, settle_call
from headway.client.claim_reply import read_claim
from headway.client.connected import Connected
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply
from headway.contract.outcomes import Outcome, Verdict
from headway.core.duration import parse_duration
from headway.runtime import event_loop
from headway.runtime.app import App
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions


class Working(Connected):
    """Works."""

    def worker(self, app: App, **options: Unpack[WorkerOptions]) -> Worker:
        """Makes a worker for an App's kinds that claims from the server.

        From now on all that the App sends goes to the server too. The server does the chores.

        Args:
            app: whose handlers run here.
            options: see `WorkerOptions`; it serves all lanes of the app if none are given.

        Returns:
            The worker; `await worker.run()` works until `worker.stop()`.

        Raises:
            InvalidValue: the app has another store open.
        """
        app.use(self.remote)
        here: WorkerOptions = {"chores": False, "signal_url": self.remote.signal_url}
        return app.worker(**{**here, **options})

    def run(self, app: App, **options: Unpack[WorkerOptions]) -> None:
        """Works until SIGTERM or Ctrl-C; a second one does not wait for handlers.

        Args:
            app: whose handlers run here.
            options: as for `worker`.
        """
        event_loop.run(self._work(app, options))

    async def _work(self, app: App, options: WorkerOptions) -> None:
        worker = self.worker(app, **options)
        event_loop.on_signals(lambda now: worker.stop(now=now))
        try:
            await worker.run()
        finally:
            await self.close_async()

    def claim(self, worker: str, **asked: Unpack[ClaimAsked]) -> ClaimReply:
        """Claims jobs, and waits for some if there are none.

        Who claims by hand also beats and settles by hand.

        Args:
            worker: a random name, new at each start of the program.
            asked: see `ClaimAsked`.

        Returns:
            The jobs, in the order to be started; none if the time is up.
        """
        return self.wait_for(self.claim_async(worker, **asked))

    async def claim_async(self, worker: str, **asked: Unpack[ClaimAsked]) -> ClaimReply:
        """As `claim`, for callers that can await."""
        return read_claim((await self.remote.ask(claim_call(worker, asked))).body).reply()

    def settle(self, worker: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Says what became of runs that this worker holds.

        Args:
            worker: as for `claim`.
            outcomes: up to 1000.

        Returns:
            A verdict for each; LOST for a run that is not live any more.
        """
        return self.wait_for(self.settle_async(worker, outcomes))

    async def settle_async(self, worker: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """As `settle`, for callers that can await."""
        call = settle_call(worker, outcomes, self.remote.wall_at(), self.patience_s)
        return [Verdict(word) for word in (await self.remote.ask(call)).json["verdicts"]]

    def beat(
        self, worker: str, running: Sequence[tuple[str, int]], *, lease: object = "30s"
    ) -> BeatReply:
        """Keeps the leases of what a worker runs.

        Args:
            worker: as for `claim`.
            running: each run that it holds, as (job, run).
            lease: how long its runs live from now.

        Returns:
            Which of them are lost, and which are to be cancelled.
        """
        return self.wait_for(self.beat_async(worker, running, lease=lease))

    async def beat_async(
        self, worker: str, running: Sequence[tuple[str, int]], *, lease: object = "30s"
    ) -> BeatReply:
        """As `beat`, for callers that can await."""
        return await self.remote.beat(
            BeatRequest(worker=worker, running=tuple(running), lease_ms=parse_duration(lease))
        )
