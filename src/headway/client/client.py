"""The client: a connection from a program to a server."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from headway.client.address import read_address
from headway.client.queries import read_claim
from headway.client.remote_store import RemoteStore
from headway.client.requests import Fields, body_with_id, job_body, plain_body, read_sent
from headway.client.work_requests import ClaimOptions, claim_call, read_verdicts, settle_call
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.operate import Verb
from headway.contract.outcomes import Outcome, Verdict
from headway.contract.signals import SignalReply
from headway.contract.store import Sent, Store
from headway.contract.views import JobQuery, JobView, Page, Query, WhyQuery, WhyView
from headway.core.check import check_job_id
from headway.core.duration import Duration, parse_duration
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.job import NewJob
from headway.runtime import event_loop
from headway.runtime.app import App, act_on
from headway.runtime.event_loop import Background
from headway.runtime.inserting import batches, check_listed, send_in_steps
from headway.runtime.job_filters import JobFilters, read_filters
from headway.runtime.kind import Kind
from headway.runtime.signals import SignalOptions, read_signal
from headway.runtime.timing import Timing
from headway.runtime.worker.worker import Worker
from headway.runtime.worker.worker_options import WorkerOptions

Answer = TypeVar("Answer")
Result = TypeVar("Result")
Given = ParamSpec("Given")


def _synchronous(
    work: Callable[Concatenate[Client, Given], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Client, Given], Result]:
    """Return the synchronous version of a method."""

    @wraps(work)
    def wait(client: Client, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return client.wait_for(work(client, *args, **kwargs))

    wait.__name__ = work.__name__.removesuffix("_async")
    wait.__qualname__ = work.__qualname__.removesuffix("_async")
    return wait


class Client:
    """A connection to a server: to send, signal, read and run jobs.

    Each method exists in a synchronous version and, with the suffix `_async`, an asynchronous one.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: Duration = "30s",
        patience: Duration = "10s",
        timing: Timing | None = None,
    ) -> None:
        """Create a client; it connects with the first call.

        Args:
            url: URL of the server; defaults to HEADWAY_URL in the environment, or
                "http://127.0.0.1:8080".
            token: API token; defaults to HEADWAY_TOKEN in the environment.
            timeout: time limit of one attempt of a call, as "30s" or a timedelta.
            patience: how long a call is retried while the server is unreachable or asks for a
                retry.
            timing: clock and sleep, replaced by the simulator.

        Raises:
            InvalidValue: the URL is not that of a server, or another value is not valid.
        """
        address = read_address(url, token)
        self._url = address.url
        self.patience_s = parse_duration(patience) / 1000
        self.remote = RemoteStore(
            address,
            timeout_s=parse_duration(timeout) / 1000,
            patience_s=self.patience_s,
            timing=timing,
        )
        self._background = Background()

    def __repr__(self) -> str:
        """Return the server's URL, never the token."""
        return f"<Client {self._url}>"

    @property
    def store(self) -> Store:
        """The server as a store, for workers and `App(store=...)`."""
        return self.remote

    def close(self) -> None:
        """Close all connections; the next call opens them again."""
        self.wait_for(self.remote.close())
        self._background.close()

    async def close_async(self) -> None:
        """Asynchronous version of `close`."""
        await self.remote.close()
        self._background.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close_async()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine for a caller that cannot await."""
        return self._background.run(work)

    # ------------------------------------------------------------------------------- producers

    async def send_async(
        self,
        kind: Kind | str,
        /,
        *,
        also: Mapping[str, object] | None = None,
        **given: Any,  # noqa: ANN401  (checked by the kind, or by the server)
    ) -> Sent:
        """Send a job; when this returns, the job is stored.

        Args:
            kind: a kind of an App in this program, or the name of a kind that workers elsewhere
                define.
            also: for a kind given by name: further fields of the job as in the HTTP API, such as
                `{"gates": ["numbers"], "retry": {"attempts": 3}}`.
            given: the handler's arguments, and the options of `Kind.make`.

        Returns:
            The id of the job, and whether this call created it.

        Raises:
            CallerError: an argument or option is refused; nothing was written.
            AccessError: the token does not permit this; nothing was written.
            StoreUnavailable: the server cannot be reached; nothing was written.
            OutcomeUnknown: there was no answer; repeating the call with the same `job_id` or `key`
                returns the job.
            InvalidValue: `also` was passed for a declared kind.
        """
        if isinstance(kind, Kind):
            if also:
                message = f"`also` was passed for the declared kind {kind.name!r}"
                raise InvalidValue(message, hint="omit `also`, or pass the name of the kind")
            return await self._send_of(kind, kind.make(**given))
        reply = await self.remote.post("/v1/jobs", plain_body(kind, given, also or {}))
        return reply.read(lambda one: Sent(one["id"], one["created"]))

    send = _synchronous(send_async)

    async def send_many_async(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> list[Sent]:
        """Send many jobs in steps of 1000; each step is stored completely or not at all.

        Args:
            jobs: created by a kind's `make`, or as in the HTTP API: `{"kind": "send_mail", "args":
                {...}}`. Their gates must already be declared, for example by an `App` that uses
                this server.

        Returns:
            For each job, in this order, its id and whether this call created it.

        Raises:
            CallerError: a step is refused; the steps before it are stored.
            StoreError: the server cannot serve the call now; the steps before are stored.
        """
        return await send_in_steps(self._bodies(jobs), self._send_ahead)

    def send_many(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> list[Sent]:
        """Send many jobs in steps of 1000; each step is stored completely or not at all.

        See `send_many_async`; the jobs are iterated in the caller's thread.
        """
        # On the caller's thread, to which the iterator's own connections may be bound.
        steps = (self.wait_for(self._send_step(step)) for step in batches(self._bodies(jobs)))
        return [sent for step in steps for sent in step]

    async def signal_async(
        self, key: str, *, event: str, **options: Unpack[SignalOptions]
    ) -> SignalReply:
        """Report an external event for a job that awaits it.

        Args:
            key: the reference of the job's run, or a key it is known by.
            event: id of the event; each event is applied once.

        Raises:
            CallerError: the signal specifies nothing or too much.
            StoreError: the server cannot serve the call now.
        """
        return await self.remote.signal(read_signal(key, event, options))

    signal = _synchronous(signal_async)

    def _bodies(self, jobs: Iterable[NewJob | Mapping[str, object]]) -> Iterator[Fields]:
        now = self.remote.wall_at()
        for one in check_listed(jobs):
            yield job_body(one, now) if isinstance(one, NewJob) else body_with_id(one)

    async def _send_ahead(self, step: list[Fields], sent: Callable[[], None] | None) -> list[Sent]:
        if sent is not None:
            sent()
        return await self._send_step(step)

    async def _send_step(self, step: list[Fields]) -> list[Sent]:
        return (await self.remote.post("/v1/jobs", step)).read(read_sent)

    async def _send_of(self, kind: Kind, job: NewJob) -> Sent:
        try:
            return (await self.remote.enqueue([job]))[0]
        except UnknownGate:
            # Declare the gates, as an App does when it first sends.
            items = tuple(DeclareGate(spec=spec) for spec in kind.gates)
            await self.remote.define(DefineRequest(items=items, author=kind.name))
            return (await self.remote.enqueue([job]))[0]

    # ------------------------------------------------------------------------------------ jobs

    async def job_async(self, job: str) -> JobView | None:
        """Return a job with its whole record, or None if there is no such job."""
        return await self.remote.read(JobQuery(id=check_job_id(job)))

    job = _synchronous(job_async)

    async def jobs_async(self, **filters: Unpack[JobFilters]) -> Page[JobView]:
        """Return a page of jobs, oldest first.

        Returns:
            Up to `limit` jobs, and the cursor of the next page.
        """
        return await self.remote.read(read_filters(filters))

    jobs = _synchronous(jobs_async)

    async def why_async(self, job: str) -> WhyView | None:
        """Return why a job is in its current state, or None if there is no such job."""
        return await self.remote.read(WhyQuery(id=check_job_id(job)))

    why = _synchronous(why_async)

    async def read_async(self, query: Query[Answer]) -> Answer:
        """Run one of the contract's queries, such as `LanesQuery()`.

        Raises:
            CallerError: the HTTP API does not support it.
        """
        return await self.remote.read(query)

    read = _synchronous(read_async)

    async def cancel_async(self, job: str, *, reason: str = "") -> str | None:
        """Cancel a queued job, or request that a running or awaiting job stops.

        Args:
            reason: recorded in the trail.

        Returns:
            The state of the job after the call.

        Raises:
            UnknownJob: there is no such job.
            InvalidState: the job is already final.
        """
        return await act_on(self.remote, Verb.CANCEL, job, author="client", reason=reason)

    cancel = _synchronous(cancel_async)

    async def retry_async(
        self, job: str, *, reason: str = "", args: Mapping[str, object] | None = None
    ) -> str | None:
        """Run a dead or cancelled job again, with all its attempts.

        Args:
            reason: recorded in the trail.
            args: new arguments; they replace all the old ones.

        Returns:
            The state of the job after the call.

        Raises:
            UnknownJob: there is no such job.
            InvalidState: the job is neither dead nor cancelled.
        """
        return await act_on(self.remote, Verb.RETRY, job, author="client", reason=reason, args=args)

    retry = _synchronous(retry_async)

    # ------------------------------------------------------------------------------------ work

    def worker(self, app: App, **options: Unpack[WorkerOptions]) -> Worker:
        """Create a worker for an App's kinds that claims from the server.

        From now on, the App also sends to the server. The server does the store's maintenance.

        Args:
            app: the App whose handlers run here.
            options: see `WorkerOptions`; the worker serves all lanes of the app by default.

        Returns:
            The worker; `await worker.run()` runs it until `worker.stop()` is called.

        Raises:
            InvalidValue: the app has already opened another store.
        """
        app.use(self.remote)
        here: WorkerOptions = {"chores": False, "signal_url": self.remote.signal_url}
        return app.worker(**{**here, **options})

    def run(self, app: App, **options: Unpack[WorkerOptions]) -> None:
        """Run a worker until SIGTERM or Ctrl-C; a second signal does not wait for handlers.

        A third signal kills the process at once.
        """
        event_loop.run(self._work(app, options))

    async def _work(self, app: App, options: WorkerOptions) -> None:
        worker = self.worker(app, **options)
        try:
            event_loop.on_signals(lambda now: worker.stop(now=now))
            await worker.run()
        finally:
            await self.close_async()

    async def claim_async(self, worker: str, **options: Unpack[ClaimOptions]) -> ClaimReply:
        """Claim jobs, and wait for them if none are available.

        A program that claims jobs itself must also send heartbeats and settle them.

        Args:
            worker: a random name, new at each start of the program.

        Returns:
            The jobs, in the order to start them; none if the wait timed out.
        """
        return read_claim((await self.remote.ask(claim_call(worker, options))).body).reply()

    claim = _synchronous(claim_async)

    async def settle_async(self, worker: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
        """Report the outcomes of runs that this worker holds.

        Args:
            worker: as for `claim`.
            outcomes: up to 1000 outcomes.

        Returns:
            A verdict for each; LOST for a run that is no longer live.
        """
        call = settle_call(worker, outcomes, self.remote.wall_at(), self.patience_s)
        return (await self.remote.ask(call)).read(read_verdicts)

    settle = _synchronous(settle_async)

    async def beat_async(
        self, worker: str, running: Sequence[tuple[str, int]], *, lease: Duration = "30s"
    ) -> BeatReply:
        """Extend the leases of a worker's runs.

        Args:
            worker: as for `claim`.
            running: each run that it holds, as (job, run).
            lease: how long its runs stay valid from now.

        Returns:
            Which runs are lost, and which should be cancelled.
        """
        return await self.remote.beat(
            BeatRequest(worker=worker, running=tuple(running), lease_ms=parse_duration(lease))
        )

    beat = _synchronous(beat_async)
